"""Replicas behind HAProxy, as the plan simulates them: the same law, the same arrivals' process, the same share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from enginebench.analysis.plan.fleet import FIRST_FUTURES, Fleet, Peak
from enginebench.analysis.plan.model import EngineModel
from enginebench.analysis.plan.requests import Lengths
from enginebench.analysis.plan.step_cost import Fit, StepCost
from enginebench.records.load import Rate
from enginebench.records.slo import parse_objectives
from validation.plan.planned_fleet import attained, fleet

BATCH = ("step=0.05", "step_per_running=0.01", "concurrency=4")  # 4 slots, 10 steps of 90 ms: 4.4 answers a second
ASKED = ("--prompt-tokens", "20", "--output-tokens", "10")
MODEL = EngineModel(Fit(StepCost(0.05, 0.01, 0.0, 0.0), 100, 1.0, 0.0, np.zeros(1)), slots=4)
LENGTHS = Lengths(np.full(1, 20.0), np.full(1, 10.0))
SLO = ("ttft_p50=0.3",)
RATE, SECONDS = 10.0, 15.0


def predicted(replicas: int) -> float:
    peak = Peak(Rate(RATE), LENGTHS, SECONDS)
    fleet = Fleet(MODEL, peak, parse_objectives(list(SLO)))
    return fleet.attainment(replicas, FIRST_FUTURES).share.median


@pytest.mark.alone
def test_a_fleet_attains_what_was_predicted(program: Callable[[str], str], tmp_path: Path) -> None:
    """150 requests at 10 a second: three replicas serve nearly all in time; two, which bear 8.9 a second, few. A busy
    machine makes all of them later: the margin is half the distance between the two."""
    haproxy = program("haproxy")
    promised, with_one_less = predicted(3), predicted(2)
    assert promised > 0.9
    assert with_one_less < 0.4
    with fleet(haproxy, 3, tmp_path, BATCH) as url:
        got, requests, failed = attained(url, tmp_path / "runs", ASKED, RATE, SECONDS, 3.0, SLO)
    assert failed == 0
    assert requests == pytest.approx(RATE * SECONDS, rel=0.3)
    assert got > (promised + with_one_less) / 2
