"""The texts that one model makes at once: who joins, what each step computes, who yields when memory is short."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
import torch

from wire.errors import Code, ErrorInfo
from workers.generation.cache import KeyValueCache
from workers.generation.prefixes import LEAST_TOKENS, Prefixes, common_tokens
from workers.generation.sampling import choose_tokens
from workers.generation.step import Feed, lay_out
from workers.generation.text import Text
from workers.models.causal import CausalModel
from workers.models.loaded import LoadedModel
from workers.oom import is_out_of_memory

log = structlog.get_logger("worker.generation")
_LEAST_CHUNK = 32
_MOST_CHUNK = 1024
_NEWS = 0.3
"""Weight of the last step in the estimate of a token's seconds."""
_CALM_STEPS = 64
"""After memory was short less is computed at once; a little more is tried after so many steps without a shortage."""
NO_MEMORY = ErrorInfo(
    Code.OUT_OF_MEMORY,
    "The device has not enough memory for this text, even alone.",
    hint="Shorten the prompt, ask for fewer tokens, or raise SHOAL_GENERATION_BYTES.",
)


@dataclass(frozen=True, slots=True)
class StepBounds:
    """``texts`` at once; a step is to take about ``step_s``, which a long prompt is cut for; ``chunk_tokens`` of
    prompts in one step whatever that takes, when set."""

    texts: int = 64
    step_s: float = 0.2
    chunk_tokens: int | None = None


@dataclass(slots=True)
class StepOutcome:
    """What a step did: texts with a new token, texts that failed alone, tokens computed, and seconds of the device."""

    advanced: list[Text] = field(default_factory=list)
    failed: list[tuple[Text, ErrorInfo]] = field(default_factory=list)
    tokens: int = 0
    rows: int = 0
    seconds: float = 0.0


class Generator:
    """Belongs to the device's thread. ``free_memory`` gives back what can be spared elsewhere on the device;
    ``token_s`` is a first guess of what a token of a prompt takes.
    """

    def __init__(
        self,
        model: LoadedModel,
        kind: CausalModel,
        bounds: StepBounds,
        free_memory: Callable[[], None],
        *,
        token_s: float = 5e-4,
    ) -> None:
        self.model = model
        self.texts: list[Text] = []
        self._paused: list[Text] = []
        self._joined = 0
        self._most_texts = bounds.texts
        self._most_chunk = _MOST_CHUNK
        self._calm_steps = _CALM_STEPS
        self._kind = kind
        self._bounds = bounds
        self._free_memory = free_memory
        self._token_s = token_s

    @property
    def cache(self) -> KeyValueCache:
        return self._kind.cache

    @property
    def prefixes(self) -> Prefixes:
        return self._kind.prefixes

    @property
    def adapters(self) -> set[str]:
        """Adapters that must keep their slots."""
        return {text.adapter for text in (*self.texts, *self._paused) if text.adapter is not None}

    @property
    def all_texts(self) -> list[Text]:
        """Texts in the making, those that wait for memory included."""
        return [*self.texts, *self._paused]

    def join(self, text: Text) -> bool:
        """Let a text in, in order of calls; false while there is no room for its prompt and its first tokens."""
        if self._paused or len(self.texts) >= self._most_texts:
            return False
        self._joined += 1
        text.order = self._joined
        return self._start(text)

    def leave(self, text: Text, *, keep: bool = False) -> None:
        """Free a text's row at once; ``keep`` its keys and values for requests that begin alike."""
        if text.lease is not None:
            if keep:
                free = self.cache.limit_bytes - self.cache.size_bytes - self.prefixes.size_bytes
                self.prefixes.keep(text.adapter, text.tokens(0, text.computed), text.lease, free_bytes=free)
            self.cache.release(text.lease)
            text.lease = None
        if text in self.texts:
            self.texts.remove(text)
        if text in self._paused:
            self._paused.remove(text)

    def step(self) -> StepOutcome:
        """Compute one step: a token of every text that goes on, and a chunk of those that begin."""
        outcome = StepOutcome()
        while self._paused and len(self.texts) < self._most_texts and self._start(self._paused[0]):
            self._paused.pop(0)
        chosen = self._choose()
        while chosen:
            feeds = [self._feed(text, count) for text, count in chosen]
            start = time.perf_counter()
            try:
                logits, answers = self._forward(feeds)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                log.warning("out of memory", texts=len(chosen), tokens=chosen[-1][1], reason=str(error)[:200])
            else:
                outcome.seconds = time.perf_counter() - start
                self._settle(chosen, feeds, logits, answers, outcome)
                break
            # outside of the handler: the traceback would keep the failed pass's tensors alive
            if self._calm_steps < _CALM_STEPS:
                self._give_way(chosen, outcome)
            else:
                self._spare()
            self._calm_steps = 0
        return outcome

    def _start(self, text: Text) -> bool:
        lease = self.cache.lease(text.length + 1)
        if lease is None:
            return False
        text.lease = lease
        # the last token is always computed: its logits choose the next one
        text.computed = self.prefixes.restore(text.adapter, text.tokens(0, text.length - 1), lease)
        if not text.made:
            text.cached = text.computed
        insort(self.texts, text, key=_order)  # the youngest, who yields first, is the last
        return True

    def _choose(self) -> list[tuple[Text, int]]:
        """How many tokens of each text this step computes; room for them is made, the youngest yielding first."""
        going = [text for text in self.texts if text.missing == 1]
        left = min(self._most_chunk, self._bounds.chunk_tokens or self._chunk(len(going)))
        chosen = [(text, 1) for text in going]
        for text in self.texts:
            if text.missing > 1 and left > 0:
                self._borrow(text)
                count = min(left, text.missing)
                chosen.append((text, count))
                left -= count
        for text, count in chosen:
            while text.lease is not None and not self.cache.grow(text.lease, text.computed + count):
                self._pause(self.texts[-1])
        return [(text, count) for text, count in chosen if text.lease is not None]

    def _borrow(self, text: Text) -> None:
        """Before its first step, take over what a text that is made beside it computed of the same beginning."""
        if text.fed or text.lease is None:
            return
        most = text.length - 1
        shared, source = 0, None
        for other in self.texts:
            if other is not text and other.adapter == text.adapter and other.lease is not None:
                count = min(other.computed, most, common_tokens(other.prompt_ids, text.prompt_ids))
                if count > shared:
                    shared, source = count, other.lease
        if source is not None and shared >= text.computed + LEAST_TOKENS:
            source.slab.copy_row(source.row, text.lease.slab, text.lease.row, shared)
            text.lease.written = max(text.lease.written, shared)
            text.computed = shared
            if not text.made:
                text.cached = shared

    def _chunk(self, going: int) -> int:
        return max(_LEAST_CHUNK, int(self._bounds.step_s / self._token_s) - going)

    def _pause(self, text: Text) -> None:
        """Take a text's memory; its tokens stay, and it begins again with them before any other joins."""
        self.texts.remove(text)
        if text.lease is not None:
            self.cache.release(text.lease)
        text.lease, text.computed, text.fed = None, 0, False
        insort(self._paused, text, key=_order)

    def _feed(self, text: Text, count: int) -> Feed:
        if text.lease is None:
            raise RuntimeError(f"text {text.key} has no row")
        stop = text.computed + count
        text.fed = True
        text.lease.written = max(text.lease.written, stop)
        return Feed(text.lease, text.tokens(text.computed, stop), text.computed, text.adapter, stop == text.length)

    def _forward(self, feeds: Sequence[Feed]) -> tuple[torch.Tensor | None, list[int]]:
        layout = lay_out(feeds, self.model.adapters.plan, self._kind.device)
        with torch.inference_mode():
            return self._kind.run(layout, self.model.adapters), layout.answers

    def _spare(self) -> None:
        """First step when memory is short: what no text needs."""
        self.prefixes.clear()
        self.cache.trim()
        self._free_memory()

    def _give_way(self, chosen: list[tuple[Text, int]], outcome: StepOutcome) -> None:
        """Further steps: smaller parts of prompts, then fewer texts at once, then the end of one that is alone."""
        text, count = chosen.pop()
        if count > 1:
            self._most_chunk = count // 2
            chosen.append((text, count // 2))
        elif chosen:
            self._pause(text)
            self._most_texts = max(1, len(self.texts))
        else:
            self.leave(text)
            outcome.failed.append((text, NO_MEMORY))

    def _settle(
        self,
        chosen: Sequence[tuple[Text, int]],
        feeds: Sequence[Feed],
        logits: torch.Tensor | None,
        answers: Sequence[int],
        outcome: StepOutcome,
    ) -> None:
        self._calm_steps += 1
        if self._calm_steps % _CALM_STEPS == 0:
            self._most_texts = min(self._bounds.texts, self._most_texts + 1)
            self._most_chunk = min(_MOST_CHUNK, 2 * self._most_chunk)
        for text, count in chosen:
            text.computed += count
        outcome.tokens = sum(len(feed.tokens) for feed in feeds)
        outcome.rows = len(feeds)
        if outcome.tokens - len(feeds) >= _LEAST_CHUNK // 2:
            # texts that go on count in it: the bound is for the whole step
            self._token_s += _NEWS * (outcome.seconds / outcome.tokens - self._token_s)
        if logits is None:
            return
        texts = [chosen[number][0] for number in answers]
        for text, choice in zip(texts, choose_tokens(logits, [text.draw for text in texts]), strict=True):
            if choice is None:
                self.leave(text)
                outcome.failed.append((text, _nonfinite(text)))
            else:
                text.take(choice)
                outcome.advanced.append(text)


def _order(text: Text) -> int:
    return text.order


def _nonfinite(text: Text) -> ErrorInfo:
    who = f"adapter {text.adapter[:12]}" if text.adapter else "the model"
    return ErrorInfo(
        code=Code.NONFINITE_OUTPUT,
        message=f"The logits of {who} after {text.length} tokens have NaN or infinite numbers.",
        hint="Check the adapter's weights; its training may have diverged.",
    )
