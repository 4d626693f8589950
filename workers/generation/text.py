"""One text in the making: its tokens, what of it was sent, and when it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wire.jobs import GenerateOutputs, Sampling, TokenLogprob
from workers.generation.cache import Lease
from workers.generation.detokenize import Detokenizer
from workers.generation.sampling import Choice, Draw
from workers.generation.stops import StopStrings

STOP = "stop"
LENGTH = "length"

Decode = Callable[[list[int]], str]
Name = Callable[[int], str]


@dataclass(slots=True, eq=False)
class Text:
    """``computed`` tokens of ``prompt`` and ``made`` have keys and values in ``lease``; without one the text waits.

    ``limit`` is the most tokens to make, ``order`` counts the texts of a model as they join. ``decode`` gives text
    without special tokens, ``name`` one token as it is. ``fed``: a step computed some of it since it has its row.
    """

    key: str
    adapter: str | None
    prompt: list[int]
    sampling: Sampling
    limit: int
    seed: int
    end_tokens: frozenset[int]
    decode: Decode
    name: Name
    order: int = 0
    made: list[int] = field(default_factory=list)
    lease: Lease | None = None
    computed: int = 0
    cached: int = 0
    fed: bool = False
    finish_reason: str | None = None
    parts: int = 0
    prompt_ids: NDArray[np.int64] = field(init=False)
    _counts: Counter[int] = field(default_factory=Counter)
    _detokenizer: Detokenizer = field(init=False)
    _stops: StopStrings = field(init=False)
    _unsent: str = ""
    _logprobs: list[TokenLogprob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prompt_ids = np.asarray(self.prompt, dtype=np.int64)
        self._detokenizer = Detokenizer(self.decode, self.prompt)
        self._stops = StopStrings(self.sampling.stop)

    @property
    def length(self) -> int:
        """Tokens of prompt and text."""
        return len(self.prompt) + len(self.made)

    @property
    def missing(self) -> int:
        """Tokens without keys and values; one for a text that goes on, more for one that begins."""
        return self.length - self.computed

    def tokens(self, start: int, stop: int) -> list[int]:
        """Tokens ``start`` to ``stop`` of prompt and text."""
        border = len(self.prompt)
        if start >= border:
            return self.made[start - border : stop - border]
        return (self.prompt + self.made)[start:stop]

    @property
    def draw(self) -> Draw:
        """What the next token is chosen by."""
        return Draw(self.sampling, self.seed, len(self.made), self._counts)

    def take(self, choice: Choice) -> None:
        """Add the next token; sets ``finish_reason`` when it is the last."""
        self.made.append(choice.token)
        self._counts[choice.token] += 1
        if choice.logprob is not None:
            self._logprobs.append(self._describe(choice, choice.logprob))
        if choice.token in self.end_tokens and not self.sampling.ignore_eos:
            self._end(STOP)
            return
        piece, stopped = self._stops.feed(self._detokenizer.push(choice.token))
        self._unsent += piece
        if stopped:
            self.finish_reason = STOP
        elif len(self.made) >= self.limit:
            self._end(LENGTH)

    def take_part(self) -> GenerateOutputs | None:
        """What can be sent of a text that goes on. The same tokens give the same parts, whenever they are taken."""
        if not self._unsent:
            return None
        text, self._unsent = self._unsent, ""
        logprobs, self._logprobs = self._logprobs, []
        self.parts += 1
        return GenerateOutputs(text=text, logprobs=logprobs)

    def take_end(self) -> GenerateOutputs:
        """What was not sent yet of a text that ended, with the counts of all of it."""
        return GenerateOutputs(
            text=self._unsent,
            logprobs=self._logprobs,
            finish_reason=self.finish_reason,
            prompt_tokens=len(self.prompt),
            completion_tokens=len(self.made),
            cached_tokens=self.cached,
        )

    def _end(self, reason: str) -> None:
        piece, stopped = self._stops.feed(self._detokenizer.flush())
        self._unsent += piece if stopped else piece + self._stops.flush()
        self.finish_reason = STOP if stopped else reason

    def _describe(self, choice: Choice, logprob: float) -> TokenLogprob:
        return TokenLogprob(
            self.name(choice.token), logprob, [(self.name(token), value) for token, value in choice.top]
        )
