"""`enginebench gate`: what became worse than a baseline, what is missing, and what CI servers get to read."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from enginebench.analysis.compare.gate import BASELINE, Check, Gate, GateRefused, checks_of, gate_of, judge, size_of
from enginebench.analysis.compare.gate_outputs import change_text, junit, markdown
from enginebench.analysis.compare.metric_comparison import MetricComparison, Sample, compare_metric
from enginebench.analysis.summary.run_summary import RunSummary, read_summary
from enginebench.cli import app
from enginebench.records.metrics import columns
from enginebench.records.view import Estimate, Finding
from tests.support.analysis.compared import run, view
from tests.support.analysis.synthetic import Engine, simulate

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)
COLUMNS = {column.key: column for column in columns("compared")}


def compared(
    baseline: Sequence[float], current: Sequence[float], key: str = "ttft p50", n: int = 10_000, **place: str
) -> MetricComparison:
    engine, stage = place.get("engine", "vllm"), place.get("stage", "8 users")
    ours, theirs = (
        Sample(label, tuple(Estimate(value, n=n) for value in values))
        for label, values in ((engine, current), (BASELINE, baseline))
    )
    comparison = compare_metric(stage, COLUMNS[key], ours, theirs, paired=False)
    assert comparison is not None
    return comparison


def check(baseline: Sequence[float], current: Sequence[float], key: str = "ttft p50", n: int = 10_000) -> Check:
    return checks_of([compared(baseline, current, key, n)])[0]


def times(factor: float, values: Sequence[float] = STEADY) -> tuple[float, ...]:
    return tuple(factor * value for value in reversed(values))


@pytest.mark.parametrize(
    ("factor", "severity"),
    [
        pytest.param(1.25, "critical", id="25 % longer"),
        pytest.param(1.15, "warning", id="15 % longer"),
        pytest.param(1.08, "ok", id="8 % longer"),
        pytest.param(0.7, "ok", id="shorter"),
    ],
)
def test_latencies_by_how_much_longer_they_are(factor: float, severity: str) -> None:
    found = check(STEADY, times(factor))
    assert found.severity == severity
    assert found.comparison.worse.value == pytest.approx(factor - 1)


@pytest.mark.parametrize(
    ("factor", "severity", "worse"),
    [(0.75, "critical", 0.25), (0.85, "warning", 0.15), (1.3, "ok", -0.3)],
)
def test_throughput_by_how_much_less_it_is(factor: float, severity: str, worse: float) -> None:
    found = check(STEADY, times(factor), "throughput")
    estimate = found.comparison.worse
    assert found.severity == severity
    assert estimate.value == pytest.approx(worse)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < worse < estimate.high


def test_a_large_change_that_may_be_chance_is_unclear() -> None:
    """30 % longer on average, with runs that differ by half."""
    assert check((1.0, 0.6, 1.5, 0.8, 1.2), (1.3, 0.8, 1.9, 1.0, 1.6)).severity == "unclear"


def test_p_values_are_those_of_all_checks_together() -> None:
    """The same 15 % are beyond chance in one check, and not among three hundred."""
    noisy = compared((1.0, 1.05, 0.95, 1.04, 0.96), (1.15, 1.2, 1.1, 1.19, 1.11))
    assert checks_of([noisy])[0].severity == "warning"
    many = checks_of([noisy, *(compared(STEADY, times(1 + k / 1e6)) for k in range(300))])
    assert [each.severity for each in many[:2]] == ["unclear", "ok"]


def test_the_interval_is_that_of_the_test() -> None:
    """Three runs that lie close together, where the other checks of the same runs vary ten times as much."""
    close = compared((1.0, 1.002, 0.998), (1.02, 1.022, 1.018), stage="1 user")
    others = [compared((1.0, 1.02, 0.98), (1.01, 0.97, 1.02), "throughput", stage=f"{n} users") for n in range(2, 22)]
    assert close.p is not None
    assert close.p < 0.01, "by itself"
    (found,) = (each.comparison for each in checks_of([close, *others]) if each.comparison.stage == "1 user")
    assert found.p is not None
    assert found.p > 0.5
    estimate = found.worse
    assert estimate.value == pytest.approx(0.02, abs=1e-6)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < -0.01
    assert estimate.high > 0.05
    assert (1 + estimate.low) * (1 + estimate.high) == pytest.approx(1.02**2, abs=1e-6)


@pytest.mark.parametrize(
    ("current", "severity"),
    [
        ((0.03, 0.03, 0.031, 0.029, 0.03), "critical"),
        ((0.015, 0.015, 0.016, 0.014, 0.015), "warning"),
        ((0.005, 0.005, 0.005, 0.005, 0.005), "ok"),
    ],
)
def test_failures_count_in_points(current: tuple[float, ...], severity: str) -> None:
    """From none: 3 points are critical, 1.5 a warning."""
    found = check((0.0,) * 5, current, "failure_share")
    assert found.severity == severity
    assert found.size == pytest.approx(10 * sum(current) / 5)


def test_a_share_is_worse_by_no_more_than_100_points() -> None:
    """Three runs that differ much."""
    wide = check((0.0, 0.5, 0.1), (0.9, 0.1, 0.6), "failure_share", n=100_000)
    assert change_text(wide.comparison) == "+33.3 points [−49.2, +100.0]"


@pytest.mark.parametrize(("requests", "severity"), [(20, "unclear"), (1000, "critical")])
def test_the_same_few_failures_in_every_run_may_be_chance(requests: int, severity: str) -> None:
    """5 % in each of three runs is one failure of 20, or 50 of 1 000."""
    assert check((0.0,) * 3, (0.05,) * 3, "failure_share", requests).severity == severity


def test_numbers_without_any_spread_are_judged_by_their_difference() -> None:
    """Nothing can be tested, and every run of either side says the same."""
    halved = check((100.0,) * 5, (50.0,) * 5, "throughput")
    assert (halved.severity, halved.comparison.p) == ("critical", None)
    assert not gate_on([halved.comparison]).passed
    assert check((100.0,) * 3, (85.0,) * 3, "throughput").severity == "warning"


def test_equal_durations_of_a_coarse_clock_are_no_proof() -> None:
    """Three runs of 30 ms against three of 40 on a clock of 10 ms: 34.9 and 35.1 would look like that."""
    assert check((0.03,) * 3, (0.04,) * 3).severity == "unclear"
    assert check((0.03, 0.03, 0.04), (0.06, 0.06, 0.07)).severity == "critical"


def failing_in(count: int, of: int = 5) -> tuple[float, ...]:
    return (*(math.inf,) * count, *STEADY[count:], *STEADY[: of - 5])


@pytest.mark.parametrize(
    ("before", "now", "severity"),
    [
        pytest.param(0, 5, "critical", id="all, and none before"),
        pytest.param(1, 5, "unclear", id="all, and one before: 5 runs each do not exclude chance"),
        pytest.param(0, 4, "unclear", id="most: 5 runs each do not exclude chance"),
        pytest.param(0, 1, "unclear", id="one"),
        pytest.param(1, 0, "ok", id="fewer"),
        pytest.param(5, 5, "ok", id="as before"),
    ],
)
def test_runs_whose_percentile_falls_among_failures_are_counted(before: int, now: int, severity: str) -> None:
    found = check(failing_in(before), failing_in(now), "ttft p95")
    assert found.severity == severity
    if severity == "critical":
        gate = gate_on([found.comparison])
        assert gate.failing
        assert change_text(found.comparison) == (f"fell among failures in {now} of 5 runs (baseline: {before} of 5)")
        assert f'message="TTFT p95 fell among failures in {now} of 5 runs (baseline: {before} of 5)"' in junit(gate)


def test_enough_runs_show_that_more_fall_among_failures() -> None:
    """Fisher's exact test: 8 of 10 against 0 of 10 has p = 0.0007, 4 of 10 has 0.09."""
    steady = STEADY * 2
    most = check(steady, (*(math.inf,) * 8, *STEADY[:2]))
    assert most.severity == "critical"
    assert most.comparison.p == pytest.approx(0.000714, rel=0.01)
    assert not gate_on([most.comparison]).passed
    assert check(steady, (*(math.inf,) * 4, *steady[:6])).severity == "unclear"


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (
            compared(STEADY, failing_in(4), "ttft p95"),
            "TTFT p95 of vllm at 8 users fell among failures in 4 of 5 runs (baseline: 0 of 5)",
        ),
        (
            compared(STEADY, (0.0, 0.0, 0.0, 0.0, 1.0), "throughput"),
            "of vllm at 8 users fell among failures in 4 of 5 runs (baseline: 0 of 5)",
        ),
        (
            compared((math.inf, *STEADY[1:]), (math.inf, *times(10)[1:])),
            "TTFT p50 of vllm at 8 users fell among failures in 1 of 5 runs (baseline: 1 of 5)",
        ),
    ],
)
def test_what_is_worse_and_cannot_be_tested_does_not_pass(comparison: MetricComparison, words: str) -> None:
    with pytest.raises(GateRefused, match="worse by more than 20 %, and too few runs to exclude chance") as refused:
        gate_on([comparison])
    assert words in str(refused.value)
    gate = gate_on([comparison], allow_missing=True)
    assert gate.passed
    assert any(words in note for note in gate.notes)
    assert ", 1 unclear (" in gate.sentence


def test_a_pass_says_how_many_checks_are_unclear() -> None:
    gate = gate_on([compared(STEADY, STEADY), compared((1.0, 0.6, 1.5, 0.8, 1.2), (1.3, 0.8, 1.9, 1.0, 1.6))])
    assert gate.sentence == (
        "Passed: nothing is shown to be worse by more than 20 %, 1 unclear "
        "(2 checks, 5 runs against 5 of the baseline)."
    )


def test_a_throughput_that_fell_is_lower() -> None:
    gate = gate_on([compared(STEADY, times(0.664), "throughput")])
    assert "is 0.66: 33.6 % lower" in junit(gate).replace("0.664", "0.66")
    assert "| −33.6 % [" in markdown(gate)


def test_no_throughput_at_all_is_critical() -> None:
    found = check(STEADY, (0.0,) * 5, "throughput")
    assert (found.severity, found.comparison.worse.value) == ("critical", 1)


def gate_on(comparisons: Sequence[MetricComparison], missing: Sequence[str] = (), **changes: Any) -> Gate:
    return gate_of(comparisons, missing, 0.2, 5, 5, [], **changes)


def test_too_few_runs_are_refused() -> None:
    few = [compared((1.0, 1.0), STEADY)]
    with pytest.raises(GateRefused, match="needs 3 runs of each, better 5; vllm has 2 in the baseline and 5 to judge"):
        gate_on(few)


def version(
    factor: float = 1.0, loads: Sequence[float] = (4, 8), label: str = "vllm", runs: int = 5, **changes: Any
) -> list[RunSummary]:
    """Runs with a TTFT and a throughput at each load; `without` names what the last of them lacks."""
    without, stage_changes = changes.pop("without", ""), changes.pop("stage", {})
    summaries = []
    for k in range(runs):
        numbers = {"ttft p50": 0.1 * factor * STEADY[k % 5], "throughput": 100 / factor * STEADY[-1 - k % 5]}
        kept = {key: value for key, value in numbers.items() if k < runs - 1 or key != without}
        summaries.append(run(label, [view(load, kept, **stage_changes) for load in loads], k, **changes))
    return summaries


def test_a_gate_and_a_comparison_have_one_idea_of_worse() -> None:
    gate = judge(version(), version(1.3))
    assert {each.comparison.column.key for each in gate.failing} == {"ttft p50", "throughput"}
    assert {size_of(each.comparison) for each in gate.failing} == {each.size for each in gate.failing}
    assert judge(version(), version(0.5)).passed


@pytest.mark.parametrize(
    ("baseline", "current", "message"),
    [
        pytest.param(version(), version(loads=(4,)), "not every run of vllm has the stage 8 users", id="stage"),
        pytest.param(
            [*version(), *version(label="other")], version(), "other was not run", id="an engine that never started"
        ),
        pytest.param(version(), version(runs=4), "vllm has 4 runs and not 5", id="a repeat"),
        pytest.param(
            version(), version(without="ttft p50"), "TTFT p50 of vllm at 4 users is not known in every run", id="n/a"
        ),
        pytest.param(
            version(),
            version(without="throughput"),
            "output tokens/s of vllm at 4 users is not known in every run",
            id="tokens that were not counted",
        ),
        pytest.param(
            [*version()[:4], version(loads=(4,))[4]],
            version(),
            "not every run of vllm has the stage 8 users",
            id="a stage that the baseline lacks itself in a run",
        ),
        pytest.param(
            version(without="throughput"),
            version(),
            "output tokens/s of vllm at 4 users is not known in every run of the baseline",
            id="a baseline whose tokens were not counted",
        ),
        pytest.param(
            version(loads=(4,)),
            version(),
            "no run of vllm in the baseline has the stage 8 users",
            id="a stage that is new",
        ),
    ],
)
def test_what_one_side_has_and_the_other_lacks_is_no_pass(
    baseline: list[RunSummary], current: list[RunSummary], message: str
) -> None:
    with pytest.raises(GateRefused, match=message) as refused:
        judge(baseline, current)
    assert "--allow-missing judges the rest" in str(refused.value)
    gate = judge(baseline, current, allow_missing=True)
    assert gate.passed
    assert any(message in note for note in gate.notes)


def test_nothing_in_common_is_refused_whatever_is_allowed() -> None:
    with pytest.raises(GateRefused, match="nothing in common that could be judged"):
        judge(version(loads=(4,)), version(loads=(8,)), allow_missing=True)


def test_another_version_of_this_tool_is_told_and_judged() -> None:
    """An upgrade of enginebench is no reason to save the baseline again."""
    newer = version(versions={"enginebench": "0.2.0"}, commit="abcdef")
    gate = judge(version(), newer)
    assert gate.passed
    assert any(
        "were measured by different versions of this tool: 0.1.0 and 0.2.0 (abcdef)" in note for note in gate.notes
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"host": {"cpu": "Another"}}, id="another machine"),
        pytest.param({"engine": {"dtype": "float32"}}, id="another number format"),
        pytest.param({"model": "another"}, id="another model"),
        pytest.param({"scenario": "single"}, id="another scenario"),
        pytest.param({"workload": {"output_tokens": 9}}, id="another workload"),
        pytest.param({"stage": {"end": 20.0}}, id="shorter stages"),
    ],
)
def test_runs_that_are_not_alike_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(GateRefused, match="--allow-different"):
        judge(version(), version(**changes))
    assert judge(version(), version(**changes), allow_different=True).passed


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"host": {"cpu": "Another"}}, id="another machine"),
        pytest.param({"workload": {"output_tokens": 9}}, id="another workload"),
        pytest.param({"engine": {"name": "vllm", "dtype": "bfloat16", "max_concurrency": 64}}, id="other settings"),
    ],
)
def test_every_run_of_the_baseline_is_looked_at(changes: dict[str, Any]) -> None:
    """The first one is as the runs are now, the last is not."""
    baseline = [*version()[:4], version(**changes)[4]]
    with pytest.raises(GateRefused, match="--allow-different"):
        judge(baseline, version())
    assert judge(baseline, version(), allow_different=True).passed


def test_invalid_runs_are_refused_and_findings_are_noted() -> None:
    def found(severity: Any) -> list[RunSummary]:
        return version(findings=(Finding("client_late", severity, "41 ms late", "add --processes", None, "vllm"),))

    with pytest.raises(GateRefused, match="a run of vllm is invalid"):
        judge(version(), found("invalid"))
    assert judge(version(), found("invalid"), allow_invalid=True).passed
    assert judge(version(), found("warn")).notes == ("warn: vllm (5 runs): 41 ms late",)


def runs_of(folder: Path, tpot: float = 0.01, seeds: range = range(5), **engine: Any) -> Path:
    for k in seeds:
        one = Engine("vllm", tpot=tpot, prefill=0.05, **engine)
        simulate(folder / f"run-{k}", one, (2, 4), 10.0, seed=k, repeat=k, run_id=f"run-{k}")
    return folder


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five saved runs."""
    folder = tmp_path_factory.mktemp("baseline")
    runs = runs_of(tmp_path_factory.mktemp("before"))
    result = CliRunner().invoke(app, ["gate", "--baseline", str(folder), "--save-baseline", str(runs)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"5 runs saved in {folder}.\n"
    return folder


def test_saving_prints_one_document_where_one_is_wanted(baseline: Path, tmp_path: Path) -> None:
    run_folder = min(baseline.iterdir())
    words = ["gate", "--baseline", str(tmp_path), "--save-baseline", str(run_folder)]
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout) == {
        "saved": [str(tmp_path / run_folder.name / "summary.json")]
    }
    assert CliRunner().invoke(app, words).stdout == f"1 run saved in {tmp_path}.\n"


def gate(baseline: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["gate", "--baseline", str(baseline), *arguments])


def test_identical_versions_pass(baseline: Path, tmp_path: Path) -> None:
    result = gate(baseline, str(runs_of(tmp_path, seeds=range(5, 10))))
    assert result.exit_code == 0, result.output
    assert re.search(
        r"Passed: nothing is shown to be worse by more than 20 %(?:, \d+ unclear)? "
        r"\(\d\d checks, 5 runs against 5 of the baseline\)\.",
        " ".join(result.stdout.split()),
    )


def test_a_regression_fails_and_machines_can_read_it(baseline: Path, tmp_path: Path) -> None:
    """13 ms a token instead of 10: TPOT is 30 % worse, and so is most of E2E."""
    runs = runs_of(tmp_path / "runs", tpot=0.013, seeds=range(5, 10))
    xml, comment = tmp_path / "gate.xml", tmp_path / "gate.md"
    result = gate(baseline, str(runs), "--junit", str(xml), "--markdown", str(comment), "--json")
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert document["passed"] is False
    critical = {
        (each["comparison"]["stage"], each["comparison"]["column"]["key"])
        for each in document["checks"]
        if each["severity"] == "critical"
    }
    assert {("2 users", "tpot p50"), ("4 users", "tpot p50")} <= critical
    assert not [each for each in critical if each[1].startswith("ttft")]
    root = ElementTree.parse(xml).getroot()
    failures = {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None}
    assert {"TPOT p50", "TPOT p95"} <= failures
    assert sum(int(suite.get("failures", "0")) for suite in root) == len(critical)
    assert sum(int(suite.get("tests", "0")) for suite in root) == len(document["checks"])
    text = comment.read_text()
    assert "### ❌ enginebench gate" in text
    assert re.search(r"\| ❌ critical \| vllm \| 4 users \| TPOT p50 \| 10\.\d ms \| 13\.\d ms \| \+(29|30|31)\.", text)
    assert f"<details><summary>All {len(document['checks'])} checks</summary>" in text


def test_a_candidate_that_lacks_a_stage_does_not_pass(baseline: Path, tmp_path: Path) -> None:
    for k in range(5):
        simulate(tmp_path / f"run-{k}", Engine("vllm", prefill=0.05), (2,), 10.0, seed=k, repeat=k, run_id=f"run-{k}")
    result = gate(baseline, str(tmp_path))
    assert result.exit_code == 2
    assert "not every run of vllm has the stage 4 users" in " ".join(result.stderr.split())
    allowed = gate(baseline, str(tmp_path), "--allow-missing")
    assert allowed.exit_code == 0, allowed.output
    assert "missing: not every run of vllm has the stage 4 users" in allowed.stdout


def test_the_comment_says_of_which_engine_and_shows_its_name() -> None:
    names = ("a|<b> *c*", "d_e")
    slower = [compared(STEADY, times(1.3), engine=name, stage=f"{n} users") for name in names for n in (2, 4)]
    found = gate_on([*slower, compared(STEADY, STEADY, "throughput", engine="d_e")])
    assert found.sentence == (
        "Failed: worse by more than 20 % in TTFT p50 of a|<b> *c* at 2 users, TTFT p50 of a|<b> *c* at 4 users, "
        "TTFT p50 of d_e at 2 users and 1 more (5 checks, 5 runs against 5 of the baseline)."
    )
    text = markdown(found)
    assert r"| ❌ critical | a\|\<b> \*c\* | 2 users | TTFT p50 | 1.00 s | 1.30 s | +30.0 % [" in text
    assert re.search(r"✅ ok \| d_e \| 8 users \| output tokens/s \| 1\.00 \| 1\.00 \| 0 % \[−\d", text)
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    assert '<td style="text-align:left">a|&lt;b&gt; *c*</td>' in rendered


def test_the_strict_limit_fails_on_a_warning(baseline: Path, tmp_path: Path) -> None:
    runs = str(runs_of(tmp_path, tpot=0.0115, seeds=range(5, 10)))
    assert gate(baseline, runs).exit_code == 0
    strict = gate(baseline, runs, "--fail-at", "10")
    assert strict.exit_code == 1
    assert "Failed: worse by more than 10 % in TPOT p" in " ".join(strict.stdout.split())


def test_a_saved_baseline_is_small_and_is_replaced(baseline: Path, tmp_path: Path) -> None:
    copy = tmp_path / "baseline"
    shutil.copytree(baseline, copy)
    assert sum(path.stat().st_size for path in copy.rglob("*.json")) < 5 * 60_000
    assert [path.name for path in (copy / "run-0").iterdir()] == ["summary.json"]
    keep = tmp_path / "baseline" / "notes"
    keep.mkdir()
    (keep / "summary.json.txt").write_text("mine")
    newer = runs_of(tmp_path / "newer", tpot=0.02, seeds=range(3))
    for index, folder in enumerate(sorted(newer.iterdir())):
        meta = json.loads((folder / "meta.json").read_text()) | {"run_id": f"newer-{index}"}
        (folder / "meta.json").write_text(json.dumps(meta))
    assert gate(copy, "--save-baseline", str(newer)).exit_code == 0
    assert sorted(path.name for path in copy.iterdir()) == ["newer-0", "newer-1", "newer-2", "notes"]
    stage = read_summary(copy / "newer-0").at("4 users")
    assert stage is not None
    assert stage.value("tpot", "p50") == pytest.approx(0.02, rel=0.05)


@pytest.fixture(scope="module")
def places(baseline: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs: five of the baseline's engine, two of it, of another engine."""
    folder = tmp_path_factory.mktemp("places")
    found = {"baseline": baseline, "runs": runs_of(folder / "runs")}
    found |= {"two": runs_of(folder / "two", seeds=range(2)), "other": folder / "other", "empty": folder / "empty"}
    found["empty"].mkdir()
    for k in range(3):
        simulate(found["other"] / str(k), Engine("other"), (2, 4), 10.0, seed=k, repeat=k)
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--baseline", "none", "{runs}"], "there is no baseline at none", id="no baseline"),
        pytest.param(["--baseline", "{empty}", "{runs}"], "make one with --save-baseline", id="an empty folder"),
        pytest.param(["--baseline", "{baseline}", "{other}"], "has no runs of other; it has vllm", id="another engine"),
        pytest.param(
            ["--baseline", "{baseline}", "{runs}", "--slo", "ttft_p99=1"],
            "saved with other objectives",
            id="objectives",
        ),
        pytest.param(
            ["--baseline", "{baseline}", "{two}", "--allow-missing"], "a gate needs 3 runs of each", id="two runs"
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(places: dict[str, Path], arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["gate", *(text.format(**places) for text in arguments)])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_saved_baseline_is_read_as_the_runs_were(baseline: Path, tmp_path: Path) -> None:
    """Not one check less than against the whole runs."""
    runs = runs_of(tmp_path / "runs")
    whole, saved = (json.loads(gate(place, str(runs), "--json").stdout) for place in (runs, baseline))
    assert len(whole["checks"]) == len(saved["checks"])
    assert {each["comparison"]["ratio"]["value"] for each in saved["checks"] if each["comparison"]["ratio"]} <= {
        1.0,
        None,
    }
