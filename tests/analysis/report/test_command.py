"""`enginebench report` as a command: its page, its JSON and its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from enginebench.cli import app
from enginebench.records.stage import SECOND
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run
from tests.support.servers.served import ROOT


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


REPORT_AND_LOOK = """
import sys
sys.argv = ["enginebench", "report"]
import enginebench
try:
    enginebench.main()
except SystemExit as ended:
    assert not ended.code, ended
others = {"gevent", "locust", "loadtests", "engines", "servers", "fastapi", "torch"}
assert not others & set(sys.modules), "a report needs records and analysis alone"
slow = {"scipy.stats", "scipy.optimize", "scipy.signal", "altair"}
assert not slow & set(sys.modules), "importing these takes a second"
"""


def test_without_arguments_the_newest_run_is_reported(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """Through the front door; and gevent is imported neither by the analysis nor while it works."""
    shutil.copytree(folders[0], tmp_path / "runs" / "a")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEBENCH")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", REPORT_AND_LOOK]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Report: runs/a/report.html" in done.stdout
    assert (tmp_path / "runs" / "a" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "runs" / "a" / "requests.parquet").exists()
    assert "transformers served" in done.stdout


def test_a_report_needs_requests(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """A saved baseline has the summaries alone."""
    saved = CliRunner().invoke(app, ["gate", "--baseline", str(tmp_path), "--save-baseline", str(folders[0])])
    assert saved.exit_code == 0, saved.output
    done = command(tmp_path)
    assert done.exit_code == 2
    assert "has a summary and no requests: compare it with `enginebench compare`" in " ".join(done.stderr.split())


def test_json_is_one_document(folders: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = command(*folders, "--json", "--output", page, "--margin", "1.2")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert [run["label"] for run in document["runs"]] == ["transformers", "mistralrs"]
    assert document["comparison"]["winner"] is None
    assert document["comparison"]["stage"] == "16 users"
    assert document["comparison"]["margin"] == 1.2
    assert document["objectives"] is None
    assert document["invalid"] is False
    assert document["report"] == str(page)
    errors = {s["quantities"]["client_error"]["value"] for run in document["runs"] for s in run["stages"]}
    assert errors <= {0.00002, 0.00004}
    assert document["headline"].startswith("mistralrs served ")
    kept = json.loads((folders[0] / "summary.json").read_text())
    assert {name: document["runs"][0][name] for name in kept} == kept


@pytest.mark.parametrize(
    ("arguments", "code", "answer"),
    [
        pytest.param(["--slo", "ttft_p95=0.1"], 1, "missed", id="an objective that is missed"),
        pytest.param(["--slo", "ttft_p50=30", "--tokenizer", "nowhere"], 0, "met", id="met; a tokenizer is not needed"),
        pytest.param(["--slo", "ttft_p99=30"], 1, "not enough evidence", id="an objective that is not shown to be met"),
    ],
)
def test_objectives_set_the_exit_code(
    folders: tuple[Path, Path], tmp_path: Path, arguments: list[str], code: int, answer: str
) -> None:
    done = command(folders[0], *arguments, "-o", tmp_path / "report.json")
    assert done.exit_code == code
    assert answer in done.stdout
    assert json.loads((tmp_path / "report.json").read_text())["objectives"] == answer


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["--slo", "nonsense"], "an objective is [TIER:]METRIC_pN=SECONDS", id="an objective that is none"),
        pytest.param(["--peak", "40users"], "--peak needs an objective, such as", id="a peak without an objective"),
        pytest.param(["--gpu", "abacus"], "no GPU called `abacus`", id="a GPU without a price"),
        pytest.param(["nowhere"], "there is no run `nowhere`", id="a run that is not there"),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_2(
    folders: tuple[Path, Path], arguments: list[str], sentence: str
) -> None:
    runs = [] if arguments == ["nowhere"] else [folders[0]]
    done = command(*runs, *arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_an_invalid_run_exits_with_2_unless_allowed(tmp_path: Path) -> None:
    records = [record(k, k * 10**8, t_send=k * 10**8 + 10**8) for k in range(200)]  # always 100 ms late
    late = write_run(tmp_path / "late", meta_of(stages_of((1,), 20.0)), records)
    done = command(late)
    assert done.exit_code == 2
    assert "invalid" in done.stdout
    assert done.stdout.index("invalid") < done.stdout.index("Second lines"), "above the numbers"
    assert command(late, "--allow-invalid").exit_code == 0


def test_files_among_the_runs_are_passed_over(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """`enginebench report runs/*`, once there is a page beside the runs."""
    for folder in folders:
        shutil.copytree(folder, tmp_path / folder.name)
    first = command(*sorted(tmp_path.iterdir()))
    assert first.exit_code == 0, first.stderr
    assert (tmp_path / "report.html").exists()
    again = command(*sorted(tmp_path.iterdir()))
    assert again.exit_code == 0, again.stderr
    assert "mistralrs served " in again.stdout
    alone = command(tmp_path / "report.html")
    assert alone.exit_code == 2


def test_runs_where_nothing_can_be_written_are_reported(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(folders[0], run)
    assert command(run).exit_code == 0
    (run / "report.html").unlink()
    replace = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if run in Path(target).parents:
            raise PermissionError(30, "Read-only file system")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    done = command(run)
    assert done.exit_code == 0, done.output
    assert "transformers served " in done.stdout
    assert "cannot be written to, so there is no page: -o report.html writes one" in " ".join(done.stderr.split())
    elsewhere = command(run, "-o", tmp_path / "page.html")
    assert elsewhere.exit_code == 0
    assert (tmp_path / "page.html").exists()
    assert "cannot be written" not in elsewhere.stderr
    refused = command(run, "-o", run / "page.html")
    assert refused.exit_code == 2
    assert "cannot be written (Read-only file system)" in " ".join(refused.stderr.split())


def test_tiers_give_each_engine_a_capacity_within_each(folders: tuple[Path, Path], tmp_path: Path) -> None:
    tiers = ["--slo", "fast:ttft_p50=0.05,tpot_p50=0.03", "--slo", "relaxed:ttft_p50=5"]
    names = ("r.json", "r.csv", "r.md")
    done = command(*folders, *tiers, *(part for name in names for part in ("-o", tmp_path / name)))
    document = json.loads((tmp_path / "r.json").read_text())
    held = {(each["objectives"][0]["tier"], each["engine"]): each["met"] for each in document["capacities"]}
    assert held == {
        ("fast", "transformers"): None,
        ("fast", "mistralrs"): 8.0,
        ("relaxed", "transformers"): 16.0,
        ("relaxed", "mistralrs"): 16.0,
    }
    assert document["headline"].startswith("mistralrs holds 8 users within TTFT p50 ≤ 50.0 ms and TPOT p50 ≤ 30.0 ms")
    assert "fast:ttft_p50=0.05,fast:tpot_p50=0.03" in (tmp_path / "r.csv").read_text()
    for text in (done.stdout, (tmp_path / "r.md").read_text()):
        assert "Users within the objectives" in text
        assert "relaxed" in text


@pytest.mark.parametrize(
    ("changes", "flags", "code"),
    [
        pytest.param({}, [], 0, id="alike"),
        pytest.param({"model": "another"}, [], 2, id="models that differ: a warning, which blocks every claim"),
        pytest.param({"model": "another"}, ["--allow-different"], 0, id="models that may differ"),
        pytest.param({"scenario": "single"}, ["--allow-invalid"], 2, id="scenarios that differ are no invalid run"),
        pytest.param({"scenario": "single"}, ["--allow-different"], 0, id="scenarios that may differ"),
    ],
)
def test_report_and_compare_exit_alike(
    folders: tuple[Path, Path], tmp_path: Path, changes: dict[str, str], flags: list[str], code: int
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folders[1], other)
    meta = json.loads((other / "meta.json").read_text()) | changes
    (other / "meta.json").write_text(json.dumps(meta))
    reported = command(folders[0], other, "-o", tmp_path / "page.html", *flags)
    compared = CliRunner().invoke(app, ["compare", str(folders[0]), str(other), *flags])
    assert (reported.exit_code, compared.exit_code) == (code, code), reported.stderr
    for stderr in (reported.stderr, compared.stderr):
        assert ("Nothing may be claimed: " in stderr) is (code == 2)


def test_a_stage_without_requests_is_no_objective_met(tmp_path: Path) -> None:
    """One user had 100 answers; of two users none asked in the window: the server hung."""
    records = [record(k, 2 * SECOND + k * SECOND // 20) for k in range(100)]
    hung = write_run(tmp_path / "hung", meta_of(stages_of((1, 2), 10.0)), records)
    done = command(hung, "--slo", "ttft_p50=30", "--allow-invalid")
    assert "2 users are undecided: no request in the window." in " ".join(done.stdout.split())
    assert done.exit_code == 1, done.stderr


def test_an_objective_of_a_class_that_is_missed_exits_with_1(tmp_path: Path) -> None:
    records = [record(k, 2 * SECOND + k * SECOND // 20, request_class="chat") for k in range(100)]
    meta = meta_of(stages_of((1,), 10.0))
    for limit, code in (("30", 0), ("0.01", 1)):
        asked = {**meta.workload, "class_objectives": {"chat": f"ttft_p50={limit}"}}
        run = write_run(tmp_path / limit, replace(meta, workload=asked), records)
        assert command(run, "--allow-invalid").exit_code == code
