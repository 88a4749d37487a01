"""Predictions of stages that had no part in the fit, on servers whose law is known; and a model that contradicts what
was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from enginebench.analysis.data.load import load_run
from enginebench.analysis.plan.accuracy import (
    LargestError,
    contradiction,
    fit_stages,
    hold_out,
    predict_unseen,
    predicted_stage,
)
from enginebench.analysis.plan.alternatives import Alternative, Alternatives
from enginebench.analysis.plan.document import alternatives_table, planned_of, screen_of, warnings_of
from enginebench.analysis.plan.measured import MeasuredStage, measured_stages
from enginebench.analysis.plan.plan import make_plan
from enginebench.analysis.plan.prices import dollars
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Load, Users
from enginebench.records.slo import parse_objectives
from validation.plan.batching_server import Asked, BatchingServer, rates, users, write_run

JUDGED = ("ttft_p50", "ttft_p95", "tpot_p50", "e2e_mean", "throughput")


@pytest.mark.parametrize(
    ("server", "loads"),
    [
        pytest.param(BatchingServer(jitter=0.02, pauses=True), users(4, 8, 12, 16, 24), id="closed loop, pauses"),
        pytest.param(
            BatchingServer(jitter=0.02, delivery=0.08), users(4, 8, 12, 16, 24), id="closed loop, slow network"
        ),
        pytest.param(BatchingServer(jitter=0.02), rates(3, 6, 9, 11), id="open loop, the same arrivals"),
        pytest.param(BatchingServer(jitter=0.02, slots=1), rates(0.2, 0.4, 0.6), id="one request at a time"),
    ],
)
def test_a_held_out_stage_is_predicted_within_five_per_cent(
    tmp_path: Path, server: BatchingServer, loads: tuple[Load, ...]
) -> None:
    run = load_run(write_run(tmp_path / "run", server, loads, Asked(), 1, window=120.0))
    found = hold_out(measured_stages([run]), declared_slots=server.slots)
    assert len(found) == len(loads)
    errors = {(one.stage, figure): one.error(figure) for one in found for figure in JUDGED}
    assert {place: round(error, 3) for place, error in errors.items() if abs(error) > 0.05} == {}


def test_groups_of_equal_length_are_seen_and_their_throughput_is_a_band(tmp_path: Path) -> None:
    """With few users a stage is predicted like any other. With many, throughput depends on which requests happen to
    have the same length: seeds differ, and so do stages."""
    server = BatchingServer(jitter=0.02, grouped=True)
    stages = measured_stages([load_run(write_run(tmp_path / "run", server, users(4, 8, 12), Asked(), 1, window=60.0))])
    model = fit_stages(stages[:2], server.slots).model
    assert model.grouped
    assert (model.cost.base, model.cost.per_running) == pytest.approx((0.02, 0.002), rel=0.05)
    assert model.cost.per_token == pytest.approx(0.0005, rel=0.02)
    alone = predict_unseen(fit_stages(stages[1:], server.slots), "4 users", stages[:1])
    assert all(abs(alone.error(figure)) < 0.05 for figure in JUDGED)
    band = predicted_stage(model, stages[2], 20)["throughput"]
    assert 0.9 * band.low < stages[2].figures["throughput"] < 1.1 * band.high


def test_a_load_that_was_measured_twice_is_left_out_as_a_whole(tmp_path: Path) -> None:
    """Its other stage would show the model what it is asked for; figures are means over both stages."""
    server = BatchingServer(jitter=0.02)
    run = load_run(write_run(tmp_path / "run", server, users(4, 8, 4, 8, 12), Asked(), 1, window=20.0))
    stages = measured_stages([run])
    found = hold_out(stages, server.slots)
    assert [one.stage for one in found] == ["4 users", "8 users", "12 users"]
    first, second = (stage.figures["throughput"] for stage in (stages[0], stages[2]))
    assert found[0].measured["throughput"] == pytest.approx((first + second) / 2)
    alone = predict_unseen(fit_stages([stages[1], stages[3], stages[4]], server.slots), "", [stages[2]])
    assert found[0].predicted["tpot_p50"].median == pytest.approx(alone.predicted["tpot_p50"].median, rel=0.01)
    same = hold_out(stages[0:3:2], server.slots)
    assert [one.stage for one in same] == ["4 users", "4 users #2"], "one load: stage by stage"


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
    plan = make_plan("x", [summarise(run, OBJECTIVES)], settings)
    assert plan.contradiction is None
    assert "do not rely" not in plan.sentence
    assert [one.slots_known for one in plan.held_out] == [True, True, True, False]
    about_errors = [text for text in warnings_of(plan) if "was off by" in text]
    assert about_errors == [], "the slots are known from the stage that this prediction was made without"
    found = contradiction(replace(fit_stages(stages).model, slots=None), stages, OBJECTIVES)
    wrong = replace(plan, contradiction=found)
    assert wrong.sentence.endswith("; but the measurements contradict the model.")
    opposed = "at 24 users the model has 98.6 % within TTFT p95 ≤ 300 ms, and 0 % were measured"
    assert warnings_of(wrong)[:1] == [f"{opposed}: do not rely on the number of replicas"]
    assert plan.reliable
    sure, doubted = (planned_of(Alternative("x", each), Users(48)) for each in (plan, wrong))
    assert sure.reliable
    assert "not reliable" not in sure.sentence + sure.how_sure
    assert "] (not reliable), " in doubted.sentence
    assert not doubted.reliable
    assert doubted.how_sure.startswith("not reliable: held-out predictions were off by up to ")
    assert doubted.how_sure.endswith(f"; {opposed}")


def test_a_plan_with_a_large_held_out_error_is_marked_and_so_is_its_cost(folder: Path) -> None:
    settings = PlanSettings(peak=Users(48), slo=OBJECTIVES, peak_seconds=30.0, price=(("", "2"),))
    plan = make_plan("x", [summarise(load_run(folder), OBJECTIVES)], settings)
    held = plan.held_out[0]
    off = replace(held, measured=held.measured | {"throughput": held.predicted["throughput"].median / 1.4})
    doubtful = replace(plan, held_out=(off, *plan.held_out[1:]))
    assert (plan.reliable, doubtful.reliable) == (True, False)
    month = dollars(plan.bill.per_month) if plan.bill is not None else ""
    number = f"{plan.replicas.count} [{plan.replicas.low}, {plan.replicas.high}]"
    assert f" at {month} a month (not reliable)" in doubtful.sentence
    within = "held-out predictions were off by up to 40 % (tokens/s at 4 users)"
    warned = "the prediction of tokens/s at 4 users was off by 40 %: do not rely on the number of replicas, "
    assert warnings_of(doubtful)[0].startswith(warned)
    both = Alternatives((Alternative("sure", plan), Alternative("doubtful", doubtful)), priced=True)
    summaries = [summarise(load_run(folder), OBJECTIVES)]
    screen = screen_of(both, {"sure": summaries, "doubtful": summaries}, Users(48))
    assert screen.table is not None
    assert {row[0]: row[2:4] for row in screen.table.rows} == {
        "sure": (number, month),
        "doubtful": (f"{number}*", f"{month}*"),
    }
    assert screen.table.caption.endswith("*: not reliable.")
    assert f"doubtful: not reliable: {within}" in dict(screen.sentences)["how sure"]
    assert dict(screen.sentences)["trade-off"].startswith("sure costs as much as doubtful")
    meaning = {row[0]: row[-1] for row in alternatives_table(both).rows}
    assert meaning == {"sure": "on the front", "doubtful": "not reliable, on the front"}
    assert f"doubtful needs {plan.count} replicas at {month} a month (not reliable)" in both.sentence


@pytest.mark.parametrize(
    ("error", "size"),
    [(0.011, "1.1 %"), (0.4, "40 %"), (1.0, "100 %"), (1.04, "2.0×"), (4.334, "5.3×"), (24.0, "25.0×")],
)
def test_an_error_above_100_percent_is_said_as_a_factor(error: float, size: str) -> None:
    of = LargestError(error, "TTFT p50", "40 users")
    assert of.sentence == f"held-out predictions were off by up to {size} (TTFT p50 at 40 users)"
