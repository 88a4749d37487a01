"""Predictions of stages that had no part in the fit, on servers whose law is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.plan.evidence.hold_out import hold_out
from analysis.plan.evidence.measured import measured_stages
from analysis.run.load import load_run
from records.load import Load
from simulations.batching_server import Asked, BatchingServer, rates, users, write_run

JUDGED = ("ttft_p50", "ttft_p95", "tpot_p50", "e2e_mean", "throughput")


@pytest.mark.parametrize(
    ("server", "loads"),
    [
        pytest.param(BatchingServer(jitter=0.02), users(4, 8, 12, 16, 24), id="closed loop"),
        pytest.param(BatchingServer(jitter=0.02, pauses=True), users(4, 8, 12, 16, 24), id="closed loop, pauses"),
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
