"""A scripted gateway on loopback: what it answers is a table."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Gateway:
    """Answers by model: a table of vectors, labels or texts; anything else is a refusal with its status."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}
        self.keys: set[str] = set()
        self.refusals: list[int] = []

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.refusals:
            return self.refusals.pop(0), {"error": {"message": "Not yet.", "code": "invalid_api_key"}}
        table = self.models.get(body["model"])
        if not isinstance(table, dict):
            message = {"message": f"{body['model']} cannot {path}.", "code": "task_unsupported"}
            return 400, {"error": message}
        if path == "/v1/embeddings":
            rows = [{"index": at, "embedding": table[text]} for at, text in enumerate(body["input"])]
            return 200, {"data": rows[::-1]}
        if path == "/v1/classify":
            return 200, {"data": [{"index": at, "label": table[text]} for at, text in enumerate(body["input"])]}
        return 200, {"choices": [{"message": {"content": table[body["messages"][0]["content"]]}}]}


@contextlib.contextmanager
def running_gateway() -> Iterator[tuple[Gateway, str]]:
    """The script and its address."""
    script = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            script.keys.add(self.headers["authorization"])
            sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, body = script.answer(self.path, sent)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield script, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
