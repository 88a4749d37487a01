"""Distributions of lengths and pauses. A kind is a row of `FORMS`; the grammars show users some of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Self

from enginebench.settings.schema import UserMistake
from enginebench.settings.units import in_seconds

NUMBER = r"\d*\.?\d+"
MAX_RATIO = 10  # default limit on a draw ÷ `a`: a rare draw must not dominate a run
LENGTH_GRAMMAR = "64, uniform:16-128, normal:64,10 or lognormal:64,0.5 (median, sigma)"
PAUSE_GRAMMAR = "2s, uniform:500ms-3s, exponential:2s (mean) or lognormal:2s,0.5 (median, sigma)"


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of distribution: the form of its text, how to draw, and which parameters are valid. Draws are cut,
    unless the parameters keep them `bounded`. If `b_is_ratio`, scaling the distribution does not change `b`."""

    text: str
    draw: Callable[[Random, float, float], float]
    valid: Callable[[float, float], bool] = lambda a, b: True
    bounded: bool = False
    b_is_ratio: bool = False

    @property
    def pattern(self) -> str:
        most = "" if self.bounded else f"(?:,(?P<most>{NUMBER}))?"
        return self.text.format(a=f"(?P<a>{NUMBER})", b=f"(?P<b>{NUMBER})") + most


FORMS = {
    "fixed": Form("{a}", lambda rng, a, b: a, bounded=True),
    "uniform": Form("{a}-{b}", Random.uniform, lambda a, b: a <= b, bounded=True),
    "normal": Form("{a},{b}", Random.normalvariate),  # mean, standard deviation
    "exponential": Form("{a}", lambda rng, a, b: rng.expovariate(1 / a), lambda a, b: a > 0),  # mean
    "lognormal": Form(  # median, standard deviation of the logarithm
        "{a},{b}", lambda rng, a, b: rng.lognormvariate(math.log(a), b), lambda a, b: a > 0, b_is_ratio=True
    ),
}


@dataclass(frozen=True, slots=True)
class RandomNumber:
    """A distribution of a kind of `FORMS`. Draws are cut at `most`, by default ten times `a`."""

    kind: str
    a: float = 0.0
    b: float = 0.0
    most: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a distribution. Raises `ValueError` if the text is none."""
        name, colon, rest = text.replace(" ", "").rpartition(":")
        kind = name if colon else "fixed"
        match = re.fullmatch(FORMS[kind].pattern, rest) if kind in FORMS else None
        if match is None:
            raise ValueError
        parsed = cls(kind, **{field: float(number) for field, number in match.groupdict().items() if number})
        if not FORMS[kind].valid(parsed.a, parsed.b):
            raise ValueError
        return parsed

    def __str__(self) -> str:
        numbers = FORMS[self.kind].text.format(a=f"{self.a:.15g}", b=f"{self.b:.15g}")
        most = "" if self.most is None else f",{self.most:.15g}"
        return numbers if self.kind == "fixed" else f"{self.kind}:{numbers}{most}"

    def scaled(self, factor: float) -> Self:
        """Return the distribution of the numbers multiplied by `factor`."""
        b = self.b if FORMS[self.kind].b_is_ratio else self.b * factor
        return replace(self, a=self.a * factor, b=b, most=None if self.most is None else self.most * factor)

    def sample(self, rng: Random) -> float:
        form = FORMS[self.kind]
        value = form.draw(rng, self.a, self.b)
        if form.bounded:
            return value
        return max(0.0, min(value, MAX_RATIO * self.a if self.most is None else self.most))


class Pause(RandomNumber):
    """A distribution of seconds."""

    __slots__ = ()


def parse_pause(text: str) -> Pause:
    """Read seconds or a distribution of them. Raises `UserMistake` with the grammar."""
    try:
        return Pause.parse(in_seconds(text))
    except ValueError:
        raise UserMistake(f"a pause is {PAUSE_GRAMMAR}, not `{text}`.") from None
