"""A day of traffic: reading it, following it, and the share of its requests that are served well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.plan.engine.model import EngineModel
from analysis.plan.engine.step_cost import StepCost
from analysis.plan.fleet.day import Day, attainment_over, autoscaled, plan_day, read_day
from analysis.plan.fleet.replicas import Fleet, Measured, Peak
from analysis.plan.simulation.work import Lengths
from records.load import Rate
from records.slo import parse_objectives

MODEL = EngineModel(StepCost(0.02, 0.001, 0.0, 0.0), slots=8)  # 8 slots, 20 steps of 28 ms: 14 answers a second
LENGTHS = Lengths(np.zeros(1), np.zeros(1), np.array([20.0]))


def fleet(rate: float) -> Fleet:
    return Fleet(MODEL, Peak(Rate(rate), LENGTHS, 60.0), parse_objectives(["ttft_p95=0.1"]), "round_robin")


def test_rates_over_time_are_read(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("seconds,rate\n0,2\n300,4.5\n600,1\n")
    day = read_day(tmp_path / "day.csv")
    assert day.step == 300
    assert day.rates.tolist() == [2, 4.5, 1]


def test_requests_are_counted_by_the_minute(tmp_path: Path) -> None:
    times = ("2026-11-01 10:00:00", "2026-11-01 10:00:30.5", "2026-11-01 10:01:10")
    (tmp_path / "day.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{t},9,9\n" for t in times)
    )
    assert (read_day(tmp_path / "day.csv").rates * 60).tolist() == pytest.approx([2, 1])


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "seconds,rate\n0,1\n1,1\n5,1\n", "", "seconds,rate\n0,x\n1,2\n"])
def test_what_is_no_day_is_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "day.csv").write_text(text)
    with pytest.raises(ValueError, match="is not a day of traffic"):
        read_day(tmp_path / "day.csv")


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        pytest.param(0, [1, 1, 5, 1, 1, 1], id="no delay: what is needed"),
        pytest.param(1, [1, 1, 1, 5, 5, 1], id="a step late, and kept for a step"),
        pytest.param(2, [1, 1, 1, 1, 5, 5], id="two steps late"),
    ],
)
def test_an_autoscaler_is_late(delay: int, expected: list[int]) -> None:
    assert autoscaled(np.array([1, 1, 5, 1, 1, 1]), delay).tolist() == expected


def test_attainment_of_a_day_is_weighted_by_its_requests() -> None:
    """Half of the requests come at 2 a second, nearly all in time; half at 40 a second, nearly all late."""
    rates = np.array([2.0] * 200 + [40.0] * 10)
    share = attainment_over(fleet(40.0), rates, np.ones(210, dtype=np.int64))
    assert share.value == pytest.approx(0.5, abs=0.03)
    assert share.error < 0.03


def test_the_replicas_follow_the_day() -> None:
    rates = np.array([10.0] * 12 + [60.0] * 3 + [10.0] * 12)
    found = plan_day(fleet(60.0), Measured(8, 13.0), Day(60.0, rates), start_up=60.0, fixed=6)
    assert len(set(found.needed)) == 2
    assert (min(found.needed), max(found.needed)) == (2, 5)
    fixed, late, perfect = found.policies
    assert fixed.mean == 6
    assert perfect.mean == pytest.approx(np.mean(found.needed))
    assert perfect.mean < late.mean < fixed.mean
    assert late.attainment.value < perfect.attainment.value - 3 * late.attainment.error
