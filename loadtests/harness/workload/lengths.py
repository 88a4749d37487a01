"""How long prompts and answers are: a number of tokens, or a distribution to draw it from."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

GRAMMAR = "64, uniform:16-128, or lognormal:64,0.5 (median, sigma)"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Draws whole numbers of tokens, never less than 1.

    `fixed`: always `a`. `uniform`: `a` to `b`, both included. `lognormal`: median `a`, sigma `b` of the logarithm, cut
    at ten times the median, so that one draw in a million does not decide a run.
    """

    kind: Literal["fixed", "uniform", "lognormal"]
    a: float
    b: float = 0.0

    def __str__(self) -> str:
        match self.kind:
            case "fixed":
                return f"{self.a:g}"
            case "uniform":
                return f"uniform:{self.a:g}-{self.b:g}"
            case "lognormal":
                return f"lognormal:{self.a:g},{self.b:g}"

    def draw(self, rng: Random) -> int:
        match self.kind:
            case "fixed":
                return int(self.a)
            case "uniform":
                return rng.randint(int(self.a), int(self.b))
            case "lognormal":
                return max(1, round(min(rng.lognormvariate(math.log(self.a), self.b), 10 * self.a)))


def parse_lengths(text: str) -> Lengths:
    """Raises `ValueError` with a sentence that shows the grammar."""
    given = text.replace(" ", "")
    if match := re.fullmatch(r"(?:fixed:)?(\d+)", given):
        lengths = Lengths("fixed", int(match[1]))
    elif match := re.fullmatch(r"uniform:(\d+)-(\d+)", given):
        lengths = Lengths("uniform", int(match[1]), int(match[2]))
    elif match := re.fullmatch(r"lognormal:(\d+\.?\d*),(\d*\.?\d+)", given):
        lengths = Lengths("lognormal", float(match[1]), float(match[2]))
    else:
        raise ValueError(f"a length in tokens is {GRAMMAR}, not `{text}`.")
    if lengths.a < 1 or (lengths.kind == "uniform" and lengths.b < lengths.a):
        raise ValueError(f"a length in tokens starts at 1 and goes upwards: {GRAMMAR}, not `{text}`.")
    return lengths


def parse_several(text: str) -> tuple[Lengths, ...]:
    """`"10,50-200:50"` → five fixed lengths; anything else is one. Raises `ValueError` with a sentence."""
    try:
        numbers = whole_numbers(text)
    except ValueError:
        return (parse_lengths(text),)
    return tuple(parse_lengths(str(number)) for number in numbers) or (parse_lengths(text),)


def write_several(lengths: Sequence[Lengths]) -> str:
    return ",".join(map(str, lengths))


def whole_numbers(text: str) -> list[int]:
    """`"10,20-40:10"` → 10, 20, 30, 40: numbers, and ranges with both ends and a step. Raises `ValueError`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, rest = part.strip().partition("-")
        if dash:
            last, _, by = rest.partition(":")
            numbers += range(int(first), int(last) + 1, int(by or first))
        else:
            numbers.append(int(first))
    return numbers
