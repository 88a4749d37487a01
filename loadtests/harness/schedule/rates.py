"""The open loop's schedule: when each request of a stage arrives, drawn ahead from the seed.

    8            8 requests a second
    2..20        a ramp: the rate of the warm-up is 2, and it rises to 20 over the window
    20x5+2x25    a cycle: 20 requests a second for 5 s, then 2 for 25 s, repeated

A rate that changes is a time change of a process of rate 1: the n-th arrival comes where the integral of the rate
reaches the process's n-th instant, so Poisson arrivals stay Poisson (Çinlar 1975, Introduction to Stochastic Processes,
section 4.7) and other processes keep their burstiness (Gerhardt and Nelson 2009).

Every process of a run draws the same schedule and sends its share of it: arrival n belongs to process n modulo their
number. So one process makes the same arrivals as sixteen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, cycle, islice
from random import Random

from loadtests.harness.schedule.arrivals import Second, gaps
from records.load import Load, Rate
from settings.schema import UserMistake

GRAMMAR = "2,4,8, 1-20:1 (from, to, step), 2..20 (a ramp), or 20x5+2x25 (20 for 5 s, then 2 for 25 s, repeated)"
NUMBER = r"(\d+\.?\d*|\.\d+)"
Segment = tuple[Second, float, float]
"""Seconds, and the rate at their beginning and end, between which it changes linearly."""


def parse_rates(text: str) -> tuple[Rate, ...]:
    """`"2,4,8"` → a load for each stage; none for an empty text. Raises `UserMistake`."""
    try:
        return tuple(rate for part in filter(None, text.replace(" ", "").split(",")) for rate in _rates(part))
    except ValueError:
        raise UserMistake(f"rates are requests per second above 0, such as {GRAMMAR}, not `{text}`.") from None


def write_rates(rates: Sequence[Load]) -> str:
    return ",".join(load.profile if isinstance(load, Rate) and load.profile else f"{load.value:g}" for load in rates)


def parse_arrivals(text: str) -> str:
    """The name of an arrival process, checked. Raises `UserMistake` with the choices."""
    gaps(text, 1.0, Random(0))
    return text


def _rates(part: str) -> Iterator[Rate]:
    if match := re.fullmatch(rf"{NUMBER}\.\.{NUMBER}", part):
        yield Rate(_positive((float(match[1]) + float(match[2])) / 2), profile=part)
    elif "x" in part:
        if not re.fullmatch(rf"{NUMBER}x{NUMBER}(\+{NUMBER}x{NUMBER})*", part):
            raise ValueError(part)
        parts = Rate(0.0, profile=part).cycle
        whole = sum(_positive(seconds) for _, seconds in parts)
        yield Rate(_positive(sum(rate * seconds for rate, seconds in parts) / whole), profile=part)
    elif match := re.fullmatch(rf"{NUMBER}-{NUMBER}(?::{NUMBER})?", part):
        first, last, step = float(match[1]), float(match[2]), _positive(float(match[3] or match[1]))
        if last < first:
            raise ValueError(part)
        for index in range(math.floor((last - first) / step + 1e-9) + 1):
            yield Rate(_positive(round(first + index * step, 9)))
    else:
        yield Rate(_positive(float(part)))


def _positive(number: float) -> float:
    if not (math.isfinite(number) and number > 0):
        raise ValueError(number)
    return number


def segments(load: Rate, warm_up: Second, window: Second) -> Iterator[Segment]:
    """The rate from the start of the stage on; endless."""
    if ".." in load.profile:
        first, last = map(float, load.profile.split(".."))
        yield warm_up, first, first
        yield window, first, last
        yield math.inf, last, last
    elif load.profile:
        for rate, seconds in cycle(load.cycle):
            yield seconds, rate, rate
    else:
        yield math.inf, load.per_second, load.per_second


def peak_rate(load: Rate) -> float:
    """Requests per second at the highest point of the stage."""
    if load.cycle:
        return max(rate for rate, _ in load.cycle)
    return max(map(float, load.profile.split(".."))) if load.profile else load.per_second


def arrival_times(load: Rate, warm_up: Second, window: Second, seed: int, stage: int) -> Iterator[Second]:
    """Seconds from the stage's start to each arrival, in order and without end.

    They depend only on the arguments; each stage of a run has its own.
    """
    process = accumulate(gaps(load.arrivals, 1.0, Random(f"arrivals {seed}/{stage}")))
    due, begun, passed = next(process), 0.0, 0.0  # `passed` is the integral of the rate up to `begun`
    for seconds, first, last in segments(load, warm_up, window):
        area = seconds * (first + last) / 2  # endless where the segment is
        while due <= passed + area:
            yield begun + _reaches(due - passed, seconds, first, last)
            due = next(process)
        begun, passed = begun + seconds, passed + area


def _reaches(area: float, seconds: Second, first: float, last: float) -> Second:
    """Seconds after which the integral of a rate that changes linearly from `first` to `last` is `area`."""
    if area <= 0:  # a gap of 0, as of gamma with a large cv, where the rate may be 0
        return 0.0
    if first == last:
        return area / first
    slope = (last - first) / seconds
    return 2 * area / (first + math.sqrt(max(0.0, first * first + 2 * slope * area)))


def share_of(times: Iterator[Second], worker: int, workers: int) -> Iterator[tuple[int, Second]]:
    """The arrivals that one of several processes sends, each with its number in the whole stage."""
    return islice(enumerate(times), worker, None, workers)


def seconds_of_requests(load: Rate, warm_up: int, requests: int, seed: int, stage: int) -> tuple[Second, Second]:
    """How long a warm-up and a window last that hold exactly so many arrivals. The rate must be constant."""
    times = list(islice(arrival_times(load, 0.0, 0.0, seed, stage), warm_up + requests + 1))
    start = (times[warm_up - 1] + times[warm_up]) / 2 if warm_up else 0.0
    end = (times[-2] + times[-1]) / 2
    return start, end - start
