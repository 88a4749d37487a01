"""The promises of the design, on copies of the program: a metric, a finding, a section and the code of a missing value
that are declared there reach every surface."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.support.analysis.synthetic import Engine, simulate_in_turn

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
    engines = (Engine("slow"), Engine("fast", tpot=0.005))
    folder = simulate_in_turn(tmp_path_factory.mktemp("runs"), engines, (2, 4), 10.0, repeats=5)
    for path in folder.glob("*/requests*.jsonl"):
        brightness = 3 if path.parent.name.startswith("slow") else 5
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        changed = [line if line["outcome"] == "sent" else line | {"brightness": brightness} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    return folder


def copy_of_the_program(folder: Path) -> Path:
    shutil.copytree(ROOT / "enginebench", folder / "enginebench")
    return folder


def replace(path: Path, place: str, text: str) -> None:
    source = path.read_text()
    assert source.count(place) == 1, f"{path.name} has {place!r} {source.count(place)} times"
    path.write_text(source.replace(place, text))


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


def report(program: Path, runs: Path, *words: str) -> dict[str, str]:
    """What `enginebench report` says, by surface."""
    files = {suffix: program / f"report.{suffix}" for suffix in ("html", "md", "csv", "json")}
    outputs = [word for path in files.values() for word in ("--output", str(path))]
    done = enginebench(program, "report", runs, *outputs, *words)
    assert done.returncode in {0, 1}, done.stderr
    return {"terminal": done.stdout} | {suffix: path.read_text() for suffix, path in files.items()}


@pytest.fixture(scope="module")
def printed(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the changed program shows of the runs, by surface."""
    program = copy_of_the_program(tmp_path_factory.mktemp("program"))
    records, reports = program / "enginebench" / "records", program / "enginebench" / "analysis" / "reports.py"
    replace(records / "request.py", RECORD_FIELD, FIELD + RECORD_FIELD)
    replace(records / "metrics.py", METRIC_PLACE, METRIC_PLACE + METRIC)
    replace(records / "view.py", CODE_PLACE, CODE + CODE_PLACE)
    for path, text in ((records / "findings" / "kinds.py", KIND), (reports, SECTION)):
        path.write_text(path.read_text() + text)
    baseline, gated = tmp_path_factory.mktemp("baseline"), program / "gate.md"
    saved = enginebench(program, "gate", "--baseline", baseline, "--save-baseline", runs)
    assert saved.returncode == 0, saved.stderr
    gate = enginebench(program, "gate", "--baseline", baseline, "--output", gated, runs)
    assert gate.returncode == 0, gate.stderr
    return report(program, runs, "--slo", "shine_p50=4") | {
        "compare": enginebench(program, "compare", runs, "--baseline", "slow").stdout,
        "gate": gate.stdout,
        "gate.md": gated.read_text(),
    }


def test_a_declared_metric_reaches_every_surface(printed: dict[str, str]) -> None:
    for name in ("terminal", "html", "md", "compare", "gate.md"):
        assert "shine p50" in printed[name], name
    assert "shine p50 ≤ 4 s" in printed["terminal"], "an objective"
    medians = pl.read_csv(printed["csv"].encode(), infer_schema_length=None).filter(metric="shine", statistic="p50")
    assert sorted(medians["value"].unique()) == [3, 5]
    rows = [row for row in json.loads(printed["json"])["rows"] if (row["metric"], row["statistic"]) == ("shine", "p50")]
    assert {row["value"] for row in rows if row["repeat"] is not None} == {3, 5}
    assert any(row["repeat"] is None for row in rows), "the repeats together"


def test_a_finding_in_the_table_reaches_every_surface(printed: dict[str, str]) -> None:
    for name in ("terminal", "html", "md", "json", "compare", "gate"):
        assert "a finding that a test declares" in printed[name], name
    assert "declared_by_a_test" in printed["csv"]


def test_a_section_and_a_missing_code_reach_every_surface(printed: dict[str, str]) -> None:
    for name in ("terminal", "html", "md", "json", "compare"):
        for text in ("A section of a test", "a cell of a test"):
            assert text in printed[name], (name, text)
        assert ("too_bright" if name == "json" else "too bright") in printed[name], name
