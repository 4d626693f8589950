"""Archives: unsafe names and kinds, bombs, and what cannot be read."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from loras.validation.pipeline import examine
from tests.unit.validation.uploads import Upload, acceptance, adapter, packed, refusal, tarred, zipped
from wire.codec import decode_json, encode_json
from wire.reports import Finding
from wire.validation import ArchiveLimits, SandboxReply

UNSAFE_NAMES = [
    "../evil.safetensors",
    "a/../../evil",
    "/etc/passwd",
    "C:\\evil.dll",
    "..\\evil",
    "a\x00b",
    "a\nb",
    "x" * 300,
    "/".join("d" * 20),
    "ADAPTER_CONFIG.json",
    "./adapter_config.json",
]


def tar_member(name: str, kind: bytes, **fields: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for key, value in fields.items():
        setattr(member, key, value)
    return member


def raw_zip_name(data: bytes, name: str, stand_in: str) -> bytes:
    """Put a name into a zip that Python's writer would change."""
    assert len(stand_in) == len(name)
    return data.replace(stand_in.encode(), name.encode())


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_unsafe_names_refuse_the_whole_zip(tmp_path: Path, name: str) -> None:
    upload = adapter()
    stand_in = "q" * len(name)
    data = raw_zip_name(zipped(upload.files | {stand_in: b"x"}), name, stand_in)
    refusal(packed(upload, data).examine(tmp_path), Finding.ARCHIVE_UNSAFE)
    assert not list((tmp_path / "work" / "unpacked").iterdir())


@pytest.mark.parametrize("name", [name for name in UNSAFE_NAMES if "\0" not in name])
def test_unsafe_names_refuse_the_whole_tar(tmp_path: Path, name: str) -> None:
    upload = adapter()
    refusal(packed(upload, tarred(upload.files | {name: b"x"})).examine(tmp_path), Finding.ARCHIVE_UNSAFE)


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_unsafe_names_of_loose_files(tmp_path: Path, name: str) -> None:
    upload = adapter()
    upload.files[name] = b"x"
    refusal(upload.examine(tmp_path), Finding.ARCHIVE_UNSAFE)


@pytest.mark.parametrize(
    ("member", "word"),
    [
        (tar_member("link", tarfile.SYMTYPE, linkname="/etc/passwd"), "symbolic link"),
        (tar_member("hard", tarfile.LNKTYPE, linkname="adapter_config.json"), "hard link"),
        (tar_member("null", tarfile.CHRTYPE), "character device"),
        (tar_member("disk", tarfile.BLKTYPE), "block device"),
        (tar_member("pipe", tarfile.FIFOTYPE), "named pipe"),
        (tar_member("odd", b"Z"), "unknown type"),
    ],
)
def test_links_and_devices_in_tar(tmp_path: Path, member: tarfile.TarInfo, word: str) -> None:
    upload = adapter()
    data = tarred(upload.files, members=[member])
    refusal(packed(upload, data).examine(tmp_path), Finding.ARCHIVE_UNSAFE, word, member.name)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_in_zip(tmp_path: Path, kind: int) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    refusal(Upload({"a.zip": out.getvalue()}).examine(tmp_path), Finding.ARCHIVE_UNSAFE, "link")


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_ratio_bomb_is_stopped_while_it_unpacks(tmp_path: Path, pack: object) -> None:
    bomb = pack({"adapter_model.safetensors": bytes(64 << 20)})  # type: ignore[operator]
    limits = ArchiveLimits(ratio=200, ratio_free_bytes=4 << 20)
    refusal(Upload({"b.zip": bomb}, limits=limits).examine(tmp_path), Finding.ARCHIVE_TOO_LARGE, "limit 200:1")
    assert sum(file.stat().st_size for file in (tmp_path / "work").rglob("*") if file.is_file()) <= 200 * len(bomb) + (
        4 << 20
    )


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_total_is_counted(tmp_path: Path, pack: object) -> None:
    data = pack({"a.bin": b"ab" * 600_000, "b.bin": b"ba" * 600_000})  # type: ignore[operator]
    limits = ArchiveLimits(total_bytes=1_500_000, ratio_free_bytes=1 << 30)
    refusal(Upload({"b": data}, limits=limits).examine(tmp_path), Finding.ARCHIVE_TOO_LARGE, "1500000 bytes")


def test_size_forged_in_the_zip_directory_changes_nothing(tmp_path: Path) -> None:
    data = bytearray(zipped({"adapter_model.safetensors": bytes(32 << 20)}))
    central = data.rfind(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", 10)
    reply = Upload({"b.zip": bytes(data)}, limits=ArchiveLimits(ratio_free_bytes=1 << 20)).examine(tmp_path)
    assert {row.code for row in reply.report.rows} <= {Finding.ARCHIVE_TOO_LARGE, Finding.ARCHIVE_CORRUPT}
    assert sum(file.stat().st_size for file in (tmp_path / "work").rglob("*") if file.is_file()) < 16 << 20


def test_directory_size_forged_to_fill_memory(tmp_path: Path) -> None:
    # a sparse file as large as the directory it claims
    request = Upload({"b.zip": b"PK\x03\x04"}).request(tmp_path)
    size = 3 << 30
    with Path(request.files[0].location).open("r+b") as file:
        file.seek(size)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, size, 0, 0))
    refusal(examine(request), Finding.ARCHIVE_TOO_LARGE, "claims")


@pytest.mark.parametrize(("pack", "entries"), [(zipped, 30_000), (zipped, 2_001), (tarred, 2_001)])
def test_too_many_entries(tmp_path: Path, pack: object, entries: int) -> None:
    data = pack({f"f{number}": b"" for number in range(entries)})  # type: ignore[operator]
    refusal(Upload({"b": data}).examine(tmp_path), Finding.ARCHIVE_TOO_LARGE)


@pytest.mark.parametrize("name", ["inner.zip", "inner.dat", "inner.tar.gz"])
def test_archive_in_archive(tmp_path: Path, name: str) -> None:
    upload = adapter()
    data = zipped(upload.files | {name: zipped({"a": b"b"})})
    refusal(packed(upload, data).examine(tmp_path), Finding.ARCHIVE_TOO_LARGE, name)


def test_weights_of_torch_are_no_archive_in_an_archive(tmp_path: Path) -> None:
    upload = adapter()
    data = zipped(upload.files | {"optimizer.pt": zipped({"data.pkl": b"x"})})
    acceptance(packed(upload, data).examine(tmp_path), Finding.FILES_IGNORED)


def test_huge_extended_header_of_a_tar(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 1 << 40
    upload = Upload({"a.tar": member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)})
    refusal(upload.examine(tmp_path), Finding.ARCHIVE_TOO_LARGE, "extended header")


def test_long_names_and_pax_headers_are_read(tmp_path: Path) -> None:
    upload = adapter()
    folder = "a" * 90 + "/" + "b" * 90
    for number, form in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz", format=form) as archive:
            for name, content in upload.files.items():
                info = tarfile.TarInfo(f"{folder}/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        (tmp_path / str(number)).mkdir()
        acceptance(packed(upload, out.getvalue()).examine(tmp_path / str(number)))


def test_zip64(tmp_path: Path) -> None:
    upload = adapter()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in upload.files.items():
            with archive.open(name, "w", force_zip64=True) as entry:
                entry.write(content)
    acceptance(packed(upload, out.getvalue()).examine(tmp_path))


def encrypted_zip() -> bytes:
    data = bytearray(zipped({"adapter_config.json": b"{}"}))
    data[6] |= 1
    data[data.rfind(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (encrypted_zip(), "encrypted"),
        (b"Rar!\x1a\x07\x01\x00" + bytes(100), "rar"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), "7z"),
        (zipped({"a": b"b" * 99}, method=zipfile.ZIP_BZIP2), "method 12"),
        (zipped({"a": b"b" * 99}, method=zipfile.ZIP_LZMA), "method 14"),
        (b"\x1f\x8b\x08\x00" + bytes(100), "gzip, but no tar"),
        (b"\xfd7zXZ\x00" + bytes(100), "xz"),
    ],
)
def test_archives_that_are_not_read(tmp_path: Path, data: bytes, word: str) -> None:
    refusal(Upload({"a": data}).examine(tmp_path), Finding.ARCHIVE_UNSUPPORTED, word)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.zip", b"<!DOCTYPE html><title>Sign in</title>", ("37 bytes", "'<!DOCTYPE html>")),
        ("a.tar.gz", b"", ("0 bytes",)),
        ("A.ZIP", b"#!/bin/sh\nexit\n" + zipped(adapter().files), ("'#!/bin/sh", "A.ZIP")),
    ],
)
def test_files_that_are_only_called_archives(tmp_path: Path, name: str, data: bytes, words: tuple[str, ...]) -> None:
    refusal(Upload({name: data}).examine(tmp_path), Finding.ARCHIVE_CORRUPT, name, *words)


def test_names_that_are_no_utf8_can_be_asked_for(tmp_path: Path) -> None:
    """A question names the folders, and the answer comes back in the same letters."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        for folder in ("caf\xe9-1", "caf\xe9-2"):
            for name, data in adapter().files.items():
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    upload = Upload({"a.tar.gz": out.getvalue()})
    for part in ("asked", "answered"):
        (tmp_path / part).mkdir()
    question = decode_json(encode_json(upload.examine(tmp_path / "asked")), SandboxReply).report.question
    assert question is not None
    assert question.choices == [r"caf\xe9-1", r"caf\xe9-2"]
    upload.choice = question.choices[1]
    acceptance(upload.examine(tmp_path / "answered"), Finding.FILES_IGNORED)


def test_cut_archives(tmp_path: Path) -> None:
    upload = adapter()
    whole = [zipped(upload.files, method=0), tarred(upload.files), tarred(upload.files, mode="w")]
    for number, data in enumerate(whole):
        (tmp_path / str(number)).mkdir()
        reply = packed(upload, data[: len(data) // 2]).examine(tmp_path / str(number))
        refusal(reply, Finding.ARCHIVE_CORRUPT)


def test_wrong_checksum_in_a_zip(tmp_path: Path) -> None:
    upload = adapter()
    data = bytearray(zipped(upload.files, method=0))
    data[200] ^= 0xFF
    refusal(packed(upload, bytes(data)).examine(tmp_path), Finding.ARCHIVE_CORRUPT)


def test_an_upload_without_files(tmp_path: Path) -> None:
    refusal(Upload({}).examine(tmp_path), Finding.FILE_MISSING)
