"""Streamed parts of one job's text, put together although its worker may die and another start it anew.

A job that runs again gives the same text, but perhaps cut into other parts: what is passed on is decided by the
place in the text and not by the part's number. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from wire.errors import Code, ShoalError
from wire.jobs import GenerateOutputs, Result

# A job is delivered a few times; more workers than that for one job are none of ours.
MAX_RUNS = 8


@dataclass(slots=True)
class _Run:
    """What one worker has told so far: characters and tokens up to part ``number``."""

    number: int = 0
    chars: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Parts:
    """Merges the parts of all runs. ``ready`` are those to pass on, each with new text only."""

    ready: deque[Result] = field(default_factory=deque)
    text: str = ""
    _tokens: int = 0
    _runs: dict[str, _Run] = field(default_factory=dict)

    def take(self, result: Result) -> None:
        """Take one result. Raises ``ShoalError``: the job's own error, or that the stream cannot go on."""
        if result.error is not None:
            error = result.error
            raise ShoalError(error.code, error.message, param=error.param, hint=error.hint)
        outputs = result.outputs
        if not isinstance(outputs, GenerateOutputs):
            raise _cannot_go_on(f"Worker {result.worker or '?'} answered with something else than text.")
        run = self._run(result)
        if run is None or result.number < run.number:
            return
        if result.number > run.number:
            # what is missing comes again when a connection was lost, and the rest after it
            if result.final:
                raise _cannot_go_on(f"Parts of the text were lost on the way, from number {run.number} on.")
            return
        run.number += 1
        self._merge(run, result, outputs)

    def _run(self, result: Result) -> _Run | None:
        run = self._runs.get(result.worker)
        # A worker may get the same job again: it starts at the beginning then.
        if run is None or result.number == 0:
            if run is None and len(self._runs) >= MAX_RUNS:
                return None
            run = self._runs[result.worker] = _Run()
        return run

    def _merge(self, run: _Run, result: Result, outputs: GenerateOutputs) -> None:
        known_chars, known_tokens = len(self.text) - run.chars, self._tokens - run.tokens
        run.chars += len(outputs.text)
        run.tokens += len(outputs.logprobs)
        if known_chars > 0:
            told = self.text[len(self.text) - known_chars :][: len(outputs.text)]
            if not outputs.text.startswith(told) or (result.final and len(outputs.text) < known_chars):
                raise _cannot_go_on("Its worker was lost, and the next one came to another text.")
        new = outputs.text[max(0, known_chars) :]
        if not new and known_chars > 0 and not result.final:
            return
        self.text += new
        self._tokens = max(self._tokens, run.tokens)
        if known_chars > 0 or known_tokens > 0:
            outputs = msgspec.structs.replace(outputs, text=new, logprobs=outputs.logprobs[max(0, known_tokens) :])
            result = msgspec.structs.replace(result, outputs=outputs)
        self.ready.append(result)


def _cannot_go_on(reason: str) -> ShoalError:
    return ShoalError(Code.INTERNAL, f"The stream cannot go on. {reason}", hint="Send the request again.")
