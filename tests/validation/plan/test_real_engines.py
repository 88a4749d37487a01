"""The hold-out program, on a server of known cost."""

from __future__ import annotations

from pathlib import Path

from enginebench.analysis.data.run_data import load_run
from validation.plan.batching_server import Asked, BatchingServer, users, write_run
from validation.plan.real_engines import TARGETS, fit_and_predict


def test_loads_that_were_not_fitted_are_predicted(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", BatchingServer(jitter=0.02), users(8, 12, 4, 4, 12, 8), Asked()))
    result = fit_and_predict(run)
    (unseen,) = result["unseen"]
    assert unseen["users"] == 12
    assert unseen["requests"] > 300
    assert set(unseen["errors"]) == set(TARGETS)
    assert all(abs(error) < 0.06 for error in unseen["errors"].values())
