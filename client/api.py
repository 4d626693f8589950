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
from client.models import AdapterSummary, Embeddings, Evaluation, Me, VersionInfo, WorkerInfo
from client.packing import collect
from client.resumable import ResumableTransfer
from client.uploading import MultipartBody, Progress
from client.wishes import NOTHING_SPECIAL, Wishes
from wire.names import parse_full_name

T = TypeVar("T")

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# while waiting for a verdict, a server that restarts is back by then
AWAY_S = 30.0
# below it one request is quicker, and little is lost with it
RESUMABLE_BYTES = 8 * 1024 * 1024
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
        wishes: Wishes = NOTHING_SPECIAL,
        evaluation: Path | None = None,
        progress: Progress | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> VersionInfo:
        """Uploads a folder, archive or file as the next version of ``name``; ``evaluation`` is JSONL to measure it on.

        Above ``RESUMABLE_BYTES`` it is sent in checked chunks: a cut line is waited for, and a push that was ended goes
        on where it stopped. Returns at once, in state ``validating``, or with the existing version when the same bytes
        are known. ``note`` gets a line where something unusual happens.
        Raises ``ApiError`` when the name or the upload is refused, ``Unreachable``, ``ClientError`` for a bad path.
        """
        parse_full_name(name)
        package = collect(path)
        rows = collect(evaluation).files[0] if evaluation is not None else None
        if package.size_bytes > RESUMABLE_BYTES:
            transfer = ResumableTransfer(
                self._send_part, self._api(""), name, wishes.fields(), progress=progress, note=note
            )
            response = transfer.send(package, rows)
        else:
            body = MultipartBody(package, {"name": name, **wishes.fields()}, progress=progress, evaluation=rows)
            response = self._request(
                "POST",
                self._api("adapters/"),
                content=body.stream(),
                headers=body.headers(),
                timeout=UPLOAD_TIMEOUT,
            )
        version = _decode(response, VersionInfo)
        return msgspec.structs.replace(version, known=response.status_code != httpx.codes.CREATED)

    def answer(self, version: VersionInfo, field: str, value: str) -> VersionInfo:
        """Answers the question of a version in ``needs_input``; it is validated again."""
        url = self._api(f"adapters/{version.name}/versions/{version.number}/answer/")
        return self._send("POST", url, VersionInfo, json={"field": field, "value": value})

    def evaluations(self, version: VersionInfo) -> list[Evaluation]:
        """What was measured of a version, newest first."""
        return list(self._pages(f"adapters/{version.name}/versions/{version.number}/evaluations/", Evaluation))

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
        """Polls until validation has come to an end; a server that restarts meanwhile is waited for. Raises
        ``TimeoutError``, or ``Unreachable`` when nothing answers for ``AWAY_S``."""
        limit = time.monotonic() + timeout_s
        heard = time.monotonic()
        pause_s = 0.1
        while not version.settled:
            if time.monotonic() > limit:
                raise TimeoutError(f"{version.address} is still {version.state} after {timeout_s:.0f} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, 2.0)
            try:
                seen = self.version(version.name, version.number)
            except Unreachable:
                if time.monotonic() - heard > AWAY_S:
                    raise
                continue
            heard = time.monotonic()
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
            response = self._request("GET", url)
            # pages, or a plain list
            body: Any = _decode(response, object)
            rows, url = (body, None) if isinstance(body, list) else (body["results"], body.get("next"))
            yield from msgspec.convert(rows, list[kind])  # type: ignore[valid-type]

    def _send_part(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        return self._request(method, url, timeout=UPLOAD_TIMEOUT, **arguments)

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
