"""Typed client of the control plane's REST API and of the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
import msgspec

from client.config import Connection, find_connection
from client.errors import ApiError, Unreachable
from client.models import AdapterSummary, Embeddings, Me, VersionInfo, WorkerInfo
from client.uploading import Progress, multipart
from wire.names import parse_full_name

T = TypeVar("T")

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# each chunk has this long, not the whole upload
UPLOAD_TIMEOUT = httpx.Timeout(120.0, connect=5.0)


class Shoal:
    """One connection to Shoal; use it as a context manager or call :meth:`close`.

    >>> with Shoal() as shoal:
    ...     version = shoal.wait(shoal.push(Path("my-lora"), name="acme/support"))
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, connection: Connection | None = None
    ) -> None:
        self.connection = connection or find_connection(url, api_key)
        self._gateway_url = self.connection.gateway_url
        self._http = httpx.Client(timeout=TIMEOUT, headers={"Authorization": f"Bearer {self.connection.api_key}"})

    def __enter__(self) -> Shoal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    # registry

    def me(self) -> Me:
        """Team and scopes of the key in use."""
        return self._get("me/", Me)

    def push(
        self,
        path: Path,
        *,
        name: str,
        base_model: str | None = None,
        promote: bool = False,
        message: str = "",
        progress: Progress | None = None,
    ) -> VersionInfo:
        """Uploads a LoRA folder, archive or file as the next version of ``name``.

        Returns at once, in state ``validating``, or with the existing version when the same bytes are known.
        Raises ``ApiError`` when the name or the upload is refused, ``Unreachable``, ``ClientError`` for a bad path.
        """
        parse_full_name(name)
        fields = {"name": name, "message": message, "promote": "true" if promote else "false"}
        if base_model:
            fields["base_model"] = base_model
        body = multipart(path, fields, progress)
        response = self._request(
            "POST",
            self._api("adapters/"),
            content=body.stream(),
            headers=body.headers(),
            timeout=UPLOAD_TIMEOUT,
        )
        version = _decode(response, VersionInfo)
        return msgspec.structs.replace(version, known=response.status_code != httpx.codes.CREATED)

    def version(self, name: str, number: int) -> VersionInfo:
        """One version with its report."""
        return self._get(f"adapters/{name}/versions/{number}/", VersionInfo)

    def versions(self, name: str) -> list[VersionInfo]:
        """All versions of an adapter, newest first."""
        return list(self._pages(f"adapters/{name}/versions/", VersionInfo))

    def adapters(self) -> list[AdapterSummary]:
        """All adapters of the team."""
        return list(self._pages("adapters/", AdapterSummary))

    def wait(
        self,
        version: VersionInfo,
        *,
        timeout_s: float = 180.0,
        on_change: Callable[[VersionInfo], None] | None = None,
    ) -> VersionInfo:
        """Polls until validation has come to an end. Raises ``TimeoutError``."""
        limit = time.monotonic() + timeout_s
        pause_s = 0.1
        while not version.settled:
            if time.monotonic() > limit:
                raise TimeoutError(f"{version.address} is still {version.state} after {timeout_s:.0f} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, 2.0)
            seen = self.version(version.name, version.number)
            if on_change is not None and seen != version:
                on_change(seen)
            version = seen
        return version

    def promote(self, name: str, number: int, *, alias: str = "live", confirm: bool = False) -> AdapterSummary:
        """Moves an alias to a version; 409 (``ApiError``) when somebody moved it meanwhile."""
        adapter = self._get(f"adapters/{name}/", AdapterSummary)
        expect = adapter.aliases.get(alias)
        body = {"version": number, "expect": expect, "confirm": confirm}
        return self._send("PUT", self._api(f"adapters/{name}/aliases/{alias}/"), AdapterSummary, json=body)

    def rollback(self, name: str) -> AdapterSummary:
        """Moves ``live`` back to the last version that served."""
        return self._send("POST", self._api(f"adapters/{name}/rollback/"), AdapterSummary, json={})

    # fleet

    def workers(self) -> list[WorkerInfo]:
        """Every worker that was seen."""
        return list(self._pages("workers/", WorkerInfo))

    # inference

    @property
    def gateway_url(self) -> str:
        """Address of the gateway, asked from the control plane once."""
        if not self._gateway_url:
            self._gateway_url = self.me().gateway_url.rstrip("/")
        return self._gateway_url

    def embed(self, model: str, texts: list[str]) -> Embeddings:
        """Embeds ``texts`` with a base model or an adapter address (``team/adapter``, ``…:alias``, ``…@3``)."""
        started = time.perf_counter()
        response = self._request(
            "POST",
            f"{self.gateway_url}/v1/embeddings",
            json={"model": model, "input": texts, "encoding_format": "float"},
        )
        elapsed_ms = (time.perf_counter() - started) * 1000
        body = response.json()
        return Embeddings(
            vectors=[row["embedding"] for row in body["data"]],
            version=response.headers["x-shoal-version"],
            digest=response.headers["x-shoal-digest"],
            queue_ms=float(response.headers["x-shoal-queue-ms"]),
            batch_size=int(response.headers["x-shoal-batch-size"]),
            tokens=body["usage"]["total_tokens"],
            elapsed_ms=elapsed_ms,
        )

    # transport

    def _api(self, path: str) -> str:
        return f"{self.connection.url}/api/v1/{path}"

    def _get(self, path: str, kind: type[T]) -> T:
        return self._send("GET", self._api(path), kind)

    def _pages(self, path: str, kind: type[T]) -> Iterator[T]:
        url: str | None = self._api(path)
        while url:
            body = self._request("GET", url).json()
            rows, url = (body, None) if isinstance(body, list) else (body["results"], body.get("next"))
            yield from msgspec.convert(rows, list[kind])  # type: ignore[valid-type]

    def _send(self, method: str, url: str, kind: type[T], **arguments: Any) -> T:
        return _decode(self._request(method, url, **arguments), kind)

    def _request(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        try:
            response = self._http.request(method, url, **arguments)
        except httpx.TransportError as error:
            raise Unreachable(f"{url} cannot be reached: {error or type(error).__name__}") from error
        if response.is_error:
            raise _refusal(response)
        return response


def _decode(response: httpx.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise ApiError(
            status=response.status_code,
            code="unexpected_answer",
            message=f"{response.request.url} did not answer as Shoal does: {error}",
            hint="Is this the address of Shoal's web process?",
        ) from error


def _refusal(response: httpx.Response) -> ApiError:
    try:
        error = response.json()["error"]
        return ApiError(
            status=response.status_code, code=error["code"], message=error["message"], hint=error.get("hint")
        )
    except (ValueError, KeyError, TypeError):
        return ApiError(
            status=response.status_code,
            code=f"http_{response.status_code}",
            message=f"{response.request.url} answered {response.status_code} {response.reason_phrase}",
        )
