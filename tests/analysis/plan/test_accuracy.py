"""Predictions of loads that had no part in the fit, on servers whose law is known."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.plan.accuracy import MAX_ERROR, HeldOut, fit_stages, hold_out, predict_unseen
from enginebench.analysis.plan.measured import measured_stages
from enginebench.analysis.plan.requests import FIGURES, TTFT_P50, TTFT_P95, Lengths, Requests, figures
from enginebench.records.load import Load
from validation.plan.batching_server import Asked, BatchingServer, rates, users, write_run


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
    stages = measured_stages([load_run(write_run(tmp_path / "run", server, loads, Asked(), 1, window=120.0))])
    found = hold_out(stages, fit_stages(stages, server.slots))
    assert len(found) == len(loads)
    errors = {(one.stage, figure): one.errors[figure] for one in found for figure in FIGURES}
    assert {place: round(error, 3) for place, error in errors.items() if abs(error) > 0.05} == {}


def test_long_steps_short_answers_and_slots_handed_over_late_are_predicted_within_ten_per_cent(tmp_path: Path) -> None:
    """Two users' steps are shorter than all others, and only twenty show how slots are handed over."""
    server = BatchingServer(base=0.1, per_running=0.005, late_handover=True, turnaround=0.001)
    run = write_run(tmp_path / "run", server, users(4, 16, 2, 20, 8, 12), Asked(output=(4, 16)), window=40.0)
    stages = measured_stages([load_run(run)])
    found = hold_out(stages, fit_stages(stages, server.slots))
    errors = {held.stage: round(held.errors[TTFT_P50], 3) for held in found}
    assert {stage: error for stage, error in errors.items() if abs(error) > 0.1} == {}
    assert len(errors) == 6


def test_a_load_that_was_measured_twice_is_left_out_as_a_whole(tmp_path: Path) -> None:
    """Its other stage would show the model what it is asked for; figures are means over both stages."""
    server = BatchingServer(jitter=0.02)
    run = load_run(write_run(tmp_path / "run", server, users(4, 8, 4, 8, 12), Asked(), 1, window=20.0))
    stages = measured_stages([run])
    model = fit_stages(stages, server.slots)
    found = hold_out(stages, model)
    assert [one.stage for one in found] == ["4 users", "8 users", "12 users"]
    first, second = (stage.figures["throughput"] for stage in (stages[0], stages[2]))
    assert found[0].measured["throughput"] == pytest.approx((first + second) / 2)
    alone = predict_unseen(fit_stages([stages[1], stages[3], stages[4]], server.slots), "", [stages[2]])
    assert found[0].predicted["tpot_p50"] == pytest.approx(alone.predicted["tpot_p50"], rel=0.01)
    same = hold_out(stages[0:3:2], model)
    assert [one.stage for one in same] == ["4 users", "4 users #2"], "one load: stage by stage"


def test_a_load_whose_slots_were_seen_at_that_load_alone_is_predicted_with_them(tmp_path: Path) -> None:
    """16 slots: of 24 users, every third waits. Without slots the prediction would be off by 95 %."""
    server = BatchingServer(jitter=0.02)
    stages = measured_stages([load_run(write_run(tmp_path / "run", server, users(4, 8, 12, 24), Asked(), window=30.0))])
    model = fit_stages(stages)
    known, unknown = hold_out(stages, model), hold_out(stages, replace(model, slots=None))
    assert model.slots == 16
    assert abs(known[-1].errors[TTFT_P95]) < 0.1 < abs(unknown[-1].errors[TTFT_P95])
    for held in known:
        assert held.largest_error == max(abs(error) for error in held.errors.values()) < MAX_ERROR


def test_a_percentile_of_too_few_requests_has_no_error() -> None:
    """p95 takes 20 requests: of 19 no value is expected above it."""
    instants = np.arange(20.0)
    lengths = Lengths(np.full(20, 32.0), np.full(20, 8.0))
    requests = Requests.simulated(instants, instants + 0.1, instants + 0.5, lengths)
    enough, few = figures(requests, 0.0, 20.0), figures(requests, 0.0, 19.0)
    assert enough[TTFT_P95] == pytest.approx(0.1)
    assert math.isnan(few[TTFT_P95])
    assert few[TTFT_P50] == pytest.approx(0.1)
    held = HeldOut("1 user", few, dict.fromkeys(FIGURES, 0.5))
    assert math.isnan(held.errors[TTFT_P95])
    assert held.largest_error == pytest.approx(0.5 / (0.4 / 7) - 1), "of TPOT p50"
    assert HeldOut("1 user", dict.fromkeys(FIGURES, math.nan), few).largest_error == 0
