"""The promises of the design, each on a copy of the program that one declaration is added to or changed in: a metric, a
finding, a section and the code of a missing value reach every surface, and the percentile rule has one place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.analysis.synthetic import Engine, simulate

ROOT = Path(__file__).parents[2]

RECORD_FIELD = "    retry_after: float | None = None"
FIELD = "    brightness: int | None = None  # what a test declares\n"
METRIC_PLACE = "REQUEST_METRICS: tuple[Metric, ...] = (\n"
METRIC = """    Metric(
        "shine",
        "shine",
        Field("brightness"),
        "answered",
        "a metric that a test declares",
        objective="shine",
        shown=Shown(table=("p50",), compared=("p50",), chart=("p50",)),
    ),
"""
KIND = """

def _a_test_check(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    yield Evidence("warn", "a finding that a test declares")


KINDS = (*KINDS, Kind("declared_by_a_test", "", "", "nothing to do", _a_test_check))
"""

CODE_PLACE = '    UNCOUNTED = "uncounted"'
CODE = '    TOO_BRIGHT = "too_bright"  # what a test declares\n'
SECTION = """

def _a_test_section(frame: Frame) -> Section:
    from enginebench.analysis.document import Column, Number, Table, Word
    from enginebench.records.view import Missing

    row = (Word("a cell of a test"), Number(Estimate(None, missing=Missing.TOO_BRIGHT), "s"))
    table = Table("of-a-test", "A table of a test", (Column("what", text=True), Column("shine")), (row,))
    return Section("of-a-test", "A section of a test", (table,))


SECTIONS = (*SECTIONS, _a_test_section)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five repeats of two engines, in whose records `brightness` is known: 3 s of the one, 5 s of the other."""
    folder = tmp_path_factory.mktemp("runs")
    for engine, brightness in ((Engine("slow"), 3), (Engine("fast", tpot=0.005), 5)):
        for repeat in range(5):
            run = simulate(
                folder / f"{engine.label}-{repeat}",
                engine,
                (2, 4),
                20.0,
                repeat,
                run_id=f"{engine.label}-{repeat}",
                repeat=repeat,
            )
            for path in run.glob("requests*.jsonl"):
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                changed = [line if line["outcome"] == "sent" else line | {"brightness": brightness} for line in lines]
                path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    return folder


def copy_of_the_program(folder: Path) -> Path:
    shutil.copytree(ROOT / "enginebench", folder / "enginebench")
    return folder


def add(path: Path, after: str, text: str) -> None:
    source = path.read_text()
    assert source.count(after) == 1, f"{path.name} has {after!r} {source.count(after)} times"
    path.write_text(source.replace(after, after + text))


def enginebench(program: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEBENCH")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "enginebench", *map(str, words)],
        cwd=program,
        env=environment | {"PYTHONPATH": str(program), "COLUMNS": "250"},
        capture_output=True,
        text=True,
        check=False,
    )


def report(program: Path, runs: Path, *words: str) -> dict[str, Any]:
    """What `enginebench report` says, by surface."""
    files = {suffix: program / f"report.{suffix}" for suffix in ("html", "md", "csv", "json")}
    outputs = [word for path in files.values() for word in ("--output", str(path))]
    done = enginebench(program, "report", runs, *outputs, *words)
    assert done.returncode in {0, 1}, done.stderr
    return {"terminal": done.stdout} | {suffix: path.read_text() for suffix, path in files.items()}


@pytest.fixture(scope="module")
def with_metric(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = copy_of_the_program(tmp_path_factory.mktemp("metric"))
    source = (program / "enginebench" / "records" / "request.py").read_text()
    (program / "enginebench" / "records" / "request.py").write_text(source.replace(RECORD_FIELD, FIELD + RECORD_FIELD))
    add(program / "enginebench" / "records" / "metrics.py", METRIC_PLACE, METRIC)
    return program


def test_a_declared_metric_reaches_every_surface_of_a_report(with_metric: Path, runs: Path) -> None:
    surfaces = report(with_metric, runs)
    for name in ("terminal", "html", "md"):
        assert "shine p50" in surfaces[name], name
    numbers = pl.read_csv((with_metric / "report.csv"), infer_schema_length=None)
    medians = numbers.filter(metric="shine", statistic="p50")
    assert sorted(medians["value"].unique()) == [3, 5]
    rows = json.loads(surfaces["json"])["rows"]
    values = [
        row["value"]
        for row in rows
        if (row["metric"], row["statistic"]) == ("shine", "p50") and row["repeat"] is not None
    ]
    assert set(values) == {3, 5}


def test_it_is_compared_gated_and_an_objective(with_metric: Path, runs: Path, tmp_path: Path) -> None:
    compared = enginebench(with_metric, "compare", runs, "--baseline", "slow")
    assert "shine p50" in compared.stdout, compared.stderr
    document = json.loads(enginebench(with_metric, "compare", runs, "--json").stdout)
    assert any(row["metric"] == "shine" and row["repeat"] is None for row in document["rows"])
    saved = enginebench(with_metric, "gate", "--baseline", tmp_path / "base", "--save-baseline", runs)
    assert saved.returncode == 0, saved.stderr
    gate = enginebench(with_metric, "gate", "--baseline", tmp_path / "base", "--output", tmp_path / "gate.md", runs)
    assert gate.returncode == 0, gate.stderr
    assert "shine p50" in (tmp_path / "gate.md").read_text()
    judged = report(with_metric, runs, "--slo", "shine_p50=4")
    assert "shine p50 ≤ 4 s" in judged["terminal"]


def test_a_finding_in_the_table_reaches_every_surface(tmp_path: Path, runs: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    path = program / "enginebench" / "records" / "findings" / "table.py"
    path.write_text(path.read_text() + KIND)
    surfaces = report(program, runs)
    for name, text in surfaces.items():
        assert ("declared_by_a_test" if name == "csv" else "a finding that a test declares") in text, name
    for command in ("compare", "gate"):
        if command == "gate":
            enginebench(program, "gate", "--baseline", tmp_path / "base", "--save-baseline", runs)
            words: list[str | Path] = ["gate", "--baseline", tmp_path / "base", runs]
        else:
            words = ["compare", runs]
        assert "a finding that a test declares" in enginebench(program, *words).stdout, command


def test_a_section_and_a_missing_code_reach_every_surface(tmp_path: Path, runs: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    view = program / "enginebench" / "records" / "view.py"
    assert view.read_text().count(CODE_PLACE) == 1
    view.write_text(view.read_text().replace(CODE_PLACE, CODE + CODE_PLACE))
    path = program / "enginebench" / "analysis" / "reports.py"
    path.write_text(path.read_text() + SECTION)
    surfaces = report(program, runs)
    surfaces["compare"] = enginebench(program, "compare", runs).stdout
    for name in ("terminal", "html", "md", "json", "compare"):
        for text in ("A section of a test", "a cell of a test"):
            assert text in surfaces[name], (name, text)
        assert ("too_bright" if name == "json" else "too bright") in surfaces[name], name


def test_the_percentile_rule_has_one_place(tmp_path: Path, runs: Path) -> None:
    """With the rank below the nearest one, every percentile that is printed is another value."""
    before = report(copy_of_the_program(tmp_path / "before"), runs)
    program = copy_of_the_program(tmp_path / "after")
    path = program / "enginebench" / "records" / "rules.py"
    rule = "return min(max(math.ceil(round(q * n, 9)), 1), n)"
    assert path.read_text().count(rule) == 1
    path.write_text(path.read_text().replace(rule, "return min(max(math.floor(q * n) // 2, 1), n)"))
    after = report(program, runs)

    def percentiles(surfaces: dict[str, Any]) -> dict[tuple[str, int, str, str, str], float | None]:
        return {
            (row["engine"], row["repeat"], row["metric"], row["statistic"], row["stage"]): row["value"]
            for row in json.loads(surfaces["json"])["rows"]
            if row["repeat"] is not None
            and (row["statistic"] or "").startswith("p")
            and row["statistic"][1:2].isdigit()
        }

    old, new = percentiles(before), percentiles(after)
    known = {key for key, value in old.items() if value and key[2] in {"ttft", "ttft_user", "tpot", "e2e", "icl"}}
    assert len(known) > 100
    assert [key for key in known if old[key] == new[key]] == []
