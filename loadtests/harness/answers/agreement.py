"""Whether two sets of greedy answers to the same prompts are the same, and where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import Literal


@dataclass(frozen=True, slots=True)
class Answer:
    """`tokens` and their natural logarithms of probability are `None` where the server does not send them."""

    text: str
    tokens: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        assert (self.tokens is None) == (self.logprobs is None)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Positions count from 1. `unit` is what they count: words where a side sends no tokens."""

    answers: int
    identical: int
    unit: Literal["token", "word"]
    earliest: int | None  # position of the first difference in the answer that differs first …
    typical: float | None  # … and the median over the answers that differ
    logprob_difference: float | None  # the largest, over the tokens before the first difference

    @property
    def share(self) -> float:
        return self.identical / self.answers


def agreement(reference: Mapping[str, Answer], answers: Iterable[tuple[str, Answer]]) -> Agreement:
    """`answers` with their prompts, each of which `reference` has; the same prompt may come several times."""
    pairs = [(reference[prompt], answer) for prompt, answer in answers]
    with_tokens = all(one.tokens is not None for pair in pairs for one in pair)
    differences: list[int] = []
    gaps: list[float] = []
    for expected, answer in pairs:
        first = _first_difference(_pieces(expected, with_tokens), _pieces(answer, with_tokens))
        if first is not None:
            differences.append(first)
        elif expected.text != answer.text:
            differences.append(len(_pieces(expected, with_tokens)) + 1)  # only white space differs
        if expected.logprobs is not None and answer.logprobs is not None:
            same = slice(None if first is None else first - 1)
            compared = zip(expected.logprobs[same], answer.logprobs[same], strict=True)
            gaps += [abs(one - other) for one, other in compared]
    return Agreement(
        answers=len(pairs),
        identical=len(pairs) - len(differences),
        unit="token" if with_tokens else "word",
        earliest=min(differences, default=None),
        typical=median(differences) if differences else None,
        logprob_difference=max(gaps, default=None) if with_tokens else None,
    )


def _pieces(answer: Answer, with_tokens: bool) -> tuple[str, ...]:
    return answer.tokens if with_tokens and answer.tokens is not None else tuple(answer.text.split())


def _first_difference(one: tuple[str, ...], other: tuple[str, ...]) -> int | None:
    pairs = enumerate(zip_longest(one, other), start=1)
    return next((position for position, (left, right) in pairs if left != right), None)
