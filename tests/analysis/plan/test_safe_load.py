"""The load that a replica bears, and what limits it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from analysis.data.load import load_run
from analysis.plan.safe_load import crossing, safe_load
from analysis.summary.run_summary import summarise
from records.slo import parse_objectives
from records.view import StageView
from tests.support.analysis.synthetic import Engine, simulate


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([1.0, 1.0, 0.8], 25.0, id="between two loads by a straight line"),
        pytest.param([1.0, 1.0, 0.95], 40.0, id="met everywhere: the highest measured load"),
        pytest.param([0.8, 0.7, 0.6], 0.0, id="missed everywhere"),
        pytest.param([0.88, 0.92, 0.8], 20.0, id="neighbours that rise with the load are averaged"),
    ],
)
def test_the_load_at_which_attainment_falls_below_nine_in_ten(shares: list[float], expected: float) -> None:
    q = 0.9 if expected != 40.0 else 0.95
    loads = np.array([10.0, 20.0, 30.0 if expected == 25.0 else 40.0])
    assert crossing(loads, np.array(shares), q, np.ones(3)) == expected


def test_a_share_that_is_poorly_known_gives_way_to_its_neighbour() -> None:
    """0.6 with an interval fifteen times as wide as that of the 0.99 at twice the load."""
    assert crossing(np.array([10.0, 20.0]), np.array([0.6, 0.99]), 0.95, np.array([1.0, 225.0])) == 20
    assert crossing(np.array([10.0, 20.0]), np.array([0.6, 0.99]), 0.95, np.ones(2)) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two requests at a time, each of 50 ms until its first token and 200 ms in all: more users wait."""
    return simulate(tmp_path_factory.mktemp("safe") / "run", Engine("slow", slots=2), (1, 2, 4, 8), 10.0)


def stages(folder: Path, *objectives: str) -> tuple[StageView, ...]:
    return summarise(load_run(folder), parse_objectives(objectives)).stages


def test_a_queue_limits_the_load(folder: Path) -> None:
    found = safe_load(stages(folder, "ttft_p90=0.1", "tpot_p90=0.1"))
    assert found is not None
    assert found.load.value is not None
    assert 2 <= found.load.value < 4
    assert found.limit is not None
    assert found.limit.sentence == "TTFT p90 ≤ 100 ms (waiting for admission grows most)"
    assert found.limit.draws == 1


def test_without_the_servers_durations_the_objective_alone_is_named(folder: Path) -> None:
    blind = [dataclasses.replace(stage, ttft_parts=None) for stage in stages(folder, "ttft_p90=0.1")]
    found = safe_load(blind)
    assert found is not None
    assert found.limit is not None
    assert found.limit.sentence == "TTFT p90 ≤ 100 ms"


def test_nothing_limits_a_load_that_was_not_exceeded(folder: Path) -> None:
    found = safe_load(stages(folder, "ttft_p90=10"))
    assert found is not None
    assert (found.load.value, found.limit) == (8, None)
    assert found.load.why == "met at 8 users, the highest measured"


def test_an_objective_that_one_user_misses_is_named(folder: Path) -> None:
    found = safe_load(stages(folder, "tpot_p90=0.001"))
    assert found is not None
    assert found.load.value is None
    assert found.limit is not None
    assert found.limit.sentence == "TPOT p90 ≤ 1.00 ms"


def test_where_nothing_was_judged_nothing_is_said(folder: Path) -> None:
    assert safe_load(stages(folder)) is None
