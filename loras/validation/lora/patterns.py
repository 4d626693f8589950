"""Regular expressions of a configuration, tried on the upload's own modules before anything depends on them."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from loras.validation.findings import clipped, failed
from loras.validation.lora.configuration import Configuration, layer_expression, pattern_expression
from loras.validation.lora.variant import Declared
from wire.reports import Finding, Row

_LIMIT_S = 1.0


class _TooSlow(Exception):
    pass


def check_patterns(found: Declared) -> list[Row]:
    """A pattern may take longer than the universe has (`(a*)*b`): then it is refused by its name, within a second."""
    modules = [pair.module for pair in found.sorted.pairs]
    for key, pattern, expression in _patterns(found.configuration):
        try:
            with _limited():
                for module in modules:
                    re.match(expression, module)
        except _TooSlow:
            what = f"adapter_config.json: {key} has {clipped(pattern)!r}, which takes more than {_LIMIT_S:g} s to "
            what += f"compare with {len(modules)} module names."
            todo = "Write the pattern without repetitions inside of repetitions, or name the modules."
            return [failed("Configuration", Finding.CONFIG_INVALID, what, todo)]
    return []


def _patterns(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    """Field, pattern, and the expression that is made of it."""
    for pattern in configuration.rank_pattern:
        yield "rank_pattern", pattern, pattern_expression(pattern)
    for pattern in configuration.alpha_pattern:
        yield "alpha_pattern", pattern, pattern_expression(pattern)
    for pattern in configuration.layers_pattern:
        yield "layers_pattern", pattern, layer_expression(pattern)


@contextmanager
def _limited() -> Iterator[None]:
    """Raises ``_TooSlow`` after the limit; only in a process's main thread, which is the one that checks an upload."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
