"""Content types of uploads that are read while they travel."""

from __future__ import annotations

# a chunk of a resumable upload, see https://tus.io/protocols/resumable-upload
CHUNK_TYPE = b"application/offset+octet-stream"
