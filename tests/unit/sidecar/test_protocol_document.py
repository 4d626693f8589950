"""docs/protocol.md says what wire/ says."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import msgspec
import msgspec.inspect as inspect
import pytest

from sidecar.sockets.framing import pack
from wire import frames, jobs

DOCUMENT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
SECTIONS = {
    match["name"]: match["body"]
    for match in re.finditer(r"^#### `?(?P<name>\w+)`?\n(?P<body>.*?)(?=^#)", DOCUMENT, re.MULTILINE | re.DOTALL)
}
FRAMES = [*typing.get_args(frames.WorkerFrame), *typing.get_args(frames.SidecarFrame)]
STRUCTS = [
    jobs.Job, jobs.EmbeddingInputs, jobs.RerankInputs, jobs.ClassifyInputs, jobs.GenerateInputs, jobs.Message,
    jobs.Sampling, jobs.InputsReference, jobs.Result, jobs.EmbeddingOutputs, jobs.RerankOutputs, jobs.ClassifyOutputs,
    jobs.TokenClassifyOutputs, jobs.Entity, jobs.GenerateOutputs, jobs.TokenLogprob, jobs.DeadJob, jobs.Demand,
    jobs.Presence,
]  # fmt: skip
PLAIN = {
    inspect.StrType: "text",
    inspect.EnumType: "text",
    inspect.IntType: "integer",
    inspect.FloatType: "float",
    inspect.BoolType: "boolean",
    inspect.BytesType: "bytes",
    inspect.NoneType: "nil",
}


def words(kind: inspect.Type) -> str:
    """A type as the document writes it."""
    match kind:
        case inspect.ListType():
            return f"array of {words(kind.item_type)}"
        case inspect.TupleType():
            return f"pair of {' and '.join(words(one) for one in kind.item_types)}"
        case inspect.DictType():
            return f"map of {words(kind.key_type)} to {words(kind.value_type)}"
        case inspect.StructType():
            return kind.cls.__name__
        case inspect.UnionType():
            return " or ".join(words(one) for one in kind.types)
    return PLAIN[type(kind)]


def documented(name: str) -> list[tuple[str, str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (yes|no) \| [^|\n]+ \|$", SECTIONS[name], re.MULTILINE)
    return [(field, kind.strip(), required) for field, kind, required in rows]


def declared(struct: type[msgspec.Struct]) -> tuple[str, list[tuple[str, str, str]]]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    name = str(info.tag) if struct in FRAMES else struct.__name__
    return name, [(field.encode_name, words(field.type), "yes" if field.required else "no") for field in info.fields]


@pytest.mark.parametrize("struct", [*FRAMES, *STRUCTS], ids=lambda struct: str(struct.__name__))
def test_the_document_has_every_field(struct: type[msgspec.Struct]) -> None:
    name, fields = declared(struct)
    assert documented(name) == fields


def test_the_document_has_nothing_else() -> None:
    assert set(SECTIONS) == {declared(struct)[0] for struct in [*FRAMES, *STRUCTS]}


def test_the_example_is_a_hello_frame() -> None:
    (block,) = re.findall(r"```\n((?:[0-9a-f]{2}[ \n])+)```", DOCUMENT)
    hello = frames.Hello(
        protocol=frames.PROTOCOL, worker="cpu", device="cpu", device_name="CPU", pid=4242, tasks=["embeddings"]
    )
    assert bytes.fromhex(block) == pack(hello)
    assert f"`hello` of {len(pack(hello))} bytes" in DOCUMENT


def test_the_limits_are_those_of_the_code() -> None:
    assert f"1 to {frames.MAX_FRAME_BYTES:,} bytes" in DOCUMENT
    assert f"protocol number is {frames.PROTOCOL};" in DOCUMENT
