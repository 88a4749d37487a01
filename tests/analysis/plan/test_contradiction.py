"""Whether a model that is wrong is told from one that is right, by the loads at which objectives were met."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.data.load import load_run
from analysis.plan.answer import make_plan
from analysis.plan.contradiction import contradiction
from analysis.plan.facts import warnings_of
from analysis.plan.hold_out import fit_stages
from analysis.plan.measured import MeasuredStage, measured_stages
from analysis.plan.settings import PlanSettings
from analysis.summary.run_summary import summarise
from records.load import Users
from records.slo import parse_objectives
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

OBJECTIVES = parse_objectives(["ttft_p95=0.3", "e2e_p95=5"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 slots: of 24 users, every third waits."""
    server = BatchingServer(jitter=0.02)
    return write_run(
        tmp_path_factory.mktemp("contradiction") / "run", server, users(4, 8, 12, 24), Asked(), window=30.0
    )


@pytest.fixture(scope="module")
def stages(folder: Path) -> list[MeasuredStage]:
    return measured_stages([load_run(folder)])


def test_the_right_model_agrees_with_the_measurements(stages: list[MeasuredStage]) -> None:
    assert contradiction(fit_stages(stages).model, stages, OBJECTIVES) is None


def test_a_model_without_the_limit_on_requests_meets_what_was_missed(stages: list[MeasuredStage]) -> None:
    found = contradiction(replace(fit_stages(stages).model, slots=None), stages, OBJECTIVES)
    assert found is not None
    assert (found.load, str(found.objective)) == ("24 users", "ttft_p95=0.3")
    assert found.measured < 0.4
    assert found.predicted.median == pytest.approx(1, abs=0.02)


def test_a_model_that_is_too_slow_misses_what_was_met(stages: list[MeasuredStage]) -> None:
    model = fit_stages(stages).model
    found = contradiction(replace(model, cost=model.cost.scaled(2.5)), stages, OBJECTIVES)
    assert found is not None
    assert found.measured > 0.95
    assert found.predicted.median < 0.5


def test_the_answer_says_so(folder: Path, stages: list[MeasuredStage]) -> None:
    run = load_run(folder)
    settings = PlanSettings(peak=Users(48), slo=OBJECTIVES, peak_seconds=30.0)
    plan = make_plan("x", [run], [summarise(run, OBJECTIVES)], settings)
    assert plan.contradiction is None
    assert "do not rely" not in plan.sentence
    assert [one.slots_known for one in plan.held_out] == [True, True, True, False]
    assert warnings_of(plan) == [], "the slots are known from the stage that this prediction was made without"
    found = contradiction(replace(fit_stages(stages).model, slots=None), stages, OBJECTIVES)
    wrong = replace(plan, contradiction=found)
    assert wrong.sentence.endswith("; but the measurements contradict the model.")
    assert warnings_of(wrong) == [
        "at 24 users the model has 98.6 % within TTFT p95 ≤ 300 ms, and 0 % were measured: "
        "do not rely on the number of replicas"
    ]
