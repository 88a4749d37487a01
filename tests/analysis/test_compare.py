"""Who won, by how much, and when nobody is said to have won."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analysis.run.load import load_run
from analysis.verdict.comparison import compare
from analysis.verdict.statistics import Estimate
from analysis.verdict.summary import RunSummary, summarise
from tests.support.synthetic import Engine, simulate

QUICK = Engine("quick", slots=4, tpot=0.01)
SLOW = Engine("slow", slots=1, tpot=0.01)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    return run(tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    return run(tmp_path_factory.mktemp("slow"), SLOW)


def run(folder: Path, engine: Engine, steps: tuple[int, ...] = (4, 8), seed: int = 0) -> RunSummary:
    return summarise(load_run(simulate(folder, engine, steps, 15.0, seed)))


def test_the_closing_sentence_says_who_won_by_how_much(quick: RunSummary, slow: RunSummary) -> None:
    """Four slots against one: four times the tokens."""
    comparison = compare([slow, quick])
    assert comparison.winner == "quick"
    ratio = comparison.standings[1].ratio
    assert ratio.value == pytest.approx(4, rel=0.05)
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 4 < ratio.high or ratio.value == pytest.approx(4, rel=0.02)
    assert comparison.sentence.startswith("quick served ")
    assert comparison.sentence.endswith("the tokens of slow at 8 users.")
    assert f"[{ratio.low:.2g}" in comparison.sentence or f"[{ratio.low:.3g}" in comparison.sentence


def test_the_sentence_does_not_depend_on_the_order(quick: RunSummary, slow: RunSummary) -> None:
    assert compare([slow, quick]).sentence == compare([quick, slow]).sentence


def test_three_engines(quick: RunSummary, slow: RunSummary, tmp_path: Path) -> None:
    middle = run(tmp_path, Engine("middle", slots=2, tpot=0.01))
    comparison = compare([slow, middle, quick])
    assert [standing.label for standing in comparison.standings] == ["quick", "middle", "slow"]
    assert comparison.sentence.startswith("quick served the most tokens at 8 users: ")
    assert " those of middle and " in comparison.sentence


def test_two_alike_are_not_told_apart(quick: RunSummary, tmp_path: Path) -> None:
    twin = run(tmp_path, dataclasses.replace(QUICK, label="twin"), seed=5)
    comparison = compare([quick, twin])
    if comparison.winner is None:  # they are equal but for chance, and chance may separate intervals of 95 %
        assert comparison.sentence.startswith("Nobody won at 8 users: ")
    assert comparison.standings[1].ratio.value == pytest.approx(1, abs=0.05)


def test_one_engine_has_no_winner(quick: RunSummary) -> None:
    comparison = compare([quick])
    assert comparison.winner is None
    assert comparison.sentence.startswith("quick served ")
    assert "half of the first tokens came within" in comparison.sentence


def test_the_largest_common_step_is_compared(quick: RunSummary, tmp_path: Path) -> None:
    other = run(tmp_path, dataclasses.replace(SLOW, label="other"), (2, 4))
    assert compare([quick, other]).users == 4


def test_nothing_in_common_is_said(quick: RunSummary, tmp_path: Path) -> None:
    comparison = compare([quick, run(tmp_path, SLOW, (3,))])
    assert (comparison.users, comparison.winner) == (None, None)
    assert comparison.sentence == "These runs have no step in common, so nothing is compared."


@pytest.mark.parametrize(
    ("changes", "severity", "evidence"),
    [
        pytest.param(
            {"workload": {"output_tokens": "64"}}, "invalid", "were asked different things", id="other lengths"
        ),
        pytest.param({"model": "another"}, "warn", "differ in the model", id="another model"),
        pytest.param({"host": {"cpu": "Other"}}, "warn", "load generator's CPU", id="another machine"),
    ],
)
def test_unlike_runs_are_told(
    quick: RunSummary, slow: RunSummary, changes: dict[str, Any], severity: str, evidence: str
) -> None:
    other = dataclasses.replace(slow, **changes)
    comparison = compare([quick, other])
    assert (comparison.findings[0].severity, comparison.findings[0].kind) == (severity, "workloads_differ")
    assert evidence in comparison.findings[0].evidence
    if severity == "invalid":
        assert comparison.sentence == "No winner is named, because their workloads differ: see the findings."
        assert compare([quick, other], allow_invalid=True).winner == "quick"
    else:
        assert comparison.winner == "quick"


def test_another_seed_is_not_another_workload(quick: RunSummary, slow: RunSummary) -> None:
    assert compare([quick, dataclasses.replace(slow, workload=dict(slow.workload) | {"seed": 7})]).findings == ()


def test_answers_of_another_length_are_told(quick: RunSummary, tmp_path: Path) -> None:
    short = run(tmp_path, Engine("short", slots=4, tokens=8))
    (finding,) = compare([quick, short]).findings
    assert "answers of 16.0 and 8.00 tokens on average" in finding.evidence
    assert finding.severity == "warn"


def test_an_invalid_run_cannot_win(quick: RunSummary, slow: RunSummary) -> None:
    void = dataclasses.replace(
        slow, findings=(dataclasses.replace(compare([quick, altered(slow)]).findings[0], severity="invalid"),)
    )
    comparison = compare([quick, void])
    assert comparison.winner is None
    assert comparison.sentence == "No winner is named, because the run of slow is invalid: see the findings."


def altered(summary: RunSummary) -> RunSummary:
    return dataclasses.replace(summary, model="another")


def test_repeats_that_differ_are_told_and_widen_the_interval(quick: RunSummary, slow: RunSummary) -> None:
    """Three runs at 100 %, 80 % and 120 % of one another's tokens: 20 % apart from run to run."""
    repeats = [scaled(quick, factor) for factor in (1.0, 0.8, 1.2)]
    comparison = compare([*repeats, slow])
    (finding, _) = (f for f in comparison.findings if f.kind == "run_to_run")
    assert "3 runs of quick differ by 40 %" in finding.evidence
    wide, narrow = comparison.standings[1].ratio, compare([quick, slow]).standings[1].ratio
    assert comparison.standings[0].runs == 3
    assert width(wide) > 5 * width(narrow)


def scaled(summary: RunSummary, factor: float) -> RunSummary:
    stages = tuple(
        dataclasses.replace(
            stage,
            throughput=dataclasses.replace(stage.throughput, value=factor * (stage.throughput.value or 0)),
            throughput_batches=tuple(factor * batch for batch in stage.throughput_batches),
        )
        for stage in summary.stages
    )
    return dataclasses.replace(summary, stages=stages)


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


def test_an_engine_that_served_nothing(quick: RunSummary, slow: RunSummary) -> None:
    assert compare([quick, scaled(slow, 0.0)]).sentence == "quick served the most tokens at 8 users: slow served none."
    assert compare([scaled(quick, 0.0), scaled(slow, 0.0)]).sentence == "None of them served a token at 8 users."
