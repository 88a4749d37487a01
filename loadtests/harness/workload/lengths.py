"""Lengths of prompts and answers: a number of tokens, or a distribution."""

from __future__ import annotations

from random import Random

from enginebench.settings.schema import UserMistake, whole_numbers
from loadtests.harness.workload.distributions import FORMS, LENGTH_GRAMMAR, RandomNumber

MAX_TOKENS = 10_000_000  # per prompt or answer: the context of the longest models


class Lengths(RandomNumber):
    """A distribution of whole numbers of tokens, from 1 to `MAX_TOKENS`."""

    __slots__ = ()

    def draw(self, rng: Random) -> int:
        if self.kind == "uniform":
            return rng.randint(int(self.a), int(self.b))
        return max(1, round(min(self.sample(rng), MAX_TOKENS)))


def parse_lengths(text: str) -> Lengths:
    """Read a number of tokens or a distribution. Raises `UserMistake` with the grammar."""
    try:
        lengths = Lengths.parse(text)
        decimal = FORMS[lengths.kind].bounded and not (lengths.a.is_integer() and lengths.b.is_integer())
        if lengths.a < 1 or decimal or max(lengths.a, lengths.b) > MAX_TOKENS:
            raise ValueError
    except ValueError:
        raise UserMistake(f"a length in tokens is {LENGTH_GRAMMAR}, {MAX_TOKENS:,} at most, not `{text}`.") from None
    return lengths


def parse_several(text: str) -> tuple[Lengths, ...]:
    """Read several fixed lengths, such as `"10,50-200:50"`, or one distribution. Raises `UserMistake`."""
    try:
        numbers = whole_numbers(text)
    except ValueError:
        return (parse_lengths(text),)
    return tuple(parse_lengths(str(number)) for number in numbers) or (parse_lengths(text),)
