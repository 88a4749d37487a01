"""Distributions of numbers: fixed, uniform, normal, exponential, lognormal."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, Self

from enginebench.settings.schema import UserMistake
from enginebench.settings.units import in_seconds

NUMBER = r"(\d*\.?\d+)"
FORMS = {
    "fixed": re.compile(rf"(?:fixed:)?{NUMBER}"),
    "uniform": re.compile(rf"uniform:{NUMBER}-{NUMBER}"),
    "normal": re.compile(rf"normal:{NUMBER},{NUMBER}(?:,{NUMBER})?"),
    "exponential": re.compile(rf"exponential:{NUMBER}(?:,{NUMBER})?"),
    "lognormal": re.compile(rf"lognormal:{NUMBER},{NUMBER}(?:,{NUMBER})?"),
}
MAX_RATIO = 10  # of a draw to `a`, by default: a rare draw must not dominate a run


@dataclass(frozen=True, slots=True)
class RandomNumber:
    """`fixed`: always `a`. `uniform`: from `a` to `b`. `normal`: mean `a`, standard deviation `b`. `exponential`: mean
    `a`. `lognormal`: median `a`, standard deviation `b` of the logarithm. The last three are cut at `most`, by default
    ten times `a`.
    """

    kind: Literal["fixed", "uniform", "normal", "exponential", "lognormal"]
    a: float = 0.0
    b: float = 0.0
    most: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raise `ValueError` if the text is no distribution."""
        compact = text.replace(" ", "")
        for kind, form in FORMS.items():
            if match := form.fullmatch(compact):
                numbers = [None if group is None else float(group) for group in match.groups()]
                a, b, most = (*numbers, None, None)[:3]
                if kind == "exponential":
                    b, most = 0.0, b
                if kind == "uniform" and (b or 0.0) < (a or 0.0):
                    break
                return cls(kind, a or 0.0, b or 0.0, most)  # type: ignore[arg-type]
        raise ValueError

    def __str__(self) -> str:
        most = "" if self.most is None else f",{self.most:.15g}"
        match self.kind:
            case "fixed":
                return f"{self.a:.15g}"
            case "uniform":
                return f"uniform:{self.a:.15g}-{self.b:.15g}"
            case "exponential":
                return f"exponential:{self.a:.15g}{most}"
            case _:
                return f"{self.kind}:{self.a:.15g},{self.b:.15g}{most}"

    def scaled(self, factor: float) -> Self:
        """Return the distribution of the numbers multiplied by `factor`."""
        b = self.b if self.kind == "lognormal" else self.b * factor
        return replace(self, a=self.a * factor, b=b, most=None if self.most is None else self.most * factor)

    def sample(self, rng: Random) -> float:
        match self.kind:
            case "fixed":
                return self.a
            case "uniform":
                return rng.uniform(self.a, self.b)
            case "normal":
                value = rng.normalvariate(self.a, self.b)
            case "exponential":
                value = rng.expovariate(1 / self.a)
            case "lognormal":
                value = rng.lognormvariate(math.log(self.a), self.b)
        return max(0.0, min(value, MAX_RATIO * self.a if self.most is None else self.most))


class Pause(RandomNumber):
    """A distribution of seconds."""

    __slots__ = ()


PAUSE_GRAMMAR = "2s, uniform:500ms-3s, exponential:2s (mean) or lognormal:2s,0.5 (median, sigma)"


def parse_pause(text: str) -> Pause:
    """Raises `UserMistake` with the grammar."""
    try:
        pause = Pause.parse(in_seconds(text))
        if pause.kind in {"exponential", "lognormal"} and pause.a <= 0:
            raise ValueError
    except ValueError:
        raise UserMistake(f"a pause is {PAUSE_GRAMMAR}, not `{text}`.") from None
    return pause
