"""Parsers: JSON that must be an object, and multipart that keeps the folders of uploaded files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, cast

from django.conf import settings
from django.http.multipartparser import MultiPartParser as DjangoMultiPartParser
from django.http.multipartparser import MultiPartParserError
from django.utils.datastructures import MultiValueDict
from rest_framework.exceptions import ParseError
from rest_framework.parsers import DataAndFiles, JSONParser, MultiPartParser


class StrictJSONParser(JSONParser):
    """JSON whose top is an object."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            found = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError("The body is JSON nested too deeply to be read.") from None
        if not isinstance(found, dict):
            raise ParseError(f"The body is a JSON {type(found).__name__}, not an object.")
        return found


class _KeepsFolders(DjangoMultiPartParser):
    """Leaves ``folder/file`` in a part's file name; nothing on this side uses it as a path on disk. Shows the upload
    handlers the fields that came before a file, which is asked for its name first."""

    def sanitize_file_name(self, file_name: str) -> str | None:
        for handler in self._upload_handlers:  # type: ignore[attr-defined]
            if hasattr(handler, "fields"):
                handler.fields = self._post  # type: ignore[attr-defined]
        return file_name.replace("\\", "/") or None


class FolderMultiPartParser(MultiPartParser):
    """Multipart whose file names keep their folders."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> DataAndFiles[Any, Any]:
        request = (parser_context or {})["request"]
        meta = {**request.META, "CONTENT_TYPE": media_type}
        encoding = (parser_context or {}).get("encoding", settings.DEFAULT_CHARSET)
        try:
            data, files = _KeepsFolders(meta, cast("Any", stream), request.upload_handlers, encoding).parse()
        except MultiPartParserError as error:
            raise ParseError(f"The multipart body cannot be read: {error}") from error
        return DataAndFiles(data, MultiValueDict(files))
