"""From the names on a command line to runs: every command takes the same, also where nothing can be written."""

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from enginebench.analysis.data.run_data import NotARun
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.summary.run_summary import save_baseline
from enginebench.cli import app
from enginebench.records.slo import parse_objectives
from tests.support.analysis.synthetic import Engine, simulate


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("a-1", "a-2"):
        simulate(tmp_path / "runs" / name, Engine("a"), (2, 6), 10.0, run_id=name)
    return tmp_path / "runs"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_names_are_runs_ids_and_folders_of_runs(runs: Path) -> None:
    def found(*names: str | Path, where: Path = runs) -> list[str]:
        return [summary.run_id for summary in summaries_of([*map(str, names)], where)]

    assert found(runs, where=Path("elsewhere")) == ["a-1", "a-2"]
    assert found(runs / "a-2", runs, "a-1") == ["a-2", "a-1"], "each once"
    assert found("a-2") == ["a-2"]
    assert len(found()) == 1


def test_runs_in_a_folder_that_cannot_be_written_are_read(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = sorted(runs.rglob("*"))
    make_read_only(monkeypatch, runs)
    page = tmp_path / "report.html"
    for command in (
        ("report", runs, "--output", page),
        ("compare", runs, "--baseline", "a"),
        ("runs", "--runs", runs),
        ("plan", runs, "--peak", "12users", "--slo", "ttft_p90=5", "--peak-seconds", "20"),
    ):
        done = invoke(*command)
        assert "cannot be" not in done.output
        assert "Read-only" not in done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)
    assert page.exists()
    assert sorted(runs.rglob("*")) == before


def make_read_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As a read-only file system is: not even root can write."""
    of_system = os.open

    def refuse(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and Path(os.fsdecode(path)).is_relative_to(folder):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return of_system(path, flags, *arguments, **named)

    def write_bytes(path: Path, data: bytes) -> int:
        os.close(refuse(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        return path.open("wb").write(data)

    monkeypatch.setattr(os, "open", refuse)  # `Path.touch`
    monkeypatch.setattr(Path, "write_bytes", write_bytes)


def test_an_objective_that_is_not_known_here_is_a_sentence(tmp_path: Path) -> None:
    """Of a run that a later version has made."""
    simulate(tmp_path / "run", Engine("a"), (2,), 5.0)
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    meta["workload"]["slo"] = "afterglow_p95=0.3"
    (tmp_path / "run" / "meta.json").write_text(json.dumps(meta))
    done = invoke("report", tmp_path / "run")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "was made with what this version does not know: an objective is " in done.stderr


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        pytest.param(("before", "after"), ("a (before)", "a (after)"), id="by their names"),
        pytest.param(("before/runs", "after/runs"), ("a (before/runs)", "a (after/runs)"), id="by their parents' too"),
        pytest.param(("before/runs", "other"), ("a (runs)", "a (other)"), id="by no more than that takes"),
        pytest.param(("before/runs", "before/../before/runs"), ("a",), id="one folder twice is one engine"),
    ],
)
def test_folders_of_runs_of_one_label_are_told_apart(
    tmp_path: Path, names: Sequence[str], labels: Sequence[str]
) -> None:
    for number, name in enumerate(dict.fromkeys((tmp_path / name).resolve() for name in names)):
        simulate(name / "run", Engine("a"), (2,), 5.0, run_id=f"a-{number}")
    found = summaries_of([str(tmp_path / name) for name in names], tmp_path)
    assert tuple(summary.label for summary in found) == labels


def test_a_saved_summary_is_not_judged_by_another_slo(runs: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    save_baseline(saved, summaries_of([str(runs)], runs))
    assert len(summaries_of([str(saved)], runs)) == 2
    with pytest.raises(NotARun, match="no requests to judge by another SLO: leave out --slo"):
        summaries_of([str(saved)], runs, parse_objectives(["ttft_p95=0.1"]))
