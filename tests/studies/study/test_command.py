import math
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from tests.studies.study.test_grid_file import SMALL, written


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        pytest.param([], math.inf, id="the whole grid"),
        pytest.param(["--quick"], 1800, id="its short form"),
        pytest.param(["--quick", "--budget", "1.5h"], 5400, id="another time"),
    ],
)
def test_a_short_form_ends_in_half_an_hour(
    words: list[str], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 seconds of it are for the report."""
    left = []

    def measure(place: Path, deadline: float, *others: object) -> None:
        left.append(deadline - time.monotonic())

    monkeypatch.setattr("enginebench.studies.study.sitting.measure", measure)
    grid, folder = str(written(tmp_path, SMALL)), str(tmp_path / "study")
    done = CliRunner().invoke(app, ["study", grid, "--folder", folder, *words])
    assert done.exit_code == 0, done.output
    assert left == [pytest.approx(seconds - 20, abs=60)]


def test_a_grid_of_several_lines_is_measured_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study's folder keeps its texts in one line."""
    monkeypatch.setattr("enginebench.studies.study.sitting.measure", lambda *_: None)
    grid = str(written(tmp_path, 'question = """\nOne line,\nand another"""\n' + SMALL))
    for _ in range(2):
        done = CliRunner().invoke(app, ["study", grid, "--folder", str(tmp_path / "study")])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("words", [["report", "x", "--archive", "a.tar"], ["status", "--quick"], ["--repeat", "3"]])
def test_a_flag_without_effect_is_refused(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["study", *words])
    assert done.exit_code == 2
    assert "is for measuring" in done.output


def test_ctrl_c_ends_with_2_wherever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("enginebench.studies.study.command._status", interrupted)
    assert CliRunner().invoke(app, ["study", "status"]).exit_code == 2
