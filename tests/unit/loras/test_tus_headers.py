"""Headers of resumable uploads: what is written is read again, and nothing but a refusal comes of anything else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loras.uploads.tus import Checksum, read_checksum, read_count, read_metadata, write_metadata
from wire.errors import Code, ShoalError

KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1, max_size=20)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(st.dictionaries(KEYS, VALUES, max_size=8))
def test_metadata_round_trip(metadata: dict[str, str]) -> None:
    assert read_metadata(write_metadata(metadata)) == metadata


def refusal(read: Callable[[], object]) -> Code | None:
    """The code of the refusal, if it is one."""
    try:
        read()
    except ShoalError as error:
        return error.code
    return None


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_metadata, read_checksum, partial(read_count, "Upload-Length")):
        assert refusal(partial(read, text)) in {None, Code.INVALID_REQUEST}


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
def test_checksum(algorithm: str) -> None:
    digest = hashlib.new(algorithm, b"chunk").digest()
    found = read_checksum(f"{algorithm} {base64.b64encode(digest).decode()}")
    assert found == Checksum(algorithm, digest)
    hashed = found.start()
    hashed.update(b"chunk")
    assert hashed.digest() == digest


@pytest.mark.parametrize("header", ["md5 YQ==", "sha256", "sha256 YQ==", "sha256 ???", ""])
def test_a_checksum_that_cannot_be_compared_is_refused(header: str) -> None:
    with pytest.raises(ShoalError) as refused:
        read_checksum(header)
    assert refused.value.info.param == "Upload-Checksum"


def test_no_number_is_taken_that_no_column_holds() -> None:
    assert read_count("Upload-Length", str(2**63 - 1)) == 2**63 - 1
    for text in (str(2**63), "-1", "1e3", " 1", "١", None):
        with pytest.raises(ShoalError):
            read_count("Upload-Length", text)
