"""The ruler: an engine that spends exactly the delays it is told, so that what measures can be held against the truth.

It computes nothing. Token k of an answer is due at a fixed instant, `ttft + k × tpot` after the request came (plus
jitter and stalls, drawn from a seed and the prompt, so that the same request always meets the same fate). Sleeps aim at
those instants, not at gaps, so lateness never adds up.

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
from dataclasses import asdict, dataclass, field

from engines.contract.base import Chunk, Engine, EngineError, EngineInfo, FinishReason, GenerateRequest

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "runs", "far", "away", "again")
VERSION = "1"
CONTEXT_LENGTH = 131_072
YIELD_EVERY = 32  # chunks without a delay, before other requests and a cancel get a turn


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """Durations in seconds."""

    ttft: float = field(default=0.0, metadata={"help": "seconds to the first token"})
    ttft_per_prompt_token: float = field(default=0.0, metadata={"help": "seconds added to ttft per prompt token"})
    tpot: float = field(default=0.0, metadata={"help": "seconds per token after the first"})
    jitter: float = field(default=0.0, metadata={"help": "each delay is stretched or shrunk by up to this share (0-1)"})
    stall_every: int = field(default=0, metadata={"help": "stall before every so many-th token (0: never)"})
    stall: float = field(default=0.0, metadata={"help": "seconds that a stall lasts"})
    tokens_per_chunk: int = field(default=1, metadata={"help": "tokens that come out together"})
    concurrency: int = field(default=256, metadata={"help": "requests that run at a time"})
    fail_rate: float = field(default=0.0, metadata={"help": "share of requests that fail (0-1)"})
    fail_after: int = field(default=0, metadata={"help": "tokens before a failing request fails"})
    crash_after: int | None = field(default=None, metadata={"help": "the process dies at this many-th request"})
    hang_after: int | None = field(default=None, metadata={"help": "the process hangs at this many-th request"})
    load_time: float = field(default=0.0, metadata={"help": "seconds to load"})
    seed: int = field(default=0, metadata={"help": "seed of jitter and failures"})

    def __post_init__(self) -> None:
        for name in ("ttft", "ttft_per_prompt_token", "tpot", "stall", "load_time"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"option `{name}` is a number of seconds, 0 or more.")
        for name in ("jitter", "fail_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"option `{name}` is a share between 0 and 1.")
        for name in ("tokens_per_chunk", "concurrency"):
            if getattr(self, name) < 1:
                raise ValueError(f"option `{name}` is 1 or more.")


class FakeEngine(Engine):
    Options = FakeOptions
    options: FakeOptions

    @classmethod
    def version_here(cls) -> str:
        return VERSION

    def load(self) -> EngineInfo:
        time.sleep(self.options.load_time)
        self._ordinal = itertools.count(1)
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
        options, clock = self.options, asyncio.get_running_loop()
        due = clock.time()
        self._misbehave(next(self._ordinal))
        fate = random.Random(zlib.crc32(repr((options.seed, request.seed, request.prompt_token_ids)).encode()))
        fails_at = options.fail_after if fate.random() < options.fail_rate else None
        due += self._delay(fate, options.ttft + options.ttft_per_prompt_token * len(request.prompt_token_ids))
        produced, held = 0, ""
        for ordinal in itertools.count(1):
            if fails_at is not None and produced >= fails_at:
                await self._until(clock, due)
                raise EngineError("the fake engine was told to fail this request.")
            tokens = min(options.tokens_per_chunk, request.max_tokens - produced)
            if options.stall_every and produced and produced % options.stall_every < tokens:
                due += options.stall
            words = itertools.islice(itertools.cycle(WORDS), produced % len(WORDS), produced % len(WORDS) + tokens)
            text, held, stopped = _until_stop(held + "".join(f" {word}" for word in words), request.stop)
            produced += tokens
            finish: FinishReason | None = "stop" if stopped else "length" if produced >= request.max_tokens else None
            await self._until(clock, due)
            if ordinal % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            yield Chunk(text + (held if finish == "length" else ""), tokens, finish)
            if finish:
                return
            due += self._delay(fate, options.tpot * options.tokens_per_chunk)

    def _delay(self, fate: random.Random, seconds: float) -> float:
        jitter = self.options.jitter
        return seconds * (1 + jitter * (2 * fate.random() - 1)) if jitter else seconds

    @staticmethod
    async def _until(clock: asyncio.AbstractEventLoop, due: float) -> None:
        if (left := due - clock.time()) > 0:
            await asyncio.sleep(left)

    def _misbehave(self, ordinal: int) -> None:
        if ordinal == self.options.crash_after:
            os._exit(70)
        if ordinal == self.options.hang_after:
            time.sleep(3600)  # on the event loop, on purpose: a hung engine answers nothing


def _until_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str, bool]:
    """Split text into what may be sent, what could still become a stop string, and whether one was met."""
    if not stops:
        return text, "", False
    cut = min((at for stop in stops if (at := text.find(stop)) >= 0), default=-1)
    if cut >= 0:
        return text[:cut], "", True
    longest = max(
        (size for stop in stops for size in range(1, min(len(stop), len(text)) + 1) if text.endswith(stop[:size])),
        default=0,
    )
    return text[: len(text) - longest], text[len(text) - longest :], False
