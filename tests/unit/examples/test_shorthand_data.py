"""The example's data: the files are what the script writes, and the held-out part is really held out."""

from __future__ import annotations

from examples.maintenance_shorthand.build import build
from examples.maintenance_shorthand.pairs import read_pairs


def test_files_are_what_the_script_writes() -> None:
    train, heldout = build()
    assert read_pairs("train") == [(row["query"], row["document"]) for row in train]
    assert read_pairs("heldout") == [(row["query"], row["document"]) for row in heldout]


def test_nothing_held_out_was_trained_on() -> None:
    train, heldout = read_pairs("train"), read_pairs("heldout")
    assert not {query for query, _ in train} & {query for query, _ in heldout}
    assert not {document for _, document in train} & {document for _, document in heldout}


def test_every_held_out_query_has_one_right_document() -> None:
    documents = [document for _, document in read_pairs("heldout")]
    assert len(set(documents)) == len(documents)
