"""Artifacts in an object store, through django-storages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import SplitResult, parse_qsl

from django.core.exceptions import ImproperlyConfigured
from django.core.files import File
from django.core.files.storage import Storage

from loras.storage.port import MissingContent, is_intact


class RemoteStore:
    """Content as objects ``<sha256>`` of a Django storage. An object store shows an object when all of it arrived."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def put_file(self, path: Path, sha256: str) -> None:
        if not is_intact(self, sha256):
            # a storage that does not overwrite would keep the new content under another name
            self.storage.delete(sha256)
            with path.open("rb") as stream:
                self.storage.save(sha256, File(stream, name=sha256))
        path.unlink()

    def exists(self, sha256: str) -> bool:
        return bool(self.storage.exists(sha256))

    def open(self, sha256: str) -> BinaryIO:
        if not self.exists(sha256):
            raise MissingContent(sha256[:80])
        return cast("BinaryIO", self.storage.open(sha256, "rb"))

    def copy_to(self, sha256: str, destination: Path) -> None:
        with self.open(sha256) as source, destination.open("xb") as target:
            shutil.copyfileobj(source, target, 1024 * 1024)

    def delete(self, sha256: str) -> None:
        self.storage.delete(sha256)


def s3_store(url: SplitResult) -> RemoteStore:
    """The store of ``s3://bucket/prefix``; query parameters are options of ``storages.backends.s3.S3Storage``.

    Credentials come from the environment or the instance, as boto3 finds them.
    """
    try:
        from storages.backends.s3 import S3Storage
    except (ImportError, ImproperlyConfigured) as error:
        raise ImproperlyConfigured("SHOAL_STORAGE_URL names S3, which needs boto3: pip install 'shoal[s3]'") from error
    options = dict(parse_qsl(url.query))
    return RemoteStore(
        S3Storage(
            bucket_name=url.netloc, location=url.path.strip("/"), file_overwrite=True, querystring_auth=False, **options
        )
    )
