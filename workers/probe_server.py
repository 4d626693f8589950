"""The warm probe server: base models are loaded once, each request runs in its own limited, forked child.

The parent never runs an adapter's numbers and never has a second thread, so forking is safe and a bad adapter ends
no process but its own. Protocol: 4-byte big-endian length, then JSON, once in each direction.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import structlog

from confinement.limits import ProcessLimits
from wire.codec import WireDecodeError, decode_json, encode_json
from wire.errors import ShoalError
from wire.validation import ProbeEnding, ProbeReply, ProbeRequest
from workers.probe_rows import failure
from workers.probe_run import ProbeBase, load_base, probe

_LENGTH_BYTES = 4
_MAX_REQUEST_BYTES = 1 << 20
_MAX_BASES = 4
_CLIENT_TIMEOUT_S = 5.0
_TICK_S = 0.25

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Child:
    connection: socket.socket
    digest: str
    deadline: float
    timed_out: bool = False


class ProbeServer:
    """Owns the socket, the loaded base models, and the children that run."""

    def __init__(self, path: Path, *, limits: ProcessLimits, timeout_s: float, children: int) -> None:
        self._path = path
        self._limits = limits
        self._timeout_s = timeout_s
        self._most_children = children
        self._bases: OrderedDict[tuple[str, str], ProbeBase] = OrderedDict()
        self._children: dict[int, _Child] = {}
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(path)
        self._wake, self._waker = socket.socketpair()

    def preload(self, source: str) -> None:
        """Load a base model before the first request for it; one that cannot be loaded stops no other."""
        try:
            base = load_base(source, source, "")
        except ShoalError:
            log.exception("base model cannot be preloaded", source=source)
            return
        self._keep((source, base.served.record.digest), base)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; children that run are killed then."""
        self._install_signals()
        self._selector.register(self._wake, selectors.EVENT_READ)
        log.info("probe server ready", socket=str(self._path), bases=len(self._bases), pid=os.getpid())
        try:
            while not self._stopping:
                self._listen_while_room()
                for key, _ in self._selector.select(self._patience_s()):
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._wake.recv(4096)
                self._reap()
                self._kill_late()
        finally:
            self._close()

    def _listen_while_room(self) -> None:
        room = len(self._children) < self._most_children
        registered = self._listener.fileno() in self._selector.get_map()
        if room and not registered:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif registered and not room:
            # requests wait in the listen queue
            self._selector.unregister(self._listener)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_CLIENT_TIMEOUT_S)
        try:
            request = decode_json(_receive(connection), ProbeRequest)
        except ConnectionAbortedError:
            connection.close()  # somebody looked whether the server answers
            return
        except (OSError, WireDecodeError) as error:
            log.warning("request dropped", reason=str(error))
            connection.close()
            return
        try:
            base = self._base(request)
        except ShoalError as error:
            log.exception("base model cannot be loaded", model=request.base_model)
            reason = f"base model {request.base_model}: {error}"
            _answer(connection, ProbeReply(rows=[failure("The base model cannot be loaded", reason)]))
            connection.close()
            return
        self._fork(connection, base, request)

    def _base(self, request: ProbeRequest) -> ProbeBase | None:
        if request.kind == "full":
            return None
        key = (request.base_source, request.base_digest)
        if key not in self._bases:
            self._keep(key, load_base(request.base_model, request.base_source, request.base_digest))
        self._bases.move_to_end(key)
        return self._bases[key]

    def _keep(self, key: tuple[str, str], base: ProbeBase) -> None:
        self._bases[key] = base
        while len(self._bases) > _MAX_BASES:
            self._bases.popitem(last=False)
        # children share these pages until someone writes to them; a collection would
        gc.collect()
        gc.freeze()
        log.info("base model loaded", source=key[0], digest=key[1][:12])

    def _fork(self, connection: socket.socket, base: ProbeBase | None, request: ProbeRequest) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._be_child(connection, base, request)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self._children[pid] = _Child(connection, request.digest, time.monotonic() + self._timeout_s)

    def _be_child(self, connection: socket.socket, base: ProbeBase | None, request: ProbeRequest) -> None:
        """Never returns."""
        code = 1
        try:
            os.setpgid(0, 0)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            self._listener.close()
            self._limits.apply()
            _answer(connection, probe(base, request))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for pid in list(self._children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if not found:
                continue
            child = self._children.pop(pid)
            _kill_group(pid)
            code = os.waitstatus_to_exitcode(status)
            if code != 0:
                ending = ProbeEnding.TIMED_OUT if child.timed_out or code == -signal.SIGXCPU else ProbeEnding.CRASHED
                log.error("probe without a verdict", adapter=child.digest, exit=code, ending=ending.value)
                _answer(child.connection, ProbeReply(rows=[], ending=ending))
            child.connection.close()

    def _patience_s(self) -> float:
        """Until the next child's time is over, or a tick."""
        running = [child.deadline for child in self._children.values() if not child.timed_out]
        return max(0.0, min([_TICK_S, *(deadline - time.monotonic() for deadline in running)]))

    def _kill_late(self) -> None:
        now = time.monotonic()
        for pid, child in self._children.items():
            if now > child.deadline and not child.timed_out:
                child.timed_out = True
                _kill_group(pid)

    def _install_signals(self) -> None:
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _close(self) -> None:
        for pid, child in self._children.items():
            _kill_group(pid)
            os.waitpid(pid, 0)
            child.connection.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)
        log.info("probe server stopped", socket=str(self._path))


def serve(path: Path, *, limits: ProcessLimits, timeout_s: float, children: int, preload: list[str]) -> None:
    """Run the probe server until it is told to stop."""
    server = ProbeServer(path, limits=limits, timeout_s=timeout_s, children=children)
    for source in preload:
        server.preload(source)
    server.run()


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(previous)
    listener.listen(64)
    return listener


def _receive(connection: socket.socket) -> bytes:
    length = int.from_bytes(_exactly(connection, _LENGTH_BYTES), "big")
    if length > _MAX_REQUEST_BYTES:
        raise OSError(f"a request of {length} bytes (limit {_MAX_REQUEST_BYTES})")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise OSError("the client closed the connection") if parts else ConnectionAbortedError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _answer(connection: socket.socket, reply: ProbeReply) -> None:
    body = encode_json(reply)
    with contextlib.suppress(OSError):
        connection.sendall(len(body).to_bytes(_LENGTH_BYTES, "big") + body)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
