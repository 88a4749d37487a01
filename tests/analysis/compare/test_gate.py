"""`enginebench gate`: what became worse than a baseline, and what CI servers get to read."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from analysis.compare.gate import gate_of
from analysis.compare.gate_checks import Check, Sample, decide
from analysis.compare.gate_outputs import markdown, worse
from analysis.stats.repeats import chance_error
from analysis.summary.run_summary import read_summary
from enginebench import app
from tests.support.analysis.synthetic import Engine, simulate

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)


def sample(baseline: tuple[float, ...], current: tuple[float, ...], **changes: Any) -> Sample:
    better: Literal["lower"] = "lower"
    one = Sample("vllm", "8 users", "ttft p50", "TTFT p50", "s", better, True, baseline, current)
    return replace(one, **changes)


def check(baseline: tuple[float, ...], current: tuple[float, ...], **changes: Any) -> Check:
    return decide([sample(baseline, current, **changes)])[0]


def times(factor: float, values: tuple[float, ...] = STEADY) -> tuple[float, ...]:
    return tuple(factor * value for value in values)


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
    assert found.worse.value == pytest.approx(factor - 1)


@pytest.mark.parametrize(
    ("factor", "severity", "worse"),
    [(0.75, "critical", 0.25), (0.85, "warning", 0.15), (1.3, "ok", -0.3)],
)
def test_throughput_by_how_much_less_it_is(factor: float, severity: str, worse: float) -> None:
    found = check(STEADY, times(factor), better="higher")
    assert found.severity == severity
    assert found.worse.value == pytest.approx(worse)
    assert found.worse.low is not None
    assert found.worse.high is not None
    assert found.worse.low < worse < found.worse.high


def test_a_large_change_that_may_be_chance_is_unclear() -> None:
    """30 % longer on average, with runs that differ by half."""
    assert check((1.0, 0.6, 1.5, 0.8, 1.2), (1.3, 0.8, 1.9, 1.0, 1.6)).severity == "unclear"


def test_intervals_are_those_of_all_checks_together() -> None:
    """The same 15 % are beyond chance among one check, and not among a hundred."""
    noisy = sample((1.0, 1.05, 0.95, 1.04, 0.96), (1.15, 1.2, 1.1, 1.19, 1.11))
    assert decide([noisy])[0].severity == "warning"
    many = decide([noisy, *(sample(STEADY, STEADY) for _ in range(300))])
    assert [one.severity for one in many[:2]] == ["unclear", "ok"]


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
    assert check((0.0,) * 5, current, relative=False, unit="share").severity == severity


def test_a_share_is_worse_by_no_more_than_100_points() -> None:
    """Three runs that differ much, and an interval that holds together with those of 300 other checks."""
    wide = replace(sample((0.0, 0.5, 0.1), (0.9, 0.1, 0.6), relative=False, unit="share"))
    found = next(one for one in decide([wide, *(sample(STEADY, STEADY) for _ in range(300))]) if one.sample is wide)
    assert (found.worse.low, found.worse.high) == (-1, 1)
    assert worse(found) == "+33.3 points [−100.0, +100.0]"


@pytest.mark.parametrize(("requests", "severity"), [(20, "unclear"), (1000, "critical")])
def test_the_same_few_failures_in_every_run_may_be_chance(requests: int, severity: str) -> None:
    """5 % in each of three runs is one failure of 20, or 50 of 1 000."""
    least = chance_error((0.05,) * 3, (0.0,) * 3, (requests,) * 3, (requests,) * 3)
    assert check((0.0,) * 3, (0.05,) * 3, relative=False, least_error=least).severity == severity


def test_a_percentile_that_now_falls_among_failures_is_critical() -> None:
    assert check(STEADY, (math.inf,) * 5).severity == "critical"
    assert check(STEADY, (math.inf, *STEADY[1:])).severity == "unclear", "in one run of five it may be chance"
    assert check((math.inf, *STEADY[1:]), STEADY).severity == "ok"
    assert check((math.inf,) * 5, (math.inf,) * 5).severity == "ok"


def test_no_throughput_at_all_is_critical() -> None:
    found = check(STEADY, (0.0,) * 5, better="higher")
    assert found.severity == "critical"
    assert found.worse.value == pytest.approx(1)


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 3 runs of each, better 5; vllm has 2 in the baseline and 5 to judge"):
        check((1.0, 1.0), STEADY)


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
    assert result.stdout == f"5 runs saved in {folder}\n"
    return folder


def test_saving_prints_one_document_where_one_is_wanted(baseline: Path, tmp_path: Path) -> None:
    run = min(baseline.iterdir())
    words = ["gate", "--baseline", str(tmp_path), "--save-baseline", str(run)]
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout) == {
        "saved": [str(tmp_path / run.name / "summary.json")]
    }
    assert CliRunner().invoke(app, words).stdout == f"1 run saved in {tmp_path}\n"


def gate(baseline: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["gate", "--baseline", str(baseline), *arguments])


def test_identical_versions_pass(baseline: Path, tmp_path: Path) -> None:
    result = gate(baseline, str(runs_of(tmp_path, seeds=range(5, 10))))
    assert result.exit_code == 0, result.output
    assert "Passed: nothing is worse by more than 20 % (24 checks, 5 runs against 5 of the baseline)." in " ".join(
        result.stdout.split()
    )


def test_a_regression_fails_and_is_told_to_machines(baseline: Path, tmp_path: Path) -> None:
    """13 ms a token instead of 10: TPOT is 30 % worse, and so is most of E2E."""
    runs = runs_of(tmp_path / "runs", tpot=0.013, seeds=range(5, 10))
    xml, comment = tmp_path / "gate.xml", tmp_path / "gate.md"
    result = gate(baseline, str(runs), "--junit", str(xml), "--markdown", str(comment), "--json")
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert document["passed"] is False
    critical = {
        (one["sample"]["stage"], one["sample"]["measure"])
        for one in document["checks"]
        if one["severity"] == "critical"
    }
    assert {("2 users", "tpot p50"), ("4 users", "tpot p50")} <= critical
    assert not [one for one in critical if one[1].startswith("ttft")]
    root = ElementTree.parse(xml).getroot()
    failures = {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None}
    assert {"TPOT p50", "TPOT p95"} <= failures
    assert sum(int(suite.get("failures", "0")) for suite in root) == len(critical)
    assert sum(int(suite.get("tests", "0")) for suite in root) == len(document["checks"]) == 24
    text = comment.read_text()
    assert "### ❌ enginebench gate" in text
    assert re.search(r"\| ❌ critical \| vllm \| 4 users \| TPOT p50 \| 10\.\d ms \| 13\.\d ms \| \+(29|30|31)\.", text)
    assert "<details><summary>All 24 checks</summary>" in text


def test_the_comment_says_of_which_engine_and_shows_its_name(tmp_path: Path) -> None:
    slower = [
        sample(STEADY, times(1.3), engine=name, stage=f"{n} users") for name in ("a|<b> *c*", "d_e") for n in (2, 4)
    ]
    same = sample(STEADY, STEADY, engine="d_e", measure="memory", title="memory")
    found = gate_of([*slower, same], 0.2, 5, 5, [])
    assert found.sentence == (
        "Failed: worse by more than 20 % in TTFT p50 of a|<b> *c* at 2 users, TTFT p50 of a|<b> *c* at 4 users, "
        "TTFT p50 of d_e at 2 users and 1 more (5 checks, 5 runs against 5 of the baseline)."
    )
    text = markdown(found)
    assert r"| ❌ critical | a\|\<b> \*c\* | 2 users | TTFT p50 | 1.00 s | 1.30 s | +30.0 % [" in text
    assert re.search(r"✅ ok \| d_e \| 8 users \| memory \| 1\.00 s \| 1\.00 s \| 0 % \[−\d", text)
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
    assert stage.latencies["tpot"].p50.value == pytest.approx(0.02, rel=0.05)


@pytest.fixture(scope="module")
def places(baseline: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs: three of the baseline's engine, two of it, of another engine, of another machine."""
    folder = tmp_path_factory.mktemp("places")
    found = {"baseline": baseline, "runs": runs_of(folder / "runs", seeds=range(3))}
    found |= {"two": runs_of(folder / "two", seeds=range(2)), "other": folder / "other", "host": folder / "host"}
    for k in range(3):
        simulate(found["other"] / str(k), Engine("other"), (2, 4), 10.0, seed=k, repeat=k)
        one = Engine("vllm", prefill=0.05)
        simulate(found["host"] / str(k), one, (2, 4), 10.0, seed=k, repeat=k, host={"cpu": "Another"})
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--baseline", "none", "{runs}"], "there is no baseline at none", id="no baseline"),
        pytest.param(["--baseline", "{baseline}", "{other}"], "has no runs of other; it has vllm", id="another engine"),
        pytest.param(
            ["--baseline", "{baseline}", "{runs}", "--slo", "ttft_p99=1"],
            "saved with other objectives",
            id="objectives",
        ),
        pytest.param(["--baseline", "{baseline}", "{two}"], "a gate needs 3 runs of each", id="two runs"),
        pytest.param(["--baseline", "{baseline}", "{host}"], "measured by different clients", id="another machine"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    baseline: Path, places: dict[str, Path], arguments: list[str], said: str
) -> None:
    result = CliRunner().invoke(app, ["gate", *(text.format(**places) for text in arguments)])
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output
    if "{host}" in arguments:
        assert gate(baseline, str(places["host"]), "--allow-different").exit_code == 0
