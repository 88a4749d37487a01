"""What the project brief expects, as `studies/brief.toml` has it: the report shows it beside what was measured."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

BRIEF = Path(__file__).parent.parent / "brief.toml"


class Conditions(Struct, frozen=True, forbid_unknown_fields=True):
    """Under which the engines are expected to be so fast, one request at a time. Other ones are no test of it."""

    model: str
    format: str
    hardware: tuple[str, ...]


class ExpectedEngine(Struct, frozen=True, forbid_unknown_fields=True):
    """`seconds` of a short request, output tokens per second, and how many times as fast as the baseline."""

    seconds: float
    tokens_per_second: float
    speed_up: float
    speed_up_range: tuple[float, float] | None = None


class ExpectedPrefill(Struct, frozen=True, forbid_unknown_fields=True):
    """TTFT in seconds of one engine by prompt length, and averages over these."""

    engine: str
    model: str
    prompt_tokens: tuple[int, ...]
    ttft: tuple[float, ...]
    ttft_average: float
    ttft_p99_average: float
    memory_gb: float


class ExpectedKernels(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens per second of a model, whose name has one of `models` in it."""

    models: tuple[str, ...]
    prefill: float
    decode: float
    one_request: tuple[float, float]


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """`engines` are by the names of the registry."""

    baseline: str
    conditions: Conditions
    engines: Mapping[str, ExpectedEngine]
    prefill: ExpectedPrefill
    kernels: tuple[ExpectedKernels, ...]

    def kernels_of(self, model: str) -> ExpectedKernels | None:
        return next((each for each in self.kernels if any(part in model.lower() for part in each.models)), None)


class BriefLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """When a result is a success. `least` and `most` may be reached, `above` and `below` may not."""

    meaning: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    confidence: float | None = None
    test: str = ""
    effect_size: str = ""

    @property
    def value(self) -> float:
        return next(each for each in (self.least, self.most, self.above, self.below) if each is not None)

    def text(self, write: Callable[[float], str]) -> str:
        """`≥ 1.2×`; of what a comparison states, what that is."""
        if self.confidence is not None:
            return f"{write(self.confidence)} intervals, {self.test}, {self.effect_size}"
        symbols = {"≥": self.least, "≤": self.most, ">": self.above, "<": self.below}
        return ", ".join(f"{symbol} {write(limit)}" for symbol, limit in symbols.items() if limit is not None)

    def keeps(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


class Brief(Struct, frozen=True, forbid_unknown_fields=True):
    """`criteria` are by name: enginebench/studies/report/criteria.py has how each is judged."""

    source: str
    dated: date
    expected: Expected
    criteria: Mapping[str, BriefLimit]


@cache
def brief() -> Brief:
    return msgspec.convert(tomllib.loads(BRIEF.read_text(encoding="utf-8")), Brief)
