"""Predictions of stages that had no part in the fit, on servers whose law is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.data.load import load_run
from analysis.plan.hold_out import fit_stages, hold_out, predict_unseen
from analysis.plan.measured import measured_stages
from analysis.plan.predict import predicted_stage
from records.load import Load
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
    band = predicted_stage(model, stages[2], seeds=20)["throughput"]
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
