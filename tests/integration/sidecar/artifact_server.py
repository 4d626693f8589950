"""A control plane's artifact address that counts, delays, cuts and lies as told."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ArtifactServer:
    """Serves ``files``; per digest: ``status``, ``lies`` (wrong bytes so many times), ``cuts`` (half a body)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.gets: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.ranges: list[str] = []
        self.status: dict[str, int] = {}
        self.lies: Counter[str] = Counter()
        self.cuts: Counter[str] = Counter()
        self.encodings: dict[str, str] = {}
        self.delay_s = 0.0
        self.url = ""

    def add(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.files[digest] = data
        return digest

    def reply(self, handler: BaseHTTPRequestHandler) -> None:
        digest = handler.path.strip("/").rpartition("/")[2]
        self.gets[digest] += 1
        self.keys.add(handler.headers.get("Authorization", ""))
        time.sleep(self.delay_s)
        status = self.status.get(digest, 200 if digest in self.files else 404)
        if status != 200:
            handler.send_response(status)
            handler.send_header("Content-Length", "0")
            if status == 302:
                handler.send_header("Location", handler.path)
            handler.end_headers()
            return
        body, wanted = self.files[digest], handler.headers.get("Range")
        start = 0
        if wanted:
            self.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
        if self.lies[digest] > 0:
            self.lies[digest] -= 1
            body = b"x" * len(body)
        handler.send_response(206 if wanted else 200)
        handler.send_header("Content-Length", str(len(body) - start))
        if digest in self.encodings:
            handler.send_header("Content-Encoding", self.encodings[digest])
        handler.end_headers()
        part = body[start:]
        if self.cuts[digest] > 0:
            self.cuts[digest] -= 1
            part = part[: len(part) // 2]
        handler.wfile.write(part)
        if len(part) < len(body) - start:
            handler.close_connection = True


@contextmanager
def artifact_server() -> Iterator[ArtifactServer]:
    state = ArtifactServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.reply(self)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
