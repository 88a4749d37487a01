"""The open loop's schedule: when each request of a stage arrives, drawn ahead from the seed.

A rate that changes is a time change of a process of rate 1: the n-th arrival comes where the integral of the rate
reaches the process's n-th instant, so Poisson arrivals stay Poisson (Çinlar 1975, Introduction to Stochastic Processes,
section 4.7) and other processes keep their burstiness (Gerhardt and Nelson 2009).

Every process of a run draws the same schedule and sends its share of it: arrival n belongs to process n modulo their
number. So one process makes the same arrivals as sixteen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, cycle, islice
from random import Random

from enginebench.records.load import Rate
from loadtests.harness.schedule.arrivals import Second, gaps

Segment = tuple[Second, float, float]
"""Seconds, and the rate at their beginning and end, between which it changes linearly."""


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
