"""The schedule of an open loop: when its requests arrive."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from statistics import fmean, pvariance

import pytest

from enginebench.records.load import Rate
from loadtests.harness.schedule.load_grammar import parse_rates
from loadtests.harness.schedule.rates import arrival_times, seconds_of_requests, share_of


def varying(text: str, arrivals: str = "poisson") -> Rate:
    (step,) = parse_rates(text)
    load = step.with_arrivals(arrivals).load
    assert isinstance(load, Rate)
    return load


@pytest.mark.parametrize("text", ["0..10", "0x1+10x1"])
def test_gaps_of_zero_where_the_rate_is_zero(text: str) -> None:
    """Gamma gaps of a large cv round to 0: about every seventh of cv=20."""
    load = varying(text, "gamma:cv=20")
    for seed in range(20):
        times = list(islice(arrival_times(load, 1.0, 10.0, seed, 0), 5))
        assert len(times) == 5
        assert times[0] >= 0


def counts(times: list[float], width: float, windows: int) -> list[int]:
    found = [0] * windows
    for at in times:
        found[int(at / width)] += 1
    return found


def test_poisson_from_sixteen_workers() -> None:
    """The index of dispersion of counts over 4 000 windows of half a second at 8 requests a second."""
    windows, width, workers = 4000, 0.5, 16
    ends = windows * width

    def arrivals() -> Iterator[float]:
        return arrival_times(Rate(8.0), 0.0, 1.0, seed=3, stage=0)

    shares = [takewhile(lambda one: one[1] < ends, share_of(arrivals(), worker, workers)) for worker in range(workers)]
    union = sorted(one for share in shares for one in share)
    assert union == list(enumerate(takewhile(lambda at: at < ends, arrivals()))), "the same, to the nanosecond"
    found = counts([at for _, at in union], width, windows)
    assert pvariance(found) / fmean(found) == pytest.approx(1.0, abs=0.1)
    assert fmean(found) / width == pytest.approx(8.0, rel=0.03)


def test_every_stage_and_seed_has_arrivals_of_its_own() -> None:
    def first(seed: int, stage: int) -> list[float]:
        return list(islice(arrival_times(Rate(8.0), 0, 1, seed, stage), 50))

    assert first(1, 0) == first(1, 0)
    assert len({tuple(first(seed, stage)) for seed in (1, 2) for stage in (0, 1)}) == 4


def test_a_ramp_rises_over_the_window_and_stays_level_before_and_after() -> None:
    times = list(takewhile(lambda at: at < 60, arrival_times(varying("10..50"), 10.0, 40.0, 1, 0)))
    even = list(takewhile(lambda at: at < 60, arrival_times(varying("10..50", "constant"), 10.0, 40.0, 1, 0)))
    # ∫ rate: 100 over the warm-up, then 10 t + t²/2 for t seconds of the window, 1 200 in all, then 50 a second.
    for end, expected in ((10, 100), (20, 250), (30, 500), (50, 1300), (60, 1800)):
        assert sum(at < end for at in times) == pytest.approx(expected, abs=4 * expected**0.5)
        assert sum(at < end for at in even) == pytest.approx(expected, abs=1.01)


def test_a_ramp_to_nothing_ends() -> None:
    times = list(arrival_times(varying("20..0", "constant"), 0.0, 10.0, 0, 0))
    assert len(times) == pytest.approx(100, abs=1)
    assert times[-1] <= 10.0


def test_bursts_come_again_and_again_and_are_poisson_within() -> None:
    load = varying("20x5+2x25")
    times = list(takewhile(lambda at: at < 12_000, arrival_times(load, 0, 1, 1, 0)))
    burst = [at for at in times if at % 30 < 5]
    assert len(burst) == pytest.approx(400 * 100, rel=0.02)
    assert len(times) - len(burst) == pytest.approx(400 * 50, rel=0.03)
    found = counts([at // 30 * 5 + at % 30 for at in burst], 0.5, 4000)
    assert pvariance(found) / fmean(found) == pytest.approx(1.0, abs=0.1)


def test_on_and_off_sends_nothing_while_off() -> None:
    times = list(islice(arrival_times(varying("8x1+0x3"), 0, 1, 1, 0), 2000))
    assert all(at % 4 < 1 for at in times)


def test_three_bursts_of_50_on_top_of_a_constant_rate() -> None:
    load = varying("5x10+burst50", "constant")
    times = list(takewhile(lambda at: at < 35, arrival_times(load, 0, 35, 1, 0)))
    assert [times.count(at) for at in (10.0, 20.0, 30.0)] == [51, 51, 51]
    assert len(times) == 3 * 50 + 5 * 35 - 1, "the arrival that is due at 35 s is none"
    shares = [list(islice(share_of(arrival_times(load, 0, 35, 1, 0), worker, 2), 160)) for worker in (0, 1)]
    assert [sum(at == 10.0 for _, at in share) for share in shares] == [25, 26], "processes share a burst"


@pytest.mark.parametrize("warm_up", [0, 7])
def test_the_schedule_says_how_long_so_many_requests_take(warm_up: int) -> None:
    load = Rate(8.0)
    before, window = seconds_of_requests(load, warm_up, 100, seed=4, stage=1)
    times = list(islice(arrival_times(load, before, window, 4, 1), 200))
    assert sum(at < before for at in times) == warm_up
    assert sum(before <= at < before + window for at in times) == 100
