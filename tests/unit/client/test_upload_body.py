"""The multipart body: exactly the bytes that were promised, in the order the server relies on."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest

from client.errors import ClientError
from client.packing import collect
from client.uploading import MultipartBody


def _parts(headers: dict[str, str], body: bytes) -> list[tuple[str, str | None, bytes]]:
    message = BytesParser().parsebytes(f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
    assert message.is_multipart()
    found = []
    for part in message.get_payload():
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        assert isinstance(name, str)
        assert isinstance(payload, bytes)
        found.append((name, part.get_filename(), payload))
    return found


def test_body_round_trip_and_length(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "adapter_config.json").write_bytes(b"{}")
    (tmp_path / "sub" / 'od"d.safetensors').write_bytes(bytes(range(256)) * 2500)
    seen: list[tuple[int, int]] = []

    body = MultipartBody(
        collect(tmp_path),
        {"name": "a/b", "message": "größer"},
        progress=lambda sent, total: seen.append((sent, total)),
    )
    data = b"".join(body.stream())

    assert body.headers()["Content-Length"] == str(len(data))
    parts = _parts(body.headers(), data)
    assert [name for name, _, _ in parts] == ["name", "message", "paths[]", "paths[]", "files[]", "files[]"]
    assert [payload.decode() for name, _, payload in parts if name == "paths[]"] == [
        "adapter_config.json",
        'sub/od"d.safetensors',
    ]
    assert parts[1][2].decode() == "größer"
    assert parts[-1][2] == bytes(range(256)) * 2500
    assert seen[-1] == (640_002, 640_002)
    assert seen == sorted(seen)


def test_a_file_that_grows_while_it_is_sent_keeps_the_promised_length(tmp_path: Path) -> None:
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(b"x" * 10)
    body = MultipartBody(collect(file), {"name": "a/b"})
    file.write_bytes(b"x" * 1000)

    assert len(b"".join(body.stream())) == int(body.headers()["Content-Length"])


def test_training_leftovers_stay_at_home(tmp_path: Path) -> None:
    for name in (
        "adapter_config.json",
        "adapter_model.safetensors",
        "optimizer.pt",
        "rng_state_0.pth",
        "._x",
        "README.md",
    ):
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"1")

    package = collect(tmp_path)

    assert [file.name for file in package.files] == ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    assert set(package.left_out) == {"optimizer.pt", "rng_state_0.pth", "._x", ".git/HEAD"}


def test_an_empty_or_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no file to send"):
        collect(tmp_path)
    with pytest.raises(ClientError, match="does not exist"):
        collect(tmp_path / "nowhere")
