"""Replicas behind a load balancer."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.plan.arrivals import gamma_arrivals
from analysis.plan.balancing import serve_fleet
from analysis.plan.model import EngineModel
from analysis.plan.replica import serve_arrivals
from analysis.plan.settings import Balancer
from analysis.plan.step_cost import StepCost
from analysis.plan.work import Lengths

MODEL = EngineModel(StepCost(0.02, 0.001, 0.0002, 0.0, 0.02), slots=8)


TOKENS = np.random.default_rng(5).integers(5, 150, (2, 5000)).astype(float)
LENGTHS = Lengths(TOKENS[0], TOKENS[0], TOKENS[1])


def mean_ttft(balancer: Balancer, replicas: int, rate: float, simulated: int | None = None) -> float:
    rng = np.random.default_rng(1)
    served = serve_fleet(MODEL, rate, 400.0, LENGTHS, replicas, balancer, rng, simulated)
    return float((served.first - served.sched).mean())


@pytest.mark.parametrize("balancer", ["round_robin", "least_requests", "random"])
def test_one_replica_needs_no_balancer(balancer: Balancer) -> None:
    rng = np.random.default_rng(2)
    arrivals = gamma_arrivals(0.5, 1.0, 400.0, rng)
    alone = serve_arrivals(MODEL, arrivals, LENGTHS.drawn(len(arrivals), rng), rng)
    assert mean_ttft(balancer, 1, 0.5) == pytest.approx(float((alone.first - alone.sched).mean()), rel=0.05)


def test_least_requests_waits_less_than_round_robin_and_that_less_than_chance() -> None:
    least, turns, chance = (mean_ttft(name, 6, 20.0) for name in ("least_requests", "round_robin", "random"))
    assert least < 0.8 * turns < 0.8 * chance


def test_some_replicas_stand_for_all_of_them() -> None:
    assert mean_ttft("round_robin", 12, 30.0, 6) == pytest.approx(mean_ttft("round_robin", 12, 30.0), rel=0.1)


@pytest.mark.parametrize(
    ("cv", "dispersion"),
    [pytest.param(1.0, 1.0, id="poisson"), pytest.param(2.0, 4.0, id="bursts"), pytest.param(0.0, 0.0, id="constant")],
)
def test_arrivals_have_their_rate_and_their_burstiness(cv: float, dispersion: float) -> None:
    """The index of dispersion of counts tends to the squared coefficient of variation of the gaps."""
    times = gamma_arrivals(10.0, cv, 20_000.0, np.random.default_rng(0))
    counts = np.bincount((times / 20).astype(int))
    assert len(times) / 20_000 == pytest.approx(10, rel=0.02)
    assert counts[:-1].var() / counts[:-1].mean() == pytest.approx(dispersion, abs=0.15 + 0.1 * dispersion)
