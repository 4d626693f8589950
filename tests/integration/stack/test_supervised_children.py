"""Real children: start in order, come back when they die, stop in order, leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

from tests.integration.stack.conftest import SmallStack, eventually, is_running

PARTS = ("edge", "work", "transport")


def all_pids(stack: SmallStack) -> list[int]:
    return [pid for part in PARTS for life in stack.lives(part) for pid in life]


def test_a_killed_child_comes_back_and_takes_what_it_left_behind_with_it(small_stack: SmallStack) -> None:
    small_stack.start().wait_ready()
    main, escaped = small_stack.lives("work")[0]
    os.kill(main, signal.SIGKILL)
    eventually(lambda: len(small_stack.lives("work")) == 2, what="second life")
    eventually(lambda: not is_running(escaped), what="end of the child in another session")
    assert is_running(small_stack.lives("work")[1][0])
    assert len(small_stack.lives("edge")) == 1, "others are left alone"
    assert "was ended by SIGKILL (1 in a row); starts again in 0.5 s" in small_stack.text


def test_back_off_grows_while_a_child_keeps_dying_and_it_recovers(small_stack: SmallStack) -> None:
    small_stack.start().wait_ready()
    (small_stack.home.root / "work.crash").touch()
    os.kill(small_stack.lives("work")[0][0], signal.SIGKILL)
    eventually(lambda: "(3 in a row); starts again in 2.0 s" in small_stack.text, what="third death")
    assert "ended with status 3 (2 in a row); starts again in 1.0 s" in small_stack.text
    (small_stack.home.root / "work.crash").unlink()
    eventually(lambda: is_running(small_stack.lives("work")[-1][0]) and len(small_stack.lives("work")) == 4)


def test_a_killed_server_comes_back_on_its_port(small_stack: SmallStack) -> None:
    port = urlsplit(small_stack.start().wait_ready().nats).port
    assert port is not None
    (server,) = [pid for pid in small_stack.descendants() if b"nats-server" in cmdline(pid)]
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not is_running(server))
    eventually(lambda: answers(port), what="the restarted server")


def test_stop_goes_stage_by_stage_and_leaves_nothing(small_stack: SmallStack) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        small_stack.start().wait_ready()
        pids = [*all_pids(small_stack), *small_stack.descendants()]
        assert small_stack.end(number) == 0
        assert (small_stack.home.root / "stopped").read_text().split() == ["edge", "work", "transport"]
        assert not [pid for pid in pids if is_running(pid)]
        assert small_stack.descendants() == []
        assert not small_stack.home.endpoints_path.exists()
        (small_stack.home.root / "stopped").unlink()


def test_a_stubborn_child_is_killed_after_its_grace(small_stack: SmallStack) -> None:
    (small_stack.home.root / "work.stubborn").touch()
    small_stack.start().wait_ready()
    assert small_stack.end() == 0
    assert "did not stop within 1 s and was killed" in small_stack.text
    assert not [pid for pid in all_pids(small_stack) if is_running(pid)]


def test_second_interrupt_kills_at_once(small_stack: SmallStack) -> None:
    for part in PARTS:
        (small_stack.home.root / f"{part}.stubborn").touch()
    small_stack.start().wait_ready()
    small_stack.process.send_signal(signal.SIGINT)
    eventually(lambda: "SIGINT: stopping" in small_stack.text)
    assert small_stack.end(signal.SIGINT) == 0
    assert "killing what is left" in small_stack.text
    assert not [pid for pid in all_pids(small_stack) if is_running(pid)]


def test_killed_supervisor_leaves_no_orphans_and_the_home_is_free_again(small_stack: SmallStack) -> None:
    small_stack.start().wait_ready()
    (small_stack.home.root / "work.stubborn").touch()
    os.kill(small_stack.lives("work")[0][0], signal.SIGKILL)
    eventually(lambda: len(small_stack.lives("work")) == 2)
    pids = [*all_pids(small_stack), *small_stack.descendants()]
    assert small_stack.end(signal.SIGKILL) == -signal.SIGKILL
    # the next stack waits until the guard has cleaned up, the stubborn child included
    small_stack.start()
    eventually(lambda: len(small_stack.lives("edge")) == 2, what="the next stack")
    assert not [pid for pid in pids if is_running(pid)]
    small_stack.wait_ready()
    assert small_stack.end() == 0


def test_killed_supervisor_leaves_no_addresses(small_stack: SmallStack) -> None:
    small_stack.start().wait_ready()
    small_stack.end(signal.SIGKILL)
    eventually(lambda: not small_stack.home.endpoints_path.exists(), what="the guard's end")
    assert small_stack.descendants() == []


def test_second_up_is_refused_with_pid_and_addresses(small_stack: SmallStack) -> None:
    small_stack.start().wait_ready()
    second = subprocess.run(
        [sys.executable, "-m", "tests.integration.stack.small_stack", str(small_stack.home.root)],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert second.returncode == 1
    assert f"already running in {small_stack.home.root} (pid {small_stack.process.pid}; web http://web" in second.stderr
    assert small_stack.process.poll() is None
    assert len(small_stack.lives("edge")) == 1


def test_a_part_that_never_gets_ready_ends_the_boot_with_its_reason(small_stack: SmallStack) -> None:
    (small_stack.home.root / "edge.crash").touch()
    small_stack.start(SMALL_STACK_TIMEOUT_S="4")
    assert small_stack.process.wait(timeout=30) == 1
    assert "not ready after 4 s:" in small_stack.text
    assert "edge: ended with status 3" in small_stack.text
    assert "work: " not in small_stack.text.partition("not ready after")[2]
    assert small_stack.descendants() == []


def cmdline(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return connection.recv(5) == b"INFO "
    except OSError:
        return False
