"""An engine with exactly the delays of its options: the known truth that every measurement is tested against.

It computes nothing. Token k of an answer is due at a fixed instant, `ttft + k × tpot` after the request arrived (plus
jitter and stalls, drawn from a seed and the prompt, so that a repeated request behaves the same). Sleeps aim at those
instants, not at gaps, so lateness does not accumulate.

    enginebench serve --engine fake -o ttft=0.3 -o tpot=0.02
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

from engines.contract.base import Chunk, Engine, EngineError, EngineInfo, FinishReason, GenerateRequest
from engines.text.stop import StopStrings
from settings_schema import setting

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "runs", "far", "away", "again")
VERSION = "1"
CONTEXT_LENGTH = 131_072
YIELD_EVERY = 32  # chunks without a delay, before other requests and a cancel are handled


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """Durations in seconds."""

    ttft: float = setting(0.0, "seconds to the first token", least=0)
    ttft_per_prompt_token: float = setting(0.0, "seconds added to ttft per prompt token", least=0)
    tpot: float = setting(0.0, "seconds per token after the first", least=0)
    tpot_per_running: float = setting(0.0, "seconds added to tpot for each other request that is running", least=0)
    jitter: float = setting(0.0, "each delay is lengthened or shortened by up to this share", least=0, most=1)
    stall_every: int = setting(0, "stall before every n-th token (0: never)", least=0)
    stall: float = setting(0.0, "seconds that a stall lasts", least=0)
    tokens_per_chunk: int = setting(1, "tokens per chunk", least=1)
    concurrency: int = setting(256, "requests that run at a time", least=1)
    fail_rate: float = setting(0.0, "share of requests that fail", least=0, most=1)
    fail_after: int = setting(0, "tokens before a failing request fails", least=0)
    crash_after: int | None = setting(None, "the process ends at the n-th request", least=1)
    hang_after: int | None = setting(None, "the process hangs at the n-th request", least=1)
    load_time: float = setting(0.0, "seconds to load", least=0)
    seed: int = setting(0, "seed of jitter and failures")


class FakeEngine(Engine):
    Options = FakeOptions
    options: FakeOptions

    @classmethod
    def version_here(cls) -> str:
        return VERSION

    def load(self) -> EngineInfo:
        time.sleep(self.options.load_time)
        self._ordinal = itertools.count(1)
        self._running = 0
        return EngineInfo(
            name="fake",
            version=VERSION,
            language="python",
            model="fake" if self.model is None else self.model.name,
            dtype="none",
            device="none",
            batching="continuous",
            max_concurrency=self.options.concurrency,
            context_length=CONTEXT_LENGTH,
            features=("seed", "stop", "ignore_eos", "min_tokens"),
            options=asdict(self.options),
        )

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        self._running += 1
        try:
            async for chunk in self._chunks(request):
                yield chunk
        finally:
            self._running -= 1

    async def _chunks(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        options, clock = self.options, asyncio.get_running_loop()
        due = clock.time()
        self._crash_or_hang(next(self._ordinal))
        fate = random.Random(zlib.crc32(repr((options.seed, request.seed, request.prompt_token_ids)).encode()))
        fails_at = options.fail_after if fate.random() < options.fail_rate else None
        due += self._delay(fate, options.ttft + options.ttft_per_prompt_token * len(request.prompt_token_ids))
        produced, stops = 0, StopStrings(request.stop)
        for ordinal in itertools.count(1):
            if fails_at is not None and produced >= fails_at:
                await self._until(clock, due)
                raise EngineError("the fake engine was told to fail this request.")
            tokens = min(options.tokens_per_chunk, request.max_tokens - produced)
            if options.stall_every and produced and produced % options.stall_every < tokens:
                due += options.stall
            words = itertools.islice(itertools.cycle(WORDS), produced % len(WORDS), produced % len(WORDS) + tokens)
            text = stops.add("".join(f" {word}" for word in words))
            produced += tokens
            finish: FinishReason | None = "stop" if stops.met else "length" if produced >= request.max_tokens else None
            await self._until(clock, due)
            if ordinal % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            yield Chunk(text + (stops.rest() if finish == "length" else ""), tokens, finish)
            if finish:
                return
            tpot = options.tpot + options.tpot_per_running * (self._running - 1)
            due += self._delay(fate, tpot * options.tokens_per_chunk)

    def _delay(self, fate: random.Random, seconds: float) -> float:
        jitter = self.options.jitter
        return seconds * (1 + jitter * (2 * fate.random() - 1)) if jitter else seconds

    @staticmethod
    async def _until(clock: asyncio.AbstractEventLoop, due: float) -> None:
        if (left := due - clock.time()) > 0:
            await asyncio.sleep(left)

    def _crash_or_hang(self, ordinal: int) -> None:
        if ordinal == self.options.crash_after:
            os._exit(70)
        if ordinal == self.options.hang_after:
            time.sleep(3600)  # blocks the event loop on purpose: a hung engine answers nothing
