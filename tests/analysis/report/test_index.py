"""`enginebench runs`: a table of all runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from enginebench.cli import app
from enginebench.records.search import SearchRecord
from tests.support.analysis.synthetic import Engine, simulate


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two with a report, one without, and a folder that is no run."""
    folder = tmp_path_factory.mktemp("runs")
    for name, at in (("old", "2026-11-20T10:00:00+00:00"), ("new", "2026-11-21T10:00:00+00:00")):
        run = simulate(folder / name, Engine(name), (2, 6), 10.0, run_id=name, started_at=at)
        done = CliRunner().invoke(app, ["report", str(run)])
        assert done.exit_code == 0, done.output
    simulate(folder / "fresh", Engine("<fresh>"), (2,), 10.0, run_id="fresh", started_at="2026-11-22T10:00:00+00:00")
    (folder / "notes").mkdir()
    (folder / "notes" / "meta.json").write_text("[]")
    return folder


def listed(*arguments: str | Path, columns: int = 200) -> Result:
    return CliRunner().invoke(app, ["runs", *map(str, arguments)], env={"COLUMNS": str(columns), "NO_COLOR": "1"})


def test_runs_are_listed_newest_first_with_the_numbers_of_their_heaviest_stage(runs: Path) -> None:
    done = listed("--runs", runs, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)["runs"]
    assert [run["run_id"] for run in found] == ["fresh", "new", "old"]
    summary = json.loads((runs / "new" / "summary.json").read_text())
    heaviest = summary["stages"][-1]
    assert found[1]["stage"] == "6 users"
    assert found[1]["numbers"]["throughput"] == heaviest["quantities"]["throughput"]["value"]
    assert found[1]["numbers"]["ttft_user p95"] == heaviest["metrics"]["ttft_user"]["percentiles"]["p95"]["value"]
    assert found[1]["headline"].startswith("new served ")
    assert sum(found[1]["findings"].values()) == len(summary["findings"])
    assert (found[0]["numbers"], found[0]["headline"]) == ({}, "no report yet")


def test_the_table_names_every_run(runs: Path) -> None:
    done = listed("--runs", runs)
    assert [name for name in ("fresh", "new", "old", "no report yet", "6 users") if name not in done.stdout] == []


def test_a_narrow_terminal_breaks_no_id(runs: Path, tmp_path: Path) -> None:
    """It has fewer columns instead, and names those that are missing."""
    long = "20261122-084438-mistralrs-bu58"
    shutil.copytree(runs / "new", tmp_path / long)
    meta = json.loads((tmp_path / long / "meta.json").read_text())
    (tmp_path / long / "meta.json").write_text(json.dumps(meta | {"run_id": long, "label": "mistralrs" * 3}))
    shown = listed("--runs", tmp_path, columns=80).stdout
    assert f" {long} " in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "A wider terminal and --json also have model, engine, stage, " in " ".join(shown.split())


def test_a_summary_of_another_version_leaves_the_run_without_numbers(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "new", tmp_path / "new")
    (tmp_path / "new" / "summary.json").write_text('{"schema": 99}')
    (found,) = json.loads(listed("--runs", tmp_path, "--json").stdout)["runs"]
    assert found["headline"] == "no report yet"


def test_a_search_for_capacity_is_listed_with_what_it_found(runs: Path, tmp_path: Path) -> None:
    """None of its probes stands for the whole run."""
    run = tmp_path / "search"
    shutil.copytree(runs / "new", run)
    searched = SearchRecord("users", "users", ("tpot_p95=0.015",), 0.2, "found", 8.0, 7.0, 10.0, probes=())
    for name in ("meta.json", "summary.json"):
        document = json.loads((run / name).read_text()) | {"search": asdict(searched)}
        (run / name).write_text(json.dumps(document))
    done = listed("--runs", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["runs"]
    assert found["headline"] == f"new: {searched.sentence}"
    assert (found["stage"], found["numbers"]) == (None, {})
    assert found["requests"] == json.loads((run / "summary.json").read_text())["requests"]
    assert "–" in listed("--runs", tmp_path).stdout


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    done = listed("--runs", tmp_path)
    assert done.exit_code == 2
    assert "there is no run in" in done.stderr
