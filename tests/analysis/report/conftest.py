"""Two engines at three loads, measured once."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginebench.analysis.data.load import load_run
from enginebench.analysis.report.page import render
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from tests.support.analysis.printed import reported
from tests.support.analysis.synthetic import Engine, simulate

SLOW = Engine("transformers", slots=1, prefill=0.02, tpot=0.01)
QUICK = Engine("mistralrs", slots=8, prefill=0.03, tpot=0.015, failures=0.02)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    runs = tmp_path_factory.mktemp("runs")
    return simulate(runs / "slow", SLOW, (4, 8, 16), 12.0), simulate(runs / "quick", QUICK, (4, 8, 16), 12.0)


@pytest.fixture(scope="session")
def summaries(folders: tuple[Path, Path]) -> list[RunSummary]:
    return [summarise(load_run(folder)) for folder in folders]


@pytest.fixture(scope="session")
def page(summaries: list[RunSummary]) -> str:
    return render(reported(summaries))
