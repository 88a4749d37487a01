"""One turn of one case: its requests are sent together, and every chunk is stamped as it is read from the pipe.

All times are by this process's clock, from before the request is written to the engine's pipe to the read that brought
the tokens. They include the cost of the pipe, as when the engine is served. An engine's own time to the first token, if
reported (a GPU engine may take it from CUDA events), is a separate measure.

Prompts have an exact number of tokens and are all different, so that no prefix cache helps. They are text that the
tokenizer encodes as exactly their ids, because some engines take text and check it against the ids.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from enginebench.settings.schema import UserMistake
from engines.bench.settings import Case
from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import EngineError
from engines.process.stream import by_read
from engines.process.supervisor import ChildEngine
from engines.text.detokenize import tokenizer_of

WORDS = (
    *("time", "people", "way", "water", "day", "part", "place", "year", "work", "back", "name", "sentence", "man"),
    *("line", "land", "home", "hand", "high", "end", "house", "point", "world", "state", "story", "school", "night"),
    *("city", "tree", "food", "earth", "eye", "head", "page", "letter", "mother", "answer", "study", "light", "sun"),
)
MADE_UP_IDS = 1000  # for an engine without a model


class Prompts:
    """Prompts that are drawn from a seed, so that every engine of a round gets the same ones."""

    def __init__(self, model: Model | None, seed: str) -> None:
        self._random = Random(seed)
        self._tokenizer: Any = None
        if model is not None:
            self._tokenizer = tokenizer_of(model.folder)
            self._tokenizer.no_truncation()
            self._start = len(self._encode(""))
            self._words = [word for word in WORDS if len(self._encode(f" {word}")) == self._start + 1]
            if not self._words:
                raise UserMistake(f"the tokenizer of {model.name} has no single token for any of the words in prompts.")

    def draw(self, tokens: int) -> tuple[str, tuple[int, ...]]:
        """Return text and ids. Raises `UserMistake` if the tokenizer cannot make this length."""
        if self._tokenizer is None:
            return "", tuple(self._random.randrange(MADE_UP_IDS) for _ in range(tokens))
        words = self._random.choices(self._words, k=max(tokens - self._start, 0))
        text = "".join(f" {word}" for word in words)
        ids = self._encode(text)
        if len(ids) != tokens:
            raise UserMistake(f"this tokenizer makes {len(ids)} tokens of a prompt that should have {tokens}.")
        return text, ids

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text).ids)


Arrivals = Sequence[tuple[float, int]]
"""Seconds at which tokens arrived, and their number."""
Key = tuple[str, int | None]
"""The name of a metric, and the size of its case."""


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """An answer as this process read it. `first_token`: seconds until the first token by the engine's own clock."""

    sent: float
    arrivals: Arrivals
    first_token: float | None = None

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.arrivals)

    @property
    def to_first(self) -> float:
        return self.arrivals[0][0] - self.sent

    @property
    def to_last(self) -> float:
        return self.arrivals[-1][0] - self.sent

    @property
    def per_token(self) -> float | None:
        """Return seconds per token after the first chunk; `None` if the answer was one chunk."""
        later = self.tokens - self.arrivals[0][1]
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / later if later > 0 else None


async def take_turn(engine: ChildEngine, case: Case, prompts: Prompts) -> list[TimedAnswer]:
    """Send the requests of a case together. Raises `EngineError`, also for an answer that is too short."""
    requests = [
        GenerateRequest(text, ids, case.answer_tokens, ignore_eos=True)
        for text, ids in (prompts.draw(case.prompt_tokens) for _ in range(case.requests))
    ]
    answers = await asyncio.gather(*(_answer(engine, request) for request in requests), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        if answer.tokens != case.answer_tokens:
            raise EngineError(f"it gave {answer.tokens} tokens instead of {case.answer_tokens}")
    return [answer for answer in answers if isinstance(answer, TimedAnswer)]


async def _answer(engine: ChildEngine, request: GenerateRequest) -> TimedAnswer:
    sent = time.monotonic()
    stream = engine.generate(request)
    arrivals: list[tuple[float, int]] = []
    try:
        async for ready in stream:
            arrivals += [(read_at, sum(tokens)) for read_at, tokens in by_read(ready)]
    except BaseException:
        stream.cancel()
        raise
    if not arrivals:
        raise EngineError("it ended an answer without a token")
    return TimedAnswer(sent, arrivals, stream.usage.first_token if stream.usage is not None else None)


def values_of(case: Case, answers: Sequence[TimedAnswer]) -> Iterator[tuple[Key, float]]:
    """Yield the values of one turn: seconds, or tokens per second of a batch."""
    if case.kind == "batch":
        began, ended = min(answer.sent for answer in answers), max(answer.arrivals[-1][0] for answer in answers)
        yield ("batch", case.size), sum(answer.tokens for answer in answers) / (ended - began)
        rate = decode_rate([answer.arrivals for answer in answers])
        if rate is not None:
            yield ("batch decode", case.size), rate
        return
    (answer,) = answers
    if case.kind == "prefill":
        yield ("prefill", case.size), answer.to_first
        if answer.first_token is not None:
            yield ("prefill inside", case.size), answer.first_token
        return
    yield ("generate", case.size), answer.to_last
    if answer.per_token is not None:
        yield ("decode", None), answer.per_token


def decode_rate(arrivals: Sequence[Arrivals]) -> float | None:
    """Return tokens per second while all requests are being answered; `None` if there is no such time."""
    start = max(arrived[0][0] for arrived in arrivals)
    end = min(arrived[-1][0] for arrived in arrivals)
    if end <= start:
        return None
    return sum(tokens for arrived in arrivals for at, tokens in arrived if start < at <= end) / (end - start)
