"""The syntax of the loads of a run, one stage for each load: users (--stages) and requests per second (--rate).

10,20-40:10          10 users, then 20, 30 and 40 (from, to, step)
20x5m,60x60s,20x5m   20 users for 5 minutes, 60 for 60 s, 20 again for 5 minutes: each stage has its own length
2,4-8:2              2 requests a second, then 4, 6 and 8; `8x60s` lasts 60 s
2..20                a ramp: the rate of the warm-up is 2, and it rises to 20 over the window
20x5s+2x25s          a profile within one stage: 20 requests a second for 5 s, then 2 for 25 s, repeated
5x10s+burst50        5 requests a second for 10 s, then 50 at the same instant, repeated; 2..20x30s is a ramp of 30 s
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from enginebench.records.load import MAX_LOAD, Burst, Load, Rate, Segment, Users
from enginebench.settings.schema import UserMistake, whole_numbers
from enginebench.settings.units import in_seconds

USERS = "10,20,40, 10-100:10 (from, to, step), or 20x5m,60x1m (20 users for 5 minutes, then 60 for one)"
RATES = (
    "2,4,8, 1-20:1 (from, to, step), 8x60s,4x30s (8 for 60 s, then 4 for 30 s), 2..20 (a ramp), or parts of one stage "
    "that are repeated: 20x5s+2x25s (20 for 5 s, then 2 for 25 s), 5x10s+burst50 (5 for 10 s, then 50 requests at once)"
)
NUMBER = r"(\d+\.?\d*|\.\d+)"


@dataclass(frozen=True, slots=True)
class LoadStep:
    """The load of one stage; `seconds` if the stage has its own length, warm-up included."""

    load: Load
    seconds: float | None = None

    def with_arrivals(self, process: str) -> LoadStep:
        """Return the step with this arrival process, if it is a rate."""
        if isinstance(self.load, Users):
            return self
        return replace(self, load=msgspec.structs.replace(self.load, arrivals=process))

    def __str__(self) -> str:
        load = str(self.load) if isinstance(self.load, Rate) else f"{self.load.value:g}"
        return load if self.seconds is None else f"{load}x{self.seconds:g}"


def parse_users(text: str) -> tuple[LoadStep, ...]:
    """Read numbers of users. Raises `UserMistake`."""
    try:
        steps = tuple(_steps(text, _users))
    except ValueError:
        steps = ()
    if not steps:
        raise UserMistake(f"stages are numbers of users, such as {USERS}, not `{text}`.")
    return steps


def parse_rates(text: str) -> tuple[LoadStep, ...]:
    """Read rates, none from an empty text. Raises `UserMistake`."""
    try:
        return tuple(_steps(text, _rates))
    except ValueError:
        raise UserMistake(f"rates are requests per second above 0, such as {RATES}, not `{text}`.") from None


def write_steps(steps: Sequence[LoadStep]) -> str:
    return ",".join(map(str, steps))


def _steps(text: str, loads: Callable[[str], Iterable[Load]]) -> Iterator[LoadStep]:
    text = re.sub(r"(?<=x)[^,+]+", lambda length: in_seconds(length[0]), text.replace(" ", ""))
    for step in filter(None, text.split(",")):
        numbers, has_length, seconds = (step, "", "") if "+" in step else step.partition("x")
        for load in loads(numbers):
            yield LoadStep(load, _positive(float(seconds)) if has_length else None)


def _users(part: str) -> Iterator[Users]:
    for count in whole_numbers(part):
        _positive(count)
        yield Users(count)


def _rates(text: str) -> Iterator[Rate]:
    if "+" in text or ".." in text:
        load = Rate.changing(tuple(map(_part, text.split("+"))))
        _positive(load.per_second)
        yield load
    elif match := re.fullmatch(rf"{NUMBER}-{NUMBER}(?::{NUMBER})?", text):
        first, last, step = float(match[1]), float(match[2]), _positive(float(match[3] or match[1]))
        if last < first:
            raise ValueError(text)
        for index in range(math.floor((last - first) / step + 1e-9) + 1):
            yield Rate(_positive(round(first + index * step, 9)))
    else:
        yield Rate(_positive(float(text)))


def _part(text: str) -> Segment | Burst:
    """Read one part of a profile. Raises `ValueError`."""
    if match := re.fullmatch(r"burst(\d+)", text):
        return Burst(int(_positive(int(match[1]))))
    match = re.fullmatch(rf"{NUMBER}(?:\.\.{NUMBER})?(?:x{NUMBER})?", text)
    if match is None:
        raise ValueError(text)
    first, last, seconds = match.groups()
    return Segment(float(first), float(last or first), None if seconds is None else _positive(float(seconds)))


def _positive(number: float) -> float:
    if not 0 < number <= MAX_LOAD:
        raise ValueError(number)
    return number
