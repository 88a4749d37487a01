"""Calibration: a small real one, and what is made of its numbers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from enginebench.analysis.write.sentence import sentence
from enginebench.cli import app
from enginebench.studies.calibrate.report import document_of
from loadtests.harness.calibration.calibrate import BUSY, TTFT, _cell, pace, parse_grid
from loadtests.harness.run.saved_calibration import LIMIT, Calibration, Cell, Error, keep, load, save
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Calibration]:
    """What the command prints of a small load, and what it keeps. Nothing is busy here, because other tests measure
    meanwhile."""
    folder = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadtests.harness.run.saved_calibration.platformdirs.user_data_path", lambda _: folder)
        patch.setattr("os.cpu_count", lambda: 1)
        patch.setattr("loadtests.harness.calibration.calibrate.BUSY", "import time; time.sleep(600)")
        patch.setattr("loadtests.harness.calibration.calibrate.SECONDS", 2.0)
        done = CliRunner().invoke(app, ["calibrate", "--loads", "10x50", "--processes", "2"])
    assert done.exit_code == 0, done.output
    (kept,) = (folder / "calibration").glob("*-2.json")
    made = load(kept)
    assert made is not None
    return done.stdout, made


@pytest.mark.alone
def test_the_command_keeps_and_prints_what_it_found(calibrated: tuple[str, Calibration]) -> None:
    printed, kept = calibrated
    assert re.search(r" 10 +50\.0 ", printed)
    assert "the load generator's own error is at most" in printed
    assert [(cell.condition, cell.users, cell.rate) for cell in kept.cells] == [("quiet", 10, 50), ("busy", 10, 50)]


@pytest.mark.alone
def test_a_small_calibration_finds_the_client_true(calibrated: tuple[str, Calibration]) -> None:
    cell = calibrated[1].cells[0]
    assert cell.failures == 0
    assert cell.requests >= 15  # ten users, an answer every 1.2 s, for more than two seconds
    assert 250 < cell.tokens_per_second < 550
    # Loose enough for a crowded machine, tight enough to catch a wrong clock, stamp or subtraction.
    assert abs(cell.ttft.p50) < 0.002
    assert abs(cell.e2e.p50) < 0.002
    assert abs(cell.tpot.p50) < 0.002
    assert 0 < cell.cpu_per_token < 0.002


def test_a_quick_calibration_does_not_replace_a_fuller_one(tmp_path: Path) -> None:
    path, full, short = tmp_path / "here-1.json", of((5, 0.0001), (9, 0.0001)), of((5, 0.0003))
    assert keep(short, path)
    assert keep(full, path)
    assert not keep(short, path)
    assert load(path) == full
    newer = replace(short, versions={"locust": "3"})
    assert keep(newer, path)
    assert load(path) == newer


def test_a_window_too_short_for_an_answer_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = stages_of((1,), 8.0)
    early = record(0, stages[0].steady_start or 0, prompt_id="a prompt")
    run = write_run(tmp_path / "run", meta_of(stages), [early], [])
    monkeypatch.setattr(
        "loadtests.harness.calibration.calibrate.measure",
        lambda *_: _cell(1, 10, "quiet", run, {"a prompt": {"tokens": early.output_tokens}}),
    )
    done = CliRunner().invoke(app, ["calibrate", "--loads", "1x10"])
    assert done.exit_code == 2
    assert "no token arrived in the middle of the window: name a load with more tokens per second." in done.stderr


@pytest.mark.parametrize(
    ("stop", "code"), [pytest.param(signal.SIGTERM, 2, id="stopped"), pytest.param(signal.SIGKILL, -9, id="killed")]
)
def test_ended_early_it_leaves_no_process_behind(stop: signal.Signals, code: int) -> None:
    """Above all none of those that keep the cores busy: they have no end of their own."""
    command = [sys.executable, "-m", "enginebench", "calibrate", "--quick", "--loads", "5x20"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    children: list[psutil.Process] = []
    deadline, busy = time.monotonic() + 60, 0
    while busy < (os.cpu_count() or 1):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
        with suppress(psutil.Error):  # one that ends meanwhile
            children = psutil.Process(process.pid).children(recursive=True)
            busy = sum(BUSY in child.cmdline() for child in children)
    process.send_signal(stop)
    process.wait(60)
    _, alive = psutil.wait_procs(children, timeout=30)
    for one in alive:
        one.kill()
    _, said = process.communicate(timeout=60)  # after all that hold the pipe have ended
    assert alive == []
    assert process.returncode == code
    assert "Traceback" not in said


def of(*loads: tuple[float, float]) -> Calibration:
    """A calibration with these tokens per second and TTFT p99 errors."""
    none = Error(0.0, 0.0, 0.0)
    cells = tuple(
        Cell(1, 1.0, "quiet", rate, 100, 0, Error(0.0, 0.0, p99), none, none, none, 2e-5, None) for rate, p99 in loads
    )
    return Calibration("2026-01-01T00:00:00+00:00", 1, cells, {}, {})


def test_a_calibration_comes_back_from_its_file(tmp_path: Path) -> None:
    made = replace(of((5, 0.0001)), host={"cores": 2})
    save(made, tmp_path / "new" / "here-1.json")
    assert load(tmp_path / "new" / "here-1.json") == made
    assert load(tmp_path / "missing.json") is None
    (tmp_path / "broken.json").write_text("{")
    assert load(tmp_path / "broken.json") is None


@pytest.mark.parametrize(
    ("loads", "highest", "says"),
    [
        pytest.param([(1, 0.0001), (2, 0.0009)], 2, "Up to 2.00 chunks/s … at most 0.90 ms", id="never exceeded"),
        pytest.param([(1, 0.0001), (9, 0.007), (5, 0.0002)], 5, "Up to 5.00 chunks/s … at most 0.20 ms", id="by load"),
        pytest.param([(1, 0.0001), (2, 0.5), (3, 0.0001)], 1, "Up to 1.00 chunks/s … at most 0.10 ms", id="once lucky"),
        pytest.param([(1, 0.5)], None, "Up to 1.00 chunks/s … at most 500 ms", id="never kept"),
    ],
)
def test_the_highest_load_is_where_the_error_first_exceeds_the_limit(
    loads: list[tuple[float, float]], highest: float | None, says: str
) -> None:
    made = of(*loads)
    assert made.highest_load(LIMIT) == highest
    said = sentence(document_of(made).answer)
    assert said.replace("the load generator's own error is", "…") == f"{says} at p99.", said


def test_what_was_measured_beside_a_busy_load_is_told_apart() -> None:
    (quiet,) = of((5, 0.0001)).cells
    both = replace(of(), cells=(quiet, replace(quiet, condition="busy", ttft=Error(0.0, 0.0, 0.012))))
    assert both.highest_load(LIMIT) == 5
    assert document_of(both).frame.filter(metric="ttft.p99").select("statistic", "value").rows() == [
        ("quiet", 0.0001),
        ("busy", 0.012),
    ]


@pytest.mark.parametrize("rate", [2.5, 10, 50, 400])
def test_a_user_gets_the_rate_that_the_load_names(rate: float) -> None:
    tokens, tpot = pace(rate)
    assert tokens / (TTFT + (tokens - 1) * tpot) == pytest.approx(rate)


def test_loads_are_users_times_rate() -> None:
    assert parse_grid("100x50,10x2.5") == [(100, 50.0), (10, 2.5)]
    for wrong in ("100", "x50", "0x50", "5x-1", "axb"):
        with pytest.raises(ValueError, match="is not a load"):
            parse_grid(wrong)
