"""Tensors of a file written by ``torch.save``, read in place: the zip format since torch 1.6, and the older one."""

from __future__ import annotations

import errno
import math
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib.stride_tricks import as_strided

from loras.validation.archive.zipped import bounded
from loras.validation.findings import Refused, clipped, failed, noted
from loras.validation.weights.header import ITEM_BYTES, Header, Tensor
from loras.validation.weights.pickle_reader import (
    BoundedStream,
    UnreadablePickle,
    UnsafePickle,
    View,
    read_pickle,
)
from wire.reports import Finding, Row

CHECK = "Pickled weights"
_DIRECTORY_BYTES = 8 << 20
_ZIP_START = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<4s22x2H")
_MAX_COPIED_BYTES = 256 << 20
# torch.save before 1.6: this number, a version, facts of the machine, the value, the storages' keys, their numbers
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_NEXT_STEP = (
    "Save it again as safetensors where it was trained: PeftModel.from_pretrained(base, folder)"
    ".save_pretrained(out, safe_serialization=True), then upload that folder."
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the numbers of a storage lie in the file."""

    begin: int
    size_bytes: int


def read_torch_file(path: Path, name: str, work_dir: Path) -> Header:
    """The tensors of ``path``, which is called ``name`` in the upload; nothing in it is run.

    Those that do not lie in order are copied to a file below ``work_dir``. Raises ``Refused`` (PICKLE_UNSAFE naming
    the global, TRUNCATED, FORMAT_UNSUPPORTED).
    """
    _check_start(path, name)
    try:
        with path.open("rb") as file:
            table, places = _open_zip(file) if zipfile.is_zipfile(file) else _read_old(file)
        copies = work_dir / "strided"
        tensors = [_tensor(key, view, places, path, copies) for key, view in sorted(_views(table).items())]
    except UnsafePickle as unsafe:
        what = f"{clipped(name)} is a pickle that would call {clipped(unsafe.global_name)}; it was not run."
        raise Refused(failed(CHECK, Finding.PICKLE_UNSAFE, what, _NEXT_STEP)) from unsafe
    except (UnreadablePickle, struct.error) as error:
        what = f"{clipped(name)} holds no table of tensors as torch.save writes it: {clipped(str(error))}."
        raise Refused(failed(CHECK, Finding.FORMAT_UNSUPPORTED, what, _NEXT_STEP)) from error
    return Header(tuple(tensors), {}, path.stat().st_size)


def _check_start(path: Path, name: str) -> None:
    """Raises ``Refused`` for a file that is empty, cut, or of another format than its name says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(9)
    if not size or (start.startswith(_ZIP_START) and not zipfile.is_zipfile(path)):
        missing = ", and the directory at the end of what torch.save wrote is not there" if size else ""
        what = f"{clipped(name)} is cut off: it has {size:,} bytes{missing}."
        todo = "Upload the file again and compare its size with the original."
        raise Refused(failed(CHECK, Finding.TRUNCATED, what, todo))
    if start[8:] == b"{" and int.from_bytes(start[:8], "little") <= size:
        what = f"{clipped(name)} is a safetensors file by another name."
        todo = f"Rename it: {posixpath.splitext(posixpath.basename(name))[0]}.safetensors."
        raise Refused(failed(CHECK, Finding.FORMAT_UNSUPPORTED, what, todo))


def note_converted(name: str, tensors: int) -> Row:
    """That a pickle was read without being run."""
    what = f"{clipped(name)} is a pickle; its {tensors} tensors were read without running it, and kept as safetensors."
    return noted(CHECK, Finding.PICKLE_CONVERTED, what, "Nothing to do; saving as safetensors makes uploads quicker.")


def _open_zip(file: IO[bytes]) -> tuple[object, dict[str, _Place]]:
    """What ``_read_zip`` gives; whatever the library raises for a spoiled archive is ``UnreadablePickle``."""
    try:
        return _read_zip(file)
    except (UnreadablePickle, UnsafePickle, Refused):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, OverflowError, ValueError, RuntimeError) as error:
        raise UnreadablePickle(f"its zip archive cannot be read ({error})") from error
    except OSError as error:
        # a forged offset makes zipfile seek before the file; a failing disk is no fault of the upload
        if error.errno != errno.EINVAL:
            raise
        raise UnreadablePickle("an entry lies outside of the file") from error


def _read_zip(file: IO[bytes]) -> tuple[object, dict[str, _Place]]:
    file.seek(0, 2)
    file_bytes = file.tell()
    with zipfile.ZipFile(bounded(file, _DIRECTORY_BYTES)) as archive:
        pickles = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise UnreadablePickle(f"it has {len(pickles)} data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        if f"{root}byteorder" in archive.namelist() and _start_of(archive, f"{root}byteorder") != b"little":
            raise UnreadablePickle("its numbers are in big-endian order")
        with archive.open(pickles[0]) as stream:
            table = read_pickle(BoundedStream(stream))
        places = {}
        for member in archive.infolist():
            folder, _, key = member.filename.rpartition("/")
            if f"{folder}/" == f"{root}data/":
                if member.compress_type != zipfile.ZIP_STORED:
                    raise UnreadablePickle(f"{clipped(member.filename)} is compressed")
                places[key] = _Place(_data_offset(file, member, file_bytes), member.file_size)
    return table, places


def _start_of(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as stream:
        return stream.read(16).strip()


def _data_offset(file: IO[bytes], member: zipfile.ZipInfo, file_bytes: int) -> int:
    """Where a stored member's bytes begin: its local header has a length of its own."""
    if not 0 <= member.header_offset <= file_bytes - _LOCAL_HEADER.size:
        raise UnreadablePickle(f"{clipped(member.filename)} lies outside of the file")
    file.seek(member.header_offset)
    magic, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    begin = member.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    if magic != _ZIP_START or begin + member.file_size > file_bytes:
        raise UnreadablePickle(f"{clipped(member.filename)} lies outside of the file")
    return int(begin)


def _read_old(file: IO[bytes]) -> tuple[object, dict[str, _Place]]:
    file.seek(0, 2)
    file_bytes = file.tell()
    file.seek(0)
    stream = BoundedStream(file)
    if read_pickle(stream) != _OLD_MAGIC:
        raise UnreadablePickle("it was not written by torch.save")
    read_pickle(stream)
    read_pickle(stream)
    table = read_pickle(stream)
    keys = read_pickle(stream)
    item_bytes = {view.storage.key: ITEM_BYTES[view.storage.dtype] for view in _views(table).values()}
    places = {}
    for key in keys if isinstance(keys, list) else []:
        if not isinstance(key, str) or key not in item_bytes:
            raise UnreadablePickle("a storage belongs to no tensor")
        (elements,) = struct.unpack("<q", file.read(8))
        place = _Place(file.tell(), elements * item_bytes[key])
        if elements < 0 or place.begin + place.size_bytes > file_bytes:
            raise UnreadablePickle(f"the storage {clipped(key)!r} is cut off")
        places[key] = place
        file.seek(place.begin + place.size_bytes)
    return table, places


def _views(table: object) -> dict[str, View]:
    """Tensors by name; one level of ``state_dict`` or ``module`` around them is taken off."""
    if isinstance(table, dict):
        for wrapper in ("state_dict", "module", "model"):
            if isinstance(table.get(wrapper), dict):
                table = table[wrapper]
                break
    if not isinstance(table, dict) or not table:
        raise UnreadablePickle("its value is no table of tensors")
    odd = [key for key, value in table.items() if not isinstance(key, str) or not isinstance(value, View)]
    if odd:
        raise UnreadablePickle(f"{clipped(str(odd[0]))!r} is no tensor")
    return table


def _tensor(name: str, view: View, places: Mapping[str, _Place], path: Path, copies: Path) -> Tensor:
    place, item_bytes = places.get(view.storage.key), ITEM_BYTES[view.storage.dtype]
    elements = math.prod(view.shape)
    reach = view.offset + sum((size - 1) * step for size, step in zip(view.shape, view.stride, strict=True)) + 1
    if place is None or (elements and reach * item_bytes > place.size_bytes):
        raise UnreadablePickle(f"{clipped(name)!r} reaches beyond its numbers")
    if not elements or _is_dense(view):
        begin = place.begin + (view.offset * item_bytes if elements else 0)
        return Tensor(name, view.storage.dtype, view.shape, begin, begin + elements * item_bytes, path)
    return _copied(name, view, place, path, copies)


def _is_dense(view: View) -> bool:
    expected = 1
    for size, step in zip(reversed(view.shape), reversed(view.stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _copied(name: str, view: View, place: _Place, path: Path, copies: Path) -> Tensor:
    """A transposed or cut-out tensor, laid out in order in the file ``copies``."""
    item_bytes, elements = ITEM_BYTES[view.storage.dtype], math.prod(view.shape)
    # a view that repeats numbers could claim any size
    if place.size_bytes > _MAX_COPIED_BYTES or elements * item_bytes > place.size_bytes:
        raise UnreadablePickle(f"{clipped(name)!r} is a view of {elements} numbers over {place.size_bytes} bytes")
    with path.open("rb") as file:
        file.seek(place.begin)
        numbers = np.frombuffer(file.read(place.size_bytes), dtype=f"V{item_bytes}")
    strides = tuple(step * item_bytes for step in view.stride)
    with copies.open("ab") as out:
        begin = out.tell()
        out.write(np.ascontiguousarray(as_strided(numbers[view.offset :], view.shape, strides)).tobytes())
    return Tensor(name, view.storage.dtype, view.shape, begin, begin + elements * item_bytes, copies)
