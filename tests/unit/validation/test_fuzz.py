"""Whatever bytes come in, the readers refuse with a typed refusal or read them; nothing else escapes."""

from __future__ import annotations

import io
import json
import pickletools
import random
import resource
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loras.validation.findings import Refused
from loras.validation.lora.configuration import read_configuration
from loras.validation.weights.header import read_header
from loras.validation.weights.pickle_reader import BoundedStream, UnreadablePickle, UnsafePickle, read_pickle
from tests.unit.validation.uploads import (
    Upload,
    adapter,
    configuration,
    lora,
    paths,
    safetensors_bytes,
    stored,
    tarred,
    with_header,
    zipped,
)
from wire.codec import encode_json
from wire.reports import Finding

FILES = adapter().files
ARCHIVES = [zipped(FILES), zipped(FILES, method=0), tarred(FILES, mode="w"), tarred(FILES)]
CORPUS = Path(__file__).parent / "corpus"
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

# half characters too, which no UTF-8 holds
any_text = st.text(st.characters(exclude_categories=()), max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


def edited(data: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    """``data`` with single bytes replaced and the end cut off."""
    spoiled = bytearray(data)
    for position, value in edits:
        spoiled[position % len(spoiled)] = value
    return bytes(spoiled[: len(spoiled) - cut % len(spoiled)] if cut else spoiled)


def pickles() -> list[bytes]:
    """The two formats of torch.save, each with two tensors."""
    found = []
    for zipped_format in (True, False):
        out = io.BytesIO()
        names = [f"base_model.model.encoder.layer.0.attention.self.query.lora_{side}.weight" for side in "AB"]
        state = dict(zip(names, (torch.ones(4, 64), torch.ones(64, 4)), strict=True))
        torch.save(state, out, _use_new_zipfile_serialization=zipped_format)
        found.append(out.getvalue())
    return found


PICKLES = pickles()


def examined(upload: Upload) -> set[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        reply = upload.examine(Path(folder))
        # the child's last step; a text that cannot be sent would cost the verdict
        assert encode_json(reply)
        return {row.code for row in reply.report.rows}


byte_edits = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8)


@FUZZ
@given(which=st.integers(0, len(ARCHIVES) - 1), edits=byte_edits, cut=st.integers(0, 4000))
def test_spoiled_archives(which: int, edits: list[tuple[int, int]], cut: int) -> None:
    assert examined(Upload({"upload": edited(ARCHIVES[which], edits, cut)}))


@FUZZ
@given(
    magic=st.sampled_from([b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08\x00", b"x" * 257 + b"ustar"]),
    rest=st.binary(max_size=600),
)
def test_noise_behind_an_archives_first_bytes(magic: bytes, rest: bytes) -> None:
    assert examined(Upload({"upload": magic + rest})) & {
        Finding.ARCHIVE_CORRUPT,
        Finding.ARCHIVE_UNSUPPORTED,
        Finding.ARCHIVE_UNSAFE,
        Finding.ARCHIVE_TOO_LARGE,
        Finding.FILE_MISSING,
    }


@FUZZ
@given(edits=byte_edits, cut=st.integers(0, 4000))
def test_spoiled_weights(edits: list[tuple[int, int]], cut: int) -> None:
    data = safetensors_bytes(lora(paths("query", "value")))
    # most edits belong into the header, where they do harm
    near = [(position % 1200, value) for position, value in edits]
    assert examined(adapter(edited(data, near, cut)))


@FUZZ
@given(entries=st.dictionaries(st.text(max_size=12), json_values, max_size=4), data=st.binary(max_size=64))
def test_any_json_as_a_header(entries: dict[str, Any], data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w"
        path.write_bytes(with_header(json.dumps(entries).encode(), data))
        try:
            header = read_header(path)
        except Refused:
            return
        assert sum(tensor.end - tensor.begin for tensor in header.tensors) == len(data)


@FUZZ
@given(
    changes=st.dictionaries(
        st.sampled_from([*configuration(), "rank_pattern", "alpha_pattern", "layers_to_transform", "use_new"]),
        json_values,
        max_size=4,
    )
)
@example(changes={"rank_pattern": {"(a+)+$": 4}})
def test_any_values_in_a_configuration(changes: dict[str, Any]) -> None:
    assert examined(adapter(config=configuration(**changes)))


@FUZZ
@given(data=st.binary(max_size=300))
def test_any_bytes_as_a_configuration(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c"
        path.write_bytes(data)
        with pytest.raises(Refused):
            read_configuration(path)


@FUZZ
@given(which=st.integers(0, len(PICKLES) - 1), edits=byte_edits, cut=st.integers(0, 4000))
def test_spoiled_pickles(which: int, edits: list[tuple[int, int]], cut: int) -> None:
    data = edited(PICKLES[which], edits, cut)
    assert examined(Upload({"adapter_config.json": FILES["adapter_config.json"], "adapter_model.bin": data}))


_INSTRUCTIONS = [instruction.code.encode("latin-1") for instruction in pickletools.opcodes]
_ARGUMENTS = st.one_of(
    st.binary(max_size=9),
    st.sampled_from([b"\x00", b"\x01", b"cos\nsystem\n", b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n",
                     b"X\x07\x00\x00\x00storage", b"ctorch._utils\n_rebuild_tensor_v2\n", b"K\x04", b"I5\n", b"\n"]),
)  # fmt: skip


@FUZZ
@given(program=st.lists(st.tuples(st.sampled_from(_INSTRUCTIONS), _ARGUMENTS), max_size=40))
def test_any_program_for_the_pickle_machine(program: list[tuple[bytes, bytes]]) -> None:
    data = b"\x80\x02" + b"".join(code + argument for code, argument in program) + b"."
    try:
        value = read_pickle(BoundedStream(io.BytesIO(data)))
    except (UnsafePickle, UnreadablePickle):
        return
    assert not callable(value)


@FUZZ
@given(
    changes=st.dictionaries(
        st.sampled_from(["model_type", "architectures", "hidden_size", "vocab_size", "id2label", "auto_map",
                         "num_labels", "quantization_config", "problem_type"]),
        json_values,
        max_size=4,
    ),
    tokenizer=json_values,
    modules=json_values,
)  # fmt: skip
def test_any_values_in_the_files_of_a_whole_model(changes: dict[str, Any], tokenizer: Any, modules: Any) -> None:
    """Up to the class, which is built in a process of its own."""
    files = {
        "config.json": {"model_type": "bert", "architectures": ["BertModel"]} | changes,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"added_tokens_decoder": tokenizer},
        "modules.json": modules,
        "model.safetensors.index.json": {"weight_map": modules},
    }
    upload = Upload({name: json.dumps(value).encode() for name, value in files.items()})
    upload.files["model-00001-of-00002.safetensors"] = FILES["adapter_model.safetensors"]
    assert examined(upload)


@FUZZ
@given(config=json_values, tokens=json_values, labels=st.integers(0, 3))
def test_any_values_beside_a_head(config: Any, tokens: Any, labels: int) -> None:
    tensors = lora(paths("query", "value"))
    tensors |= {"base_model.model.classifier.weight": stored(np.ones((labels, 64)))}
    tensors |= {"base_model.model.classifier.bias": stored(np.ones(labels))}
    tensors |= {"base_model.model.embeddings.word_embeddings.weight": stored(np.ones((102, 64)))}
    upload = adapter(tensors, configuration(task_type="SEQ_CLS"))
    beside = {"id2label": config, "problem_type": tokens, "architectures": tokens}
    upload.files["config.json"] = json.dumps(beside).encode()
    upload.files["tokenizer.json"] = json.dumps({"added_tokens": tokens}).encode()
    upload.files["added_tokens.json"] = json.dumps(tokens).encode()
    assert examined(upload)


@FUZZ
@given(names=st.lists(any_text, min_size=1, max_size=6, unique=True))
def test_any_tensor_names(names: list[str]) -> None:
    base = lora(paths("query", "value"))
    tensors = dict(zip(names, base.values(), strict=False)) | base
    assert examined(adapter(tensors))


@pytest.mark.parametrize("filler", [b'"a":{},', b"[0,", b'{"a":', b'"' + b"a" * 1000 + b'":1,', b"0,"])
def test_memory_of_a_hostile_header_is_bounded(tmp_path: Path, filler: bytes) -> None:
    """Sixteen megabytes of anything cost a small multiple of that."""
    size = 16 << 20
    path = tmp_path / "weights"
    path.write_bytes(with_header(b'{"x":[' + filler * (size // len(filler)) + b"]}"))
    tracemalloc.start()
    with pytest.raises(Refused):
        read_header(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * size


def test_a_claimed_header_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(with_header(b"{}", length=99_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Refused):
        read_header(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_random_files_as_weights(tmp_path: Path) -> None:
    source = random.Random(7)
    for number in range(50):
        path = tmp_path / str(number)
        path.write_bytes(source.randbytes(source.randrange(0, 4096)))
        with pytest.raises(Refused):
            read_header(path)


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_corpus(path: Path) -> None:
    """Every input that was once worth keeping: in each place where an upload's bytes are read."""
    data, files = path.read_bytes(), adapter().files
    config = {"adapter_config.json": files["adapter_config.json"]}
    for upload in (
        Upload({"upload": data}),
        Upload(files | {"adapter_model.safetensors": data}),
        Upload(files | {"adapter_config.json": data}),
        Upload(config | {"adapter_model.bin": data}),
        Upload({"config.json": data, "model.safetensors": files["adapter_model.safetensors"]}),
    ):
        assert examined(upload)
