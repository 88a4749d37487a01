from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.studies.study.lacking import Lacking
from tests.studies.study.test_grid_file import SMALL, written


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        pytest.param([], None, id="the whole grid"),
        pytest.param(["--quick"], 1800, id="its short form"),
        pytest.param(["--quick", "--budget", "1.5h"], 5400, id="another time"),
    ],
)
def test_a_short_form_ends_in_half_an_hour(
    words: list[str], seconds: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = []

    def measure(place: Path, lacking: Lacking, deadline: float, budget: float | None, *others: object) -> None:
        budgets.append(budget)

    monkeypatch.setattr("enginebench.studies.study.sitting.measure", measure)
    grid, folder = str(written(tmp_path, SMALL)), str(tmp_path / "study")
    done = CliRunner().invoke(app, ["study", grid, "--folder", folder, *words])
    assert done.exit_code == 0, done.output
    assert budgets == [seconds]
