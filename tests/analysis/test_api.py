"""The Python API is as strict as the commands."""

import math
from pathlib import Path

import pytest

import enginebench
from enginebench.api import Runs
from enginebench.settings.schema import UserMistake
from tests.support.analysis.synthetic import Engine, simulate


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    for name in ("a", "b"):
        simulate(tmp_path / "runs" / name, Engine(name), (1, 2), 10.0, run_id=name)
    monkeypatch.chdir(tmp_path)
    return enginebench.load("runs", slo="ttft_p95=1")


def test_names_that_no_run_has_are_refused(runs: Runs) -> None:
    with pytest.raises(UserMistake, match="no runs of `8users`"):
        enginebench.compare(runs, stage="8users")
    with pytest.raises(UserMistake, match="no runs of `olld`"):
        enginebench.compare(runs, baseline="olld")
    with pytest.raises(UserMistake, match="a price is US dollars per hour, not -1"):
        enginebench.plan(runs, "8users", price=-1)
    with pytest.raises(UserMistake, match="not inf"):
        enginebench.report(runs, price=math.inf)


def test_records_are_found_from_another_folder(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(runs.requests)


def test_a_price_without_a_peak_is_the_cost_of_tokens(runs: Runs) -> None:
    assert "per 1M output tokens" in enginebench.report(runs, price=2.2).markdown()
