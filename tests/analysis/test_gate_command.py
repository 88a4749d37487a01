"""`enginebench gate`: exit codes, the table, JUnit XML and Markdown."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from enginebench.analysis.summary.run_summary import save_baseline
from enginebench.cli import app
from enginebench.records.metrics import THROUGHPUT, TTFT
from enginebench.records.view import Finding
from tests.support.analysis.compared import run, view

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)
PLAIN: dict[str, Any] = {"engine": {"name": "x", "dtype": "bfloat16"}}


def version(folder: Path, factor: float = 1.0, loads: Sequence[float] = (4, 8), runs: int = 5, **changes: Any) -> Path:
    """Saved summaries of runs with a TTFT and a throughput at each load."""
    summaries = []
    for k in range(runs):
        numbers = {f"{TTFT} p50": 0.1 * factor * STEADY[k], THROUGHPUT: 100 * STEADY[-1 - k]}
        summaries.append(run("vllm", [view(load, numbers) for load in loads], k, **PLAIN | changes))
    save_baseline(folder, summaries)
    return folder


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return version(tmp_path_factory.mktemp("baseline"))


def gate(baseline: Path, runs: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["gate", "--baseline", str(baseline), str(runs), *options], env={"COLUMNS": "120"})


@pytest.mark.parametrize(
    ("changes", "options", "code", "sentence"),
    [
        ({}, (), 0, "PASSED: no regression of more than 20 % in 6 comparisons."),
        (
            {"factor": 1.3},
            (),
            1,
            "FAILED: TTFT p50 of vllm at 4 users is 30 % [29, 32] higher than the baseline (limit 20 %); 1 more "
            "comparison failed. 4 other comparisons passed.",
        ),
        ({"factor": 1.15}, (), 0, "PASSED: no regression of more than 20 % in 6 comparisons; 2 warnings."),
        ({"loads": (4,)}, (), 3, "FAILED: 1 comparison could not be made; 3 passed."),
        (
            {"loads": (4,)},
            ("--allow-missing",),
            0,
            "PASSED: no regression of more than 20 % in 3 comparisons.",
        ),
        (
            {"runs": 3},
            ("--allow-missing",),
            3,
            "FAILED: a gate needs 5 runs of each version; there are 3, and 5 of the baseline.",
        ),
    ],
)
def test_the_sentence_and_the_exit_code(
    baseline: Path, tmp_path: Path, changes: dict[str, Any], options: Sequence[str], code: int, sentence: str
) -> None:
    done = gate(baseline, version(tmp_path, **changes), *options)
    assert done.exit_code == code, done.output
    assert sentence in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("changes", "option", "message"),
    [
        (
            {"findings": (Finding("late", "invalid", "it was late", "", None, "vllm"),)},
            "--allow-invalid",
            "a run of vllm is invalid",
        ),
        ({"scenario": "rate"}, "--allow-different", "the runs and the baseline differ in scenario"),
        (
            {"engine": {"name": "x", "dtype": "q8_0"}},
            "--allow-different",
            "differ in number format and engine settings",
        ),
    ],
)
def test_what_cannot_be_judged_is_a_mistake_unless_it_is_allowed(
    baseline: Path, tmp_path: Path, changes: dict[str, Any], option: str, message: str
) -> None:
    runs = version(tmp_path, **changes)
    refused = gate(baseline, runs)
    assert (refused.exit_code, message in " ".join(refused.output.split())) == (2, True), refused.output
    assert gate(baseline, runs, option).exit_code == 0


def test_another_version_of_this_tool_is_judged(baseline: Path, tmp_path: Path) -> None:
    assert gate(baseline, version(tmp_path, versions={"enginebench": "9.9"})).exit_code == 0


def test_junit_and_markdown_have_every_check(baseline: Path, tmp_path: Path) -> None:
    xml, comment = tmp_path / "gate.xml", tmp_path / "gate.md"
    done = gate(baseline, version(tmp_path / "runs", 1.3), "--output", str(xml), "--output", str(comment), "--json")
    document = json.loads(done.stdout)
    assert (document["exit_code"], document["answer"]["passed"]) == (1, False)
    root = ElementTree.fromstring(xml.read_text())
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root] == [
        ("vllm, 4 users", "3", "1"),
        ("vllm, 8 users", "3", "1"),
    ]
    assert comment.read_text().startswith("# Gate")
    few = version(tmp_path / "few", runs=3)
    too_few = gate(few, version(tmp_path / "three", runs=3), "--output", str(xml))
    assert too_few.exit_code == 3
    assert [suite.get("errors") for suite in ElementTree.fromstring(xml.read_text())] == ["0", "0", "1"]
    assert comment.read_text().count("| regression | vllm |") == 4, "on top, and among all checks"


def test_a_baseline_is_saved_first(tmp_path: Path) -> None:
    runs = version(tmp_path / "runs")
    missing = gate(tmp_path / "none", runs)
    assert missing.exit_code == 2
    assert "there is no baseline at" in " ".join(missing.output.split())
    saved = gate(tmp_path / "saved", runs, "--save-baseline")
    assert (saved.exit_code, "5 runs saved in" in saved.stdout) == (0, True)
    assert gate(tmp_path / "saved", runs).exit_code == 0
