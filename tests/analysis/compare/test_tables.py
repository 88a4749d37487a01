"""A comparison as tables, rows and JSON, and `enginebench compare`."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from enginebench.analysis.compare.command import document, show
from enginebench.analysis.compare.comparison import compare
from enginebench.analysis.compare.tables import LEFT_OUT, comparison_rows, criteria, ratio_text, tables_of
from enginebench.analysis.console import TextTable, stdout
from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.frame import SCHEMA, frame
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.cli import app
from enginebench.records.formatting import MISSING
from enginebench.records.slo import Objective
from enginebench.records.view import Estimate
from tests.support.analysis.compared import judged_view, run, runs_of
from tests.support.analysis.synthetic import Engine, simulate

ROOT = Path(__file__).parents[3]
SLO = Objective("ttft", 0.95, 0.5)
NEAR = (1.0, 0.99, 1.01)


def at_loads(label: str, rate: float, held: float, factors: Sequence[float] = NEAR) -> list[RunSummary]:
    """Throughput at 4, 8 and 16 users, and the objective met up to `held` of them."""
    stages = [
        [
            judged_view(load, SLO, 0.999 if load <= held else 0.1, throughput=rate * load * factor, tpot_p50=0.01)
            for load in (4, 8, 16)
        ]
        for factor in factors
    ]
    return [run(label, of_run, k, objectives=(SLO,)) for k, of_run in enumerate(stages)]


RUNS = [*at_loads("transformers", 10, 4), *at_loads("candle", 20, 8, (1.0, 0.992, 1.008))]


def table(tables: Sequence[TextTable], title: str) -> TextTable:
    return next(each for each in tables if each.title.startswith(title))


def test_one_table_over_all_loads() -> None:
    loads = table(tables_of(compare(RUNS)), "Every load")
    assert loads.headers == ("load", "engine", "SLO", "output tokens/s", "ratio", "p", "verdict")
    assert [(row[0], row[1], row[2], row[6]) for row in loads.rows] == [
        ("4 users", "transformers", "met", "baseline"),
        ("", "candle", "met", "better"),
        ("8 users", "transformers", "missed", "baseline"),
        ("", "candle", "met", "better"),
        ("16 users", "transformers", "missed", "baseline"),
        ("", "candle", "missed", "better"),
    ]
    assert loads.rows[1][4].startswith("2.0")
    assert loads.rows[1][5] == "< 0.001"


def test_what_differs_stands_below_the_loads() -> None:
    runs = [*RUNS, *at_loads("burn", 15, 8, (1.0, 0.991, 1.01))]
    runs = [replace(each, model="another") if each.label == "burn" else each for each in runs]
    loads = table(tables_of(compare(runs)), "Every load")
    assert "Unlike the other runs: burn (model)." in loads.caption
    assert {row[1]: row[6] for row in loads.rows[:3]} == {
        "transformers": "baseline",
        "candle": "better",
        "burn": "not claimed",
    }


def test_who_holds_how_much() -> None:
    held = table(tables_of(compare(RUNS)), "Load within TTFT p95 ≤ 500 ms")
    assert [row[:4] for row in held.rows] == [
        ("transformers", "4 users (8 miss it)", "1", "baseline"),
        ("candle", "8 users (16 miss it)", "2.0× [1.0, 4.0]", "better"),
    ]


def test_metrics_have_tests_and_effect_sizes_and_runs_their_spread() -> None:
    tables = tables_of(compare(RUNS))
    metrics = table(tables, "Metric by metric at 8 users")
    row = next(row for row in metrics.rows if row[0] == "output tokens/s")
    assert dict(zip(metrics.headers, row, strict=True)) | {"p": "", "Welch": ""} == {
        "metric": "output tokens/s",
        "baseline": "80.0",
        "this engine": "160",
        "difference": "+80.0 [+78.8, +81.2]",
        "ratio": row[4],
        "p": "",
        "Welch": "",
        "Mann–Whitney": "0.100",
        "Cohen's d": row[8],
        "Cliff's δ": "1.00",
        "verdict": "better",
    }
    runs = table(tables, "Runs at 8 users")
    row = next(row for row in runs.rows if row[0] == "output tokens/s")
    assert row[1:6] == ("transformers", "3", "80.0", "80.0", "0.800")


def test_one_engine_has_no_table() -> None:
    assert tables_of(compare(at_loads("candle", 20, 8))) == []


def printed(width: int, runs: Sequence[RunSummary] = RUNS) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width, highlight=False), compare(runs), runs)
    return file.getvalue()


@pytest.mark.parametrize("width", [240, 120, 80, 40])
def test_no_column_of_a_verdict_is_left_out_for_width(width: int) -> None:
    text = printed(width)
    assert "…" not in text
    headings = [line.split() for line in text.splitlines() if "verdict" in line.split()]
    assert len(headings) == 3
    assert all("ratio" in heading for heading in headings)
    assert all("p" in heading for heading in headings[1:])
    assert ("Mann–Whitney" in headings[2]) == (width == 240)
    assert not {"ratio", "p", "verdict", "SLO", "engine"} & set(LEFT_OUT)


def test_the_answer_comes_first_and_the_criteria_once() -> None:
    text = " ".join(printed(240).split())
    assert text.startswith(
        "candle holds 8 users within TTFT p95 ≤ 500 ms (16 miss it); transformers holds 4 (8 miss it): 2.0× [1.0, "
        "4.0], over 3 repeats. "
    )
    assert text.count("Better or worse: p ≤ 5 % and a ratio of 1.05 or more (of shares 5.0 points).") == 1
    assert "a ratio of 1.2 or more (of shares 20 points)" in criteria(compare(RUNS, margin=1.2))


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(1.234, 1.19, 1.28), "1.23× [1.19, 1.28]"),
        (Estimate(1.15, 1.15, 1.15), "1.15×"),
        (Estimate(1.119, 1.1187, 1.1193), "1.1190× [1.1187, 1.1193]"),
        (Estimate(float("inf")), "∞"),
        (Estimate(0.0), "0"),
        (Estimate(139.0, 2e-8, 7e11), "≈ 139×"),
        (Estimate(1.0, 0.0, float("inf")), MISSING),
        (Estimate(2.0, 1.5, float("inf")), "2.0× [1.5, ∞]"),
        (Estimate(None, 2.0, float("inf")), "> 2.0×"),
        (Estimate(None, 0.0, 0.5), "< 0.50×"),
        (Estimate(None, 0.0, float("inf")), MISSING),
    ],
)
def test_an_interval_of_width_zero_or_without_meaning_is_never_printed(estimate: Estimate, text: str) -> None:
    assert ratio_text(estimate) == text


def test_piped_output_obeys_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "97")
    assert stdout().width == 97
    monkeypatch.delenv("COLUMNS")
    assert stdout().width == 120


def test_rows_hold_tests_verdicts_capacities_and_the_winner() -> None:
    comparison = compare(RUNS)
    rows = pl.concat([frame(RUNS), pl.DataFrame(comparison_rows(comparison), schema=SCHEMA)])
    tokens = rows.filter(label="candle", stage="8 users", metric="throughput")
    ratio = tokens.filter(statistic="ratio over transformers")
    assert ratio["value"].item() == pytest.approx(2, rel=1e-3)
    assert ratio["low"].item() < 2 < ratio["high"].item()
    assert ratio["why"].item() == "better"
    names = ("p", "welch", "mann_whitney", "cohen_d", "cliff_delta")
    assert {f"{name} over transformers" for name in names} <= set(tokens["statistic"])
    assert rows.filter(metric="slo capacity")["why"].to_list() == ["better"]
    assert rows.filter(metric="winner")["label"].to_list() == ["candle"]
    failed = compare([*runs_of("a", ttft_p99=(float("inf"),) * 3), *runs_of("b", ttft_p99=(0.05, 0.051, 0.049))], "b")
    row = next(row for row in comparison_rows(failed) if row["statistic"] == "p99 ratio over b")
    assert (row["value"], row["why"]) == (0, "worse")
    none_before = compare([*runs_of("a", throughput=(5.0, 5.1, 4.9)), *runs_of("b", throughput=(0.0,) * 3)], "b")
    row = next(row for row in comparison_rows(none_before) if row["statistic"] == "ratio over b")
    assert (row["value"], row["why"]) == (None, "infinite, better"), "not failed: it is the other that served none"


def test_the_document_holds_the_whole_comparison() -> None:
    plain = json.loads(json.dumps(document(compare(RUNS), RUNS), allow_nan=False))
    assert plain["sentence"].startswith("candle holds 8 users")
    assert (plain["winner"], plain["stage"]) == ("candle", "8 users")
    assert plain["stages"] == ["4 users", "8 users", "16 users"]
    (row,) = [
        each for each in plain["comparisons"] if (each["stage"], each["column"]["key"]) == ("8 users", "throughput")
    ]
    assert {"p", "welch", "mann_whitney", "cohen_d", "cliff_delta", "ours", "theirs", "ratio", "verdict"} <= row.keys()
    assert [capacity["met"] for capacity in plain["capacities"]] == [4, 8]
    assert plain["capacity_comparisons"][0]["ratio"] | {"n": 0} == {
        "value": 2,
        "low": 1,
        "high": 4,
        "n": 0,
        "why": None,
        "effective": None,
    }
    assert {"criteria", "findings", "unlike", "differs", "loads", "folders"} <= plain.keys()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of each of two engines: four slots and 8 ms a token against one slot and 10 ms."""
    runs = tmp_path_factory.mktemp("runs")
    for engine in (Engine("transformers", slots=1, tpot=0.01), Engine("candle", slots=4, tpot=0.008)):
        for k in range(3):
            name = f"{engine.label}-{k}"
            simulate(runs / name, engine, (1, 4), 12.0, seed=k, repeat=k, run_id=name)
    return runs


def test_an_engine_is_better_in_every_metric_of_time(folders: Path) -> None:
    """Four users do not wait, and tokens come faster."""
    comparison = compare([summarise(load_run(folder)) for folder in sorted(folders.iterdir())])
    assert (comparison.baseline, comparison.others, comparison.stage) == ("transformers", ("candle",), "4 users")
    verdicts = {each.column.key: each.verdict for each in comparison.at("4 users", "candle")}
    assert verdicts.pop("failure_share") == "alike"
    assert set(verdicts.values()) == {"better"}
    tpot = comparison.of("4 users", "candle", "tpot p50")
    assert tpot is not None
    assert tpot.ratio.value == pytest.approx(10 / 8, rel=0.03)
    tokens = comparison.of("4 users", "candle", "throughput")
    assert tokens is not None
    assert tokens.ratio.value == pytest.approx(4.7, rel=0.05)


def test_the_command(folders: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["compare", str(folders), "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["folders"]["candle"]) == 3
    shown = runner.invoke(app, ["compare", str(folders), "--stage", "1 user", "--baseline", "candle"])
    assert shown.exit_code == 0, shown.output
    assert "Metric by metric at 1 user" in shown.stdout
    wrong = runner.invoke(app, ["compare", str(folders), "--stage", "9 users"])
    assert wrong.exit_code == 2
    assert "choose from 1 user, 4 users" in wrong.stderr


def test_two_folders_with_runs_of_one_label_are_two_engines(tmp_path: Path) -> None:
    for name, tpot in (("before", 0.01), ("after", 0.008)):
        for k in range(3):
            simulate(tmp_path / name / f"run-{k}", Engine("vllm", tpot=tpot), (4,), 10.0, seed=k, repeat=k)
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    result = CliRunner().invoke(app, ["compare", before, after])
    assert result.exit_code == 0, result.output
    assert "vllm (after) served 1." in result.stdout
    alone = CliRunner().invoke(app, ["compare", before, before])
    assert alone.exit_code == 2, "one engine is nothing to compare"
    assert "a comparison needs another engine, or another --label" in " ".join(alone.stderr.split())


def test_runs_that_differ_exit_with_2_and_show_their_numbers(tmp_path: Path) -> None:
    for label, model in (("a", "smollm2-135m"), ("b", "another")):
        for k in range(3):
            simulate(tmp_path / f"{label}-{k}", Engine(label), (4,), 10.0, seed=k, repeat=k, model=model)
    result = CliRunner().invoke(app, ["compare", str(tmp_path)])
    assert result.exit_code == 2
    assert "not claimed" in result.stdout
    assert "served different models" in " ".join(result.stdout.split())
    assert CliRunner().invoke(app, ["compare", str(tmp_path), "--allow-different"]).exit_code == 0


def test_a_metric_that_is_declared_to_be_compared_is_compared_and_gated(folders: Path, tmp_path: Path) -> None:
    """In a copy of the program, without another line."""
    program = tmp_path / "program"
    shutil.copytree(ROOT / "enginebench", program / "enginebench", ignore=shutil.ignore_patterns("__pycache__"))
    path = program / "enginebench" / "records" / "metrics.py"
    metric = (
        'REQUEST_METRICS: tuple[Metric, ...] = (\n    Metric("calm", "calm", Longest("icl"), "answered", "of a test",'
        ' shown=Shown(compared=("p50",))),\n'
    )
    path.write_text(path.read_text().replace("REQUEST_METRICS: tuple[Metric, ...] = (\n", metric))

    def enginebench(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "enginebench", *map(str, words)],
            cwd=program,
            env=os.environ | {"PYTHONPATH": str(program), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    compared = enginebench("compare", folders)
    assert "calm p50" in compared.stdout, compared.stderr
    rows = json.loads(enginebench("compare", folders, "--json").stdout)["comparisons"]
    assert {"calm p50"} < {row["column"]["key"] for row in rows}
    assert enginebench("gate", "--baseline", tmp_path / "base", "--save-baseline", folders).returncode == 0
    checks = json.loads(enginebench("gate", "--baseline", tmp_path / "base", folders, "--json").stdout)["checks"]
    assert {"calm p50"} < {check["comparison"]["column"]["key"] for check in checks}
