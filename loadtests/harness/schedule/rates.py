"""The open loop's schedule: when each request of a stage arrives, drawn ahead from the seed.

A changing rate is a time change of a process of rate 1: the n-th arrival is due when the integral of the rate reaches
the process's n-th instant, so Poisson arrivals stay Poisson (Çinlar 1975, Introduction to Stochastic Processes, section
4.7) and other processes keep their burstiness (Gerhardt and Nelson 2009). The bursts of a profile are added, each with
an exact number of requests.

Every client process draws the same schedule and sends its share: arrival n belongs to process n modulo the number of
processes. So the arrivals are the same with one process or sixteen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, cycle, islice, repeat, takewhile
from random import Random

from enginebench.records.load import Burst, Rate, Segment
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.schedule.arrivals import Second, gaps


def parts(load: Rate, warm_up: Second, window: Second) -> Iterator[Segment | Burst]:
    """Yield segments, each with its seconds, and bursts, from the start of the stage, without end."""
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
    """Yield the seconds from the stage's start to each arrival, in order and without end."""
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
    if area <= 0:  # a gap of 0, which gamma has with a large cv; the rate may be 0 then
        return 0.0
    first, last, seconds = segment.first, segment.last, segment.seconds
    if first == last or seconds is None:
        return area / first
    slope = (last - first) / seconds
    return 2 * area / (first + math.sqrt(max(0.0, first * first + 2 * slope * area)))


def share_of(times: Iterator[Second], worker: int, workers: int) -> Iterator[tuple[int, Second]]:
    """Yield the arrivals that one of several processes sends, each with its number in the whole stage."""
    return islice(enumerate(times), worker, None, workers)


def missing_arrivals(
    after: Nanoseconds,
    share: tuple[int, int] | None,
    stages: Sequence[Stage],
    times: Callable[[Stage], Iterator[float]],
    now: Nanoseconds,
) -> int:
    """Count the arrivals of the share of a lost process that were due after its last one, at `after`, and before
    `now`."""
    missing = 0
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        if isinstance(stage.load, Rate) and share is not None:
            last = stage.steady_end if stage.plan.drains else stage.end
            end = min(now, following.start if following is not None else last or now)
            due = (stage.start + round(seconds * SECOND) for _, seconds in share_of(times(stage), *share))
            missing += sum(at > after for at in takewhile(lambda at, end=end: at < end, due))  # type: ignore[misc]
    return missing


def seconds_of_requests(load: Rate, warm_up: int, requests: int, seed: int, stage: int) -> tuple[Second, Second]:
    """Return the seconds of a warm-up and a window with exactly these numbers of arrivals, at a constant rate."""
    times = list(islice(arrival_times(load, 0.0, 0.0, seed, stage), warm_up + requests + 1))
    start = (times[warm_up - 1] + times[warm_up]) / 2 if warm_up else 0.0
    end = (times[-2] + times[-1]) / 2
    return start, end - start
