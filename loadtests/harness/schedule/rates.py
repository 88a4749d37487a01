"""The open loop's schedule: when each request of a stage arrives, drawn ahead from the seed.

A rate that changes is a time change of a process of rate 1: the n-th arrival comes where the integral of the rate
reaches the process's n-th instant, so Poisson arrivals stay Poisson (Çinlar 1975, Introduction to Stochastic Processes,
section 4.7) and other processes keep their burstiness (Gerhardt and Nelson 2009). A burst of the profile comes on top:
its number of requests is exact.

Every process of a run draws the same schedule and sends its share of it: arrival n belongs to process n modulo their
number. So one process makes the same arrivals as sixteen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, cycle, islice, repeat
from random import Random

from enginebench.records.load import Burst, Rate, Segment
from loadtests.harness.schedule.arrivals import Second, gaps


def parts(load: Rate, warm_up: Second, window: Second) -> Iterator[Segment | Burst]:
    """Yield segments, each with its seconds, and bursts, from the start of the stage on and without end."""
    match load.profile:
        case ():
            yield Segment(load.per_second, load.per_second, math.inf)
        case (Segment(first, last, None),):
            yield from (Segment(first, first, warm_up), Segment(first, last, window), Segment(last, last, math.inf))
        case _:
            yield from cycle(load.profile)


def most_arrivals(load: Rate, seconds: Second) -> float:
    """Return an upper limit on the mean number of arrivals within `seconds`."""
    rates = [rate for part in load.profile if isinstance(part, Segment) for rate in (part.first, part.last)]
    bursts = [part.requests for part in load.profile if isinstance(part, Burst)]
    return max(rates, default=load.per_second) * seconds + max(bursts, default=0)


def arrival_times(load: Rate, warm_up: Second, window: Second, seed: int, stage: int) -> Iterator[Second]:
    """Seconds from the stage's start to each arrival, in order and without end.

    They depend only on the arguments; each stage of a run has its own.
    """
    process = accumulate(gaps(load.arrivals, 1.0, Random(f"arrivals {seed}/{stage}")))
    due, begun, passed = next(process), 0.0, 0.0  # `passed` is the integral of the rate up to `begun`
    for part in parts(load, warm_up, window):
        if isinstance(part, Burst):
            yield from repeat(begun, part.requests)
            continue
        assert part.seconds is not None
        area = part.seconds * (part.first + part.last) / 2  # infinite if the segment is
        while due <= passed + area:
            yield begun + _reaches(due - passed, part)
            due = next(process)
        begun, passed = begun + part.seconds, passed + area


def _reaches(area: float, segment: Segment) -> Second:
    """Return the seconds after which the integral of a segment's rate is `area`."""
    if area <= 0:  # a gap of 0, as of gamma with a large cv, where the rate may be 0
        return 0.0
    first, last, seconds = segment.first, segment.last, segment.seconds
    if first == last or seconds is None:
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
