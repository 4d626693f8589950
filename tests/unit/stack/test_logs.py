"""One line per log line, whatever pieces a pipe hands over; a reader who stopped stalls nobody."""

from __future__ import annotations

import os
import time

from hypothesis import given
from hypothesis import strategies as st

from controlplane.stack.logs import MAX_LINE_BYTES, LinePrinter, LineSplitter

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1)


@given(st.lists(LINE), st.lists(st.integers(0, 400)))
def test_lines_do_not_depend_on_how_the_stream_is_cut(lines: list[str], cuts: list[int]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    splitter, got, start = LineSplitter(), [], 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        got += splitter.feed(data[start:cut])
        start = cut
    assert got + splitter.close() == lines


def test_last_words_without_newline_and_progress_bars() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"10%\r20%\r100%\n\n  \nlast") == ["100%"]
    assert splitter.close() == ["last"]
    assert splitter.close() == []


def test_a_line_without_end_is_cut_and_kept_bounded() -> None:
    splitter = LineSplitter()
    assert [len(line) for line in splitter.feed(b"x" * (2 * MAX_LINE_BYTES + 5))] == [MAX_LINE_BYTES] * 2
    assert splitter.close() == ["xxxxx"]


def test_bytes_that_are_no_text_are_shown_and_do_not_raise() -> None:
    assert LineSplitter().feed(b"\xff\xfe!\n") == ["\ufffd\ufffd!"]


def read_lines(printer: LinePrinter, fd: int) -> list[str]:
    printer.close()
    return os.read(fd, 1 << 20).decode().splitlines()


def test_prefix_has_one_width_and_no_colour_off_a_terminal() -> None:
    read_fd, write_fd = os.pipe()
    printer = LinePrinter(fd=write_fd, width=8)
    printer.line("web", "one")
    printer.line("validate", "two", loud=True)
    assert read_lines(printer, read_fd) == ["web      │ one", "validate │ two"]


def test_colour_on_a_terminal_is_one_per_part() -> None:
    read_fd, write_fd = os.pipe()
    printer = LinePrinter(fd=write_fd, width=3, colour=True)
    printer.line("web", "a")
    printer.line("bus", "b")
    printer.line("web", "c")
    first, second, third = read_lines(printer, read_fd)
    assert first.split("web")[0] == third.split("web")[0] != second.split("bus")[0]
    assert first.startswith("\x1b[")


def test_quiet_keeps_lines_back_until_they_explain_a_death() -> None:
    read_fd, write_fd = os.pipe()
    printer = LinePrinter(fd=write_fd, width=3, quiet=True)
    for number in range(40):
        printer.line("web", f"line {number}")
    printer.line("bus", "kept back")
    printer.recall("web")
    printer.line("web", "died", loud=True)
    lines = read_lines(printer, read_fd)
    assert lines[0] == "web │ line 10"
    assert lines[-2:] == ["web │ line 39", "web │ died"]
    assert not any("bus" in line for line in lines)


def test_a_reader_who_stopped_stalls_nobody_and_what_was_dropped_is_counted() -> None:
    read_fd, write_fd = os.pipe()
    printer = LinePrinter(fd=write_fd, width=3, max_lines=50)
    began = time.monotonic()
    for number in range(5000):
        printer.line("web", f"{number} " + "x" * 500)
    assert time.monotonic() - began < 5
    text = ""
    while "4 more" not in text:
        text += os.read(read_fd, 1 << 16).decode(errors="replace")
        printer.line("web", "4 more")
    assert "lines dropped: nobody read them" in text
    printer.close()


def test_a_reader_who_left_ends_nothing() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    printer = LinePrinter(fd=write_fd)
    printer.line("web", "into the void")
    printer.line("web", "again")
    printer.close()
