"""How many independent requests a probe is worth, and what keeps a search from certifying too early."""

from __future__ import annotations

import math
from random import Random
from statistics import median

import pytest

from loadtests.harness.schedule.search.evidence import CERTAINTY, Evidence, Series, shares
from loadtests.harness.schedule.search.evidence import _uncertainty as uncertainty
from loadtests.harness.schedule.search.procedure import STAYS, Decision, Goal, Search


def probe_of(late: list[int], level: list[float], in_flight: int = 0) -> Evidence:
    """One request for each slice."""
    return Evidence([1] * len(late), [Series(late, level, [each**2 for each in level])], [in_flight] * len(late))


def autocorrelated(rng: Random, n: int, memory: float) -> list[float]:
    """An AR(1) series of variance 1 that forgets in `memory` requests: its τ is twice that."""
    rho, value, values = math.exp(-1 / memory), rng.gauss(0, 1), []
    for _ in range(n):
        value = rho * value + math.sqrt(1 - rho**2) * rng.gauss(0, 1)
        values.append(value)
    return values


@pytest.mark.parametrize(("count", "ratio"), [(10, 1.51), (20, 1.22), (40, 1.10)])
def test_few_batches_need_more_evidence(count: int, ratio: float) -> None:
    """Where Student's t reaches the logarithm of the likelihood ratio that certifies, recomputed by bisection."""
    freedom, low, high = count - 1, 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        reached = (freedom + 1) / 2 * math.log1p(2 * middle / freedom)
        low, high = (middle, high) if reached < CERTAINTY else (low, middle)
    assert uncertainty(count) == pytest.approx(low / CERTAINTY)
    assert uncertainty(count) == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize(("n", "memory"), [(2000, 100), (4000, 200), (20_000, 200)])
def test_correlation_longer_than_a_batch_is_seen(n: int, memory: float) -> None:
    """Forty batches are a half, a half and two and a half times as long as the memory."""
    rng = Random(4)
    found = []
    for _ in range(40):
        level = [1 + each / 10 for each in autocorrelated(rng, n, memory)]
        (share,) = shares(probe_of([0] * n, level))
        found.append(share.correlation / (2 * memory))
    assert 0.8 < median(found) < 2.0


def decided(n: int, seconds: float, late: float, in_flight: int = 0) -> Decision:
    """The first probe, at one request per second, of `n` requests in `seconds`, a share `late` of which was late."""
    rng = Random(5)
    search = Search(Goal((0.95,), start=1.0))
    missed = [int(rng.random() < late) for _ in range(n)]
    decision = search.look(probe_of(missed, [float(one) for one in missed], in_flight), seconds, last=True)
    assert decision is not None
    return decision


@pytest.mark.parametrize(
    ("seconds", "late", "verdict"),
    [
        pytest.param(1000, 0.0, "met", id="as many arrivals as planned, in time"),
        pytest.param(1100, 0.0, "undecided", id="a tenth fewer arrivals prove nothing of the planned rate"),
        pytest.param(900, 0.0, "met", id="more arrivals than planned prove more"),
        pytest.param(1000, 0.5, "missed", id="as many arrivals as planned, late"),
        pytest.param(900, 0.5, "undecided", id="a tenth more arrivals may be why they were late"),
        pytest.param(1100, 0.5, "missed", id="fewer arrivals than planned were already too many"),
    ],
)
def test_arrivals_that_miss_the_rate_certify_nothing(seconds: float, late: float, verdict: str) -> None:
    decision = decided(1000, seconds, late)
    assert decision.verdict == verdict
    assert (decision.reason == "the arrivals missed the rate") == (verdict == "undecided")


def test_a_probe_warms_up_for_three_stays() -> None:
    """Twelve requests in flight at one per second stay for twelve seconds (Little's law)."""
    search = Search(Goal((0.95,), start=1.0, warm_up=5.0))
    assert search.probe is not None
    assert search.probe.warm_up == 5.0
    search.look(probe_of([0] * 400, [0.1 + k % 7 / 100 for k in range(400)], in_flight=12), 400.0)
    assert search.decisions[0].stay == pytest.approx(12.0)
    assert search.probe.warm_up == pytest.approx(STAYS * 12.0)
