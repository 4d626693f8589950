"""Weights saved by torch.save: read without running anything, or refused by the name of what they would call."""

from __future__ import annotations

import builtins
import io
import json
import os
import pickle
import subprocess
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.validation.uploads import (
    PREFIX,
    Upload,
    acceptance,
    adapter,
    configuration,
    encoder_manifest,
    lora,
    paths,
    refusal,
)
from wire.reports import Finding

CONFIG = "adapter_config.json"
QUERY = "encoder.layer.0.attention.self.query"


def tensors(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """The tensors of the plain adapter."""
    return {
        name: torch.frombuffer(bytearray(tensor.data), dtype=torch.float32).reshape(tensor.shape).to(dtype)
        for name, tensor in lora(paths("query", "value")).items()
    }


def saved(value: object, **options: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def pickled(data: bytes, name: str = "adapter_model.bin") -> Upload:
    return Upload({CONFIG: json.dumps(configuration()).encode(), name: data})


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("wrap", [dict, OrderedDict, lambda table: {"state_dict": table, "step": 7}])
def test_converted_to_the_same_version_as_safetensors(tmp_path: Path, zipped: bool, wrap: Any) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "pickled").mkdir()
    expected = adapter().examine(tmp_path / "plain").report.digest
    data = saved(wrap(tensors()), _use_new_zipfile_serialization=zipped)
    reply = pickled(data).examine(tmp_path / "pickled")
    acceptance(reply, Finding.PICKLE_CONVERTED)
    assert reply.report.digest == expected


@pytest.mark.parametrize("name", ["adapter_model.pt", "adapter_model.pth", "lora.pt"])
def test_other_names(tmp_path: Path, name: str) -> None:
    acceptance(pickled(saved(tensors()), name).examine(tmp_path), Finding.PICKLE_CONVERTED)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_float_types_are_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    reply = pickled(saved(tensors(dtype))).examine(tmp_path)
    acceptance(reply, Finding.PICKLE_CONVERTED)
    assert reply.report.facts.dtype == {torch.float16: "F16", torch.bfloat16: "BF16"}[dtype]


def test_state_dict_of_a_module_with_its_metadata(tmp_path: Path) -> None:
    module = torch.nn.Module()
    module.add_module("lora_A", torch.nn.Linear(64, 4, bias=False))
    module.add_module("lora_B", torch.nn.Linear(4, 64, bias=False))
    state = OrderedDict((f"{PREFIX}{QUERY}.{name}", value) for name, value in module.state_dict().items())
    state._metadata = module.state_dict()._metadata  # type: ignore[attr-defined]
    config = configuration(target_modules=["query"])
    upload = Upload({CONFIG: json.dumps(config).encode(), "adapter_model.bin": saved(state)})
    acceptance(upload.examine(tmp_path), Finding.PICKLE_CONVERTED)


def test_transposed_and_cut_tensors_are_laid_out_in_order(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "odd").mkdir()
    odd = {}
    for number, (name, tensor) in enumerate(tensors().items()):
        if number % 2:
            odd[name] = tensor.t().contiguous().t()
        else:
            wide = torch.zeros(tensor.shape[0] + 3, tensor.shape[1] + 5)
            wide[2:-1, 4:-1] = tensor
            odd[name] = wide[2:-1, 4:-1]
    reply = pickled(saved(odd)).examine(tmp_path / "odd")
    acceptance(reply, Finding.PICKLE_CONVERTED)
    assert reply.report.digest == adapter().examine(tmp_path / "plain").report.digest


def test_tensors_that_share_their_numbers(tmp_path: Path) -> None:
    shared = torch.randn(4, 64)
    state = dict(tensors())
    for name in state:
        if name.endswith("lora_A.weight"):
            state[name] = shared
    acceptance(pickled(saved(state)).examine(tmp_path), Finding.PICKLE_CONVERTED)


class Calls:
    """Calls ``function`` with ``arguments`` when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.called = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.called


def traps(mark: Path) -> list[tuple[Any, str]]:
    return [
        (Calls(os.system, f"touch {mark}"), "posix.system"),
        (Calls(builtins.eval, f"open({str(mark)!r}, 'w')"), "builtins.eval"),
        (Calls(subprocess.check_output, ["touch", str(mark)]), "subprocess.check_output"),
        (Calls(getattr, mark, "touch"), "builtins.getattr"),
    ]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("how", ["zip", "old", "raw", "protocol 0", "protocol 5", "beside tensors"])
def test_a_pickle_that_would_run_code_is_named_and_never_run(tmp_path: Path, which: int, how: str) -> None:
    mark = tmp_path / "executed"
    trap, name = traps(mark)[which]
    data = {
        "zip": lambda: saved({"a": trap}),
        "old": lambda: saved({"a": trap}, _use_new_zipfile_serialization=False),
        "raw": lambda: pickle.dumps(trap),
        "protocol 0": lambda: pickle.dumps(trap, protocol=0),
        "protocol 5": lambda: pickle.dumps([trap], protocol=5),
        "beside tensors": lambda: saved({**tensors(), "x": trap}),
    }[how]()
    refusal(pickled(data).examine(tmp_path), Finding.PICKLE_UNSAFE, name, "adapter_model.bin", "safe_serialization")
    assert not mark.exists()


@pytest.mark.parametrize(
    "code", [b"(ios\nsystem\n.", b"cos\nsystem\n(S'x'\ntR.", b"\x80\x02cos\nsystem\n)\x81.", b"(cos\nsystem\no."]
)
def test_every_way_to_call_is_known(tmp_path: Path, code: bytes) -> None:
    refusal(pickled(code).examine(tmp_path), Finding.PICKLE_UNSAFE, "os.system")


def spoiled_zip(**changes: Any) -> bytes:
    """A well-formed file of torch, written again with ``changes``: name → other content, ``None`` takes it out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(tensors()))) as source, zipfile.ZipFile(out, "w") as target:
        for member in source.infolist():
            base = member.filename.rpartition("/")[2].replace(".", "_")
            content = changes.get(base, changes.get(f"_{base}", source.read(member)))
            if content is not None:
                method = zipfile.ZIP_DEFLATED if changes.get("deflate") else zipfile.ZIP_STORED
                target.writestr(member.filename, content, method)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x02}q\x00.", "not written by torch.save"),
        (saved([1, 2]), "no table of tensors"),
        (saved({}), "no table of tensors"),
        (saved({"a": 1}), "'a' is no tensor"),
        (saved(tensors(), _use_new_zipfile_serialization=False)[:-10], "cut off"),
        (spoiled_zip(data_pkl=None), "0 data.pkl"),
        (spoiled_zip(byteorder=b"big"), "big-endian"),
        (spoiled_zip(deflate=True), "is compressed"),
        (spoiled_zip(_0=b"short"), "reaches beyond"),
        (spoiled_zip(_0=None), "reaches beyond"),
        (spoiled_zip(data_pkl=b"\x80\x02}" + b"X\xff\xff\xff\x7f"), "bytes beside its numbers"),
        (spoiled_zip(data_pkl=b"\x80\x02}((((tttt1."), "adapter_model.bin"),
        (spoiled_zip(data_pkl=b"\x80\x02}))s."), "key"),
    ],
)
def test_what_is_no_table_of_tensors(tmp_path: Path, data: bytes, words: str) -> None:
    refusal(pickled(data).examine(tmp_path), Finding.FORMAT_UNSUPPORTED, words)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", saved(tensors())[:-1], saved(tensors())[:-3000]])
def test_cut_files_are_said_to_be_cut(tmp_path: Path, data: bytes) -> None:
    refusal(pickled(data).examine(tmp_path), Finding.TRUNCATED, "adapter_model.bin", f"it has {len(data):,} bytes")


def test_files_by_another_formats_name(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "safetensors").mkdir()
    reply = pickled(adapter().files["adapter_model.safetensors"]).examine(tmp_path / "bin")
    refusal(reply, Finding.FORMAT_UNSUPPORTED, "is a safetensors file", "Rename it: adapter_model.safetensors")
    reply = pickled(saved(tensors()), "adapter_model.safetensors").examine(tmp_path / "safetensors")
    refusal(reply, Finding.HEADER_INVALID, "as a file of torch.save does")


def test_a_view_that_repeats_its_numbers_is_not_written_out(tmp_path: Path) -> None:
    state = {**tensors(), "x": torch.zeros(1).expand(1 << 20, 1 << 20)}
    refusal(pickled(saved(state)).examine(tmp_path), Finding.FORMAT_UNSUPPORTED, "'x' is a view")


def test_the_number_of_instructions_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loras.validation.weights.pickle_reader._MAX_INSTRUCTIONS", 10_000)
    data = spoiled_zip(data_pkl=b"\x80\x02" + b"(" * 10_001 + b".")
    refusal(pickled(data).examine(tmp_path), Finding.FORMAT_UNSUPPORTED, "more than 10,000 instructions")


def test_deeply_nested_tuples_as_a_key_end_nothing(tmp_path: Path) -> None:
    data = b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"Ns."
    refusal(pickled(spoiled_zip(data_pkl=data)).examine(tmp_path), Finding.FORMAT_UNSUPPORTED, "key")


def test_the_numbers_of_a_pickle_are_checked_too(tmp_path: Path) -> None:
    state = tensors()
    state[f"{PREFIX}{QUERY}.lora_B.weight"][3, 1] = np.nan
    refusal(pickled(saved(state)).examine(tmp_path), Finding.NONFINITE, QUERY)


def test_safetensors_beside_a_pickle_win(tmp_path: Path) -> None:
    upload = adapter()
    upload.files["adapter_model.bin"] = b"not read"
    acceptance(upload.examine(tmp_path), Finding.FILES_IGNORED)
    assert upload.manifests[0].id == encoder_manifest().id
