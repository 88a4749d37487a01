"""An engine with exactly the delays of its options: the known truth that every measurement is tested against.

It computes nothing. Token k of an answer is due at a fixed instant, `ttft + k × tpot` after the request arrived (plus
jitter and stalls, drawn from a seed and the prompt, so that a repeated request behaves the same). Waits aim at those
instants, not at gaps, so lateness does not accumulate. All requests share one timer of the event loop, because a
thousand sleeping tasks would cost several times as much CPU as the tokens.

With `step…`, all requests share one batch instead: engines/fake/batch.py.

    enginebench serve fake -o ttft=0.3 -o tpot=0.02
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache

from enginebench.settings.schema import setting
from engines.contract.base import Chunk, Engine, EngineInfo, FinishReason, GenerateRequest
from engines.contract.errors import EngineError
from engines.fake.batch import Batch
from engines.text.answer_text import StopStrings

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "runs", "far", "away", "again")
VERSION = "1"
CONTEXT_LENGTH = 131_072
GRAIN = 5e-7  # seconds per waiting request, between two wake-ups: with a thousand, up to 0.5 ms late
YIELD_EVERY = 32  # chunks without a delay, before other requests and a cancel are handled


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """Durations in seconds."""

    ttft: float = setting(0.0, "seconds to the first token", least=0)
    ttft_per_prompt_token: float = setting(0.0, "seconds added to ttft per prompt token", least=0)
    tpot: float = setting(0.0, "seconds per token after the first", least=0)
    tpot_per_running: float = setting(0.0, "seconds added to tpot for each other request that is running", least=0)
    step: float = setting(
        0.0, "seconds per step of one batch shared by all requests, instead of ttft and tpot", least=0
    )
    step_per_running: float = setting(0.0, "seconds added to a step for each request in it", least=0)
    step_per_prompt_token: float = setting(0.0, "seconds added to a step per prompt token that it prefills", least=0)
    jitter: float = setting(0.0, "maximum relative change of each delay, drawn at random", least=0, most=1)
    stall_every: int = setting(0, "stall before every n-th token (0: never)", least=0)
    stall: float = setting(0.0, "length of a stall in seconds", least=0)
    tokens_per_chunk: int = setting(1, "tokens per chunk", least=1)
    concurrency: int = setting(256, "requests that run at a time", least=1)
    fail_rate: float = setting(0.0, "share of requests that fail", least=0, most=1)
    fail_after: int = setting(0, "tokens before a failing request fails", least=0)
    crash_after: int | None = setting(None, "the process exits at the n-th request", least=1)
    hang_after: int | None = setting(None, "the process hangs at the n-th request", least=1)
    load_time: float = setting(0.0, "seconds to load", least=0)
    seed: int = setting(0, "seed of jitter and failures")


class DelayAlarm:
    """Wakes any number of tasks, each at its own instant, with one timer of the event loop.

    A wake-up of the process costs more CPU than a token, so instants that are close together share one: a request is
    late by at most `GRAIN` × the number of requests, and a single request never is.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._rang = 0.0

    @staticmethod
    def now() -> float:
        """Return seconds on the clock of the running event loop."""
        return asyncio.get_running_loop().time()

    def at(self, due: float) -> asyncio.Future[None] | None:
        """Return a future that is done at `due`; `None` if `due` has passed."""
        loop = asyncio.get_running_loop()
        if due <= loop.time():
            return None
        ring = loop.create_future()
        heapq.heappush(self._due, (due, next(self._order), ring))
        if self._due[0][2] is ring:
            self._set()
        return ring

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due:
            at = max(self._due[0][0], self._rang + GRAIN * len(self._due))
            self._timer = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        self._rang = now = self.now()
        while self._due and self._due[0][0] <= now:
            _, _, waiting = heapq.heappop(self._due)
            if not waiting.done():  # its request may have been cancelled
                waiting.set_result(None)
        self._timer = None
        self._set()


class FakeEngine(Engine):
    Options = FakeOptions
    options: FakeOptions
    name = "fake"
    features = ("seed", "stop", "ignore_eos", "min_tokens")

    @classmethod
    def version_here(cls) -> str:
        return VERSION

    def load(self) -> EngineInfo:
        time.sleep(self.options.load_time)
        self._ordinal = itertools.count(1)
        self._alarm = DelayAlarm()
        self._running = 0
        self._noise = random.Random(f"steps {self.options.seed}")
        self._batch = Batch(self._step_seconds, self.options.concurrency, self._alarm.now, self._alarm.at)
        return self.describe(VERSION, "none", "none", CONTEXT_LENGTH, self.options.concurrency)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        arrived = self._alarm.now()
        self._crash_or_hang(next(self._ordinal))
        self._running += 1
        member = None
        if self.options.step or self.options.step_per_running or self.options.step_per_prompt_token:
            steps = math.ceil(request.max_tokens / self.options.tokens_per_chunk)
            member = self._batch.join(len(request.prompt_token_ids), steps)
        try:
            for ordinal, (after, chunk) in enumerate(self._script(request), start=1):
                if member is not None:
                    await member.token()
                elif (ring := self._alarm.at(arrived + after)) is not None:
                    await ring
                elif ordinal % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
                if chunk is None:
                    raise EngineError("the fake engine was set to fail this request.")
                yield self.sent(chunk)
        finally:
            self._running -= 1
            if member is not None:
                self._batch.leave(member)

    def _step_seconds(self, running: int, prompt_tokens: int) -> float:
        options = self.options
        seconds = options.step + options.step_per_running * running + options.step_per_prompt_token * prompt_tokens
        return self._delay(self._noise, seconds)

    def sent(self, chunk: Chunk) -> Chunk:
        """Return the chunk to send; subclasses may change it."""
        return chunk

    def _script(self, request: GenerateRequest) -> Iterator[tuple[float, Chunk | None]]:
        """Yield each chunk after its due time, in seconds since the request's arrival; `None` if the request fails.

        Each entry is computed when the previous one is over, as the delay may depend on what else is running then.
        """
        options = self.options
        # Python's hash of integers is the same in every process, and fast for prompts of 100 000 tokens.
        own_seed = -1 if request.seed is None else request.seed
        fate = random.Random(hash((options.seed, own_seed, request.prompt_token_ids)))
        fails_at = options.fail_after if fate.random() < options.fail_rate else None
        due = self._delay(fate, options.ttft + options.ttft_per_prompt_token * len(request.prompt_token_ids))
        produced, stops = 0, StopStrings(request.stop)
        while True:
            if fails_at is not None and produced >= fails_at:
                yield due, None
                return
            tokens = min(options.tokens_per_chunk, request.max_tokens - produced)
            if options.stall_every and produced and produced % options.stall_every < tokens:
                due += options.stall
            chunk = _words(produced % len(WORDS), tokens)
            produced += tokens
            text = chunk.text
            finish: FinishReason | None = "length" if produced >= request.max_tokens else None
            if request.stop and produced > request.min_tokens:
                text, finish = stops.step(text, finish)
            if text != chunk.text or finish is not None:
                chunk = Chunk(text, tokens, finish)
            yield due, chunk
            if chunk.finish_reason is not None:
                return
            tpot = options.tpot + options.tpot_per_running * (self._running - 1)
            due += self._delay(fate, tpot * options.tokens_per_chunk)

    def _delay(self, fate: random.Random, seconds: float) -> float:
        jitter = self.options.jitter
        return seconds * (1 + jitter * (2 * fate.random() - 1)) if jitter else seconds

    def _crash_or_hang(self, ordinal: int) -> None:
        if ordinal == self.options.crash_after:
            os._exit(70)
        if ordinal == self.options.hang_after:
            time.sleep(3600)  # blocks the event loop on purpose: a hung engine answers nothing


@cache
def _words(first: int, count: int) -> Chunk:
    """Return the words from the `first` one of `WORDS` on."""
    words = itertools.islice(itertools.cycle(WORDS), first, first + count)
    return Chunk("".join(f" {word}" for word in words), count)
