"""Who won, by how much, and when no winner is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.compare.winner import compare
from analysis.data.load import load_run
from analysis.summary.run_summary import RunSummary, summarise
from tests.support.analysis.draws import width
from tests.support.analysis.synthetic import Engine, simulate

QUICK = Engine("quick", slots=4, tpot=0.01)
SLOW = Engine("slow", slots=1, tpot=0.01)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    return run(tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    return run(tmp_path_factory.mktemp("slow"), SLOW)


def run(folder: Path, engine: Engine, loads: tuple[int, ...] = (4, 8), seed: int = 0) -> RunSummary:
    return summarise(load_run(simulate(folder, engine, loads, 15.0, seed)))


def repeated(summary: RunSummary, factors: Sequence[float]) -> list[RunSummary]:
    """Runs that differ from one another by so much in throughput, and were interleaved with the other engine's."""
    return [dataclasses.replace(scaled(summary, factor), repeat=k) for k, factor in enumerate(factors)]


def scaled(summary: RunSummary, factor: float) -> RunSummary:
    stages = tuple(
        dataclasses.replace(
            stage, throughput=dataclasses.replace(stage.throughput, value=factor * (stage.throughput.value or 0))
        )
        for stage in summary.stages
    )
    return dataclasses.replace(summary, stages=stages)


NEAR = (1.0, 0.99, 1.01, 0.995, 1.005)
CLOSE = (1.0, 0.992, 1.008, 0.995, 1.005)


def test_one_run_each_names_no_winner(quick: RunSummary, slow: RunSummary) -> None:
    """Four slots against one: four times the tokens, in this run."""
    comparison = compare([slow, quick])
    assert comparison.winner is None
    assert comparison.standings[1].ratio.value == pytest.approx(4, rel=0.05)
    assert comparison.standings[1].ratio.low is None
    assert comparison.sentence.startswith("quick served 4.0× the tokens of slow at 8 users in this run. No winner")
    assert comparison.sentence.endswith("is named: a winner needs 3 repeats of each.")


def test_the_closing_sentence_says_who_won_by_how_much(quick: RunSummary, slow: RunSummary) -> None:
    comparison = compare([*repeated(slow, CLOSE), *repeated(quick, NEAR)])
    assert comparison.winner == "quick"
    ratio = comparison.standings[1].ratio
    assert ratio.value == pytest.approx(4, rel=0.05)
    assert comparison.sentence.startswith("quick served 4.0× [3.9, 4.0] ")
    assert comparison.sentence.endswith("the tokens of slow at 8 users, over 5 repeats.")
    assert [standing.runs for standing in comparison.standings] == [5, 5]


def test_the_sentence_does_not_depend_on_the_order(quick: RunSummary, slow: RunSummary) -> None:
    runs = [*repeated(slow, NEAR), *repeated(quick, NEAR)]
    assert compare(runs).sentence == compare(runs[::-1]).sentence


def test_three_engines(quick: RunSummary, slow: RunSummary, tmp_path: Path) -> None:
    middle = run(tmp_path, Engine("middle", slots=2, tpot=0.01))
    comparison = compare([one for engine in (slow, middle, quick) for one in repeated(engine, NEAR)])
    assert [standing.label for standing in comparison.standings] == ["quick", "middle", "slow"]
    assert comparison.sentence.startswith("quick served the most tokens at 8 users: ")
    assert " those of middle and " in comparison.sentence
    assert comparison.winner == "quick"


def test_a_difference_that_may_be_chance_names_no_winner(quick: RunSummary) -> None:
    twin = dataclasses.replace(scaled(quick, 1.01), label="twin")
    comparison = compare([*repeated(quick, (1.0, 0.97, 1.03)), *repeated(twin, (0.97, 1.04, 0.99))])
    assert comparison.winner is None
    assert comparison.sentence.endswith("may be chance.")


@pytest.mark.parametrize(("margin", "winner"), [(1.05, None), (1.02, "better")])
def test_a_winner_needs_a_practical_margin(quick: RunSummary, margin: float, winner: str | None) -> None:
    """3 % more in every repeat is significant, and may still be no reason to change engines."""
    better = dataclasses.replace(scaled(quick, 1.03), label="better")
    comparison = compare([*repeated(quick, NEAR), *repeated(better, NEAR)], margin=margin)
    assert comparison.winner == winner
    if winner is None:
        assert comparison.sentence.endswith("is below the practical margin of 1.05.")


def test_an_engine_that_refuses_names_no_winner(slow: RunSummary, tmp_path: Path) -> None:
    """It serves the most tokens, and refuses a third of its requests."""
    refusing = run(tmp_path, Engine("refusing", slots=4, failures=0.35, pause=0.01))
    comparison = compare([*repeated(refusing, NEAR), *repeated(slow, NEAR)])
    assert comparison.standings[0].label == "refusing"
    assert comparison.winner is None
    assert "of the requests to refusing failed." in comparison.sentence


def test_one_engine_has_no_winner(quick: RunSummary) -> None:
    comparison = compare([quick])
    assert comparison.winner is None
    assert comparison.sentence.startswith("quick served ")
    assert "half of the first tokens came within" in comparison.sentence


def test_the_largest_common_load_is_compared(quick: RunSummary, tmp_path: Path) -> None:
    other = run(tmp_path, dataclasses.replace(SLOW, label="other"), (2, 4))
    assert compare([quick, other]).stage == "4 users"


def test_named_stages_are_aligned_by_their_names(tmp_path: Path) -> None:
    names = ("10 prompt tokens", "200 prompt tokens")
    one, two = (
        summarise(load_run(simulate(tmp_path / label, Engine(label), (1, 1), 10.0, names=names)))
        for label in ("one", "two")
    )
    assert [stage.label for stage in one.stages] == list(names)
    assert compare([one, two]).stage == "200 prompt tokens"
    assert " at 200 prompt tokens in this run" in compare([one, two]).sentence


def test_different_scenarios_are_not_compared(quick: RunSummary, slow: RunSummary) -> None:
    comparison = compare([quick, dataclasses.replace(slow, scenario="single")], allow_invalid=True)
    assert comparison.sentence == "Nothing is compared: the runs are of different scenarios (concurrent, single)."
    assert [(f.kind, f.severity) for f in comparison.findings] == [("scenarios_differ", "invalid")]
    assert (comparison.standings, comparison.stage) == ((), None)


def test_how_long_a_sequence_a_server_takes_is_nothing_it_was_asked(quick: RunSummary, slow: RunSummary) -> None:
    longer = dataclasses.replace(slow, workload={**slow.workload, "context": 8192})
    shorter = dataclasses.replace(quick, workload={**quick.workload, "context": 2048})
    assert "workloads_differ" not in {finding.kind for finding in compare([longer, shorter]).findings}


def test_nothing_in_common_is_said(quick: RunSummary, tmp_path: Path) -> None:
    comparison = compare([quick, run(tmp_path, SLOW, (3,))])
    assert (comparison.stage, comparison.winner) == (None, None)
    assert comparison.sentence == "These runs have no stage in common, so nothing is compared."


@pytest.mark.parametrize(
    ("changes", "kind", "severity", "evidence"),
    [
        pytest.param(
            {"workload": {"output_tokens": "64"}},
            "workloads_differ",
            "invalid",
            "were asked different things",
            id="other lengths",
        ),
        pytest.param({"model": "another"}, "workloads_differ", "warn", "served different models", id="another model"),
        pytest.param(
            {"engine": {"dtype": "float32"}},
            "formats_differ",
            "warn",
            "different number formats: bfloat16 and float32",
            id="another number format",
        ),
        pytest.param({"host": {"cpu": "Other"}}, "clients_differ", "warn", "generator's CPU", id="another machine"),
        pytest.param({"workers": 4}, "clients_differ", "warn", "worker processes (1 and 4)", id="more processes"),
    ],
)
def test_unlike_runs_are_told(
    quick: RunSummary, slow: RunSummary, changes: dict[str, Any], kind: str, severity: str, evidence: str
) -> None:
    other = dataclasses.replace(slow, **changes)
    runs = [*repeated(quick, NEAR), *repeated(other, NEAR)]
    comparison = compare(runs)
    assert [(f.severity, f.kind) for f in comparison.findings] == [(severity, kind)], "once for five repeats"
    assert evidence in comparison.findings[0].evidence
    if severity == "invalid":
        assert comparison.sentence == "No winner is named, because their workloads differ: see the findings."
        assert compare(runs, allow_invalid=True).winner == "quick"
    else:
        assert comparison.winner == "quick"
    assert ("(bfloat16 against float32)" in comparison.sentence) == (kind == "formats_differ")


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        pytest.param({"end": 20.0}, "were measured over 11.2 s and", id="another length of the window"),
        pytest.param(
            {"cached_tokens": 30.0},
            "took 0 % and 75 % of their prompt tokens",
            id="a warm prefix cache",
        ),
        pytest.param({"prompt_tokens": 60.0}, "prompts of 40.0 and 60.0 tokens", id="another chat template"),
        pytest.param({"output_tokens": 8.0}, "answers of 16.0 and 8.00 tokens", id="shorter answers"),
    ],
)
def test_other_work_at_the_same_stage_is_told(
    quick: RunSummary, slow: RunSummary, change: dict[str, Any], evidence: str
) -> None:
    last = slow.stages[-1]
    if "end" in change:
        last = dataclasses.replace(last, end=last.start + change["end"])
    else:
        last = dataclasses.replace(last, answers=dataclasses.replace(last.answers, **change))
    other = dataclasses.replace(slow, stages=(*slow.stages[:-1], last))
    first = dataclasses.replace(quick.stages[-1], end=quick.stages[-1].start + 11.2)
    one = dataclasses.replace(quick, stages=(*quick.stages[:-1], first))
    found = [f.evidence for f in compare([one, other]).findings]
    assert any(evidence in text for text in found), found


@pytest.mark.parametrize("setting", [{"seed": 7}, {"prompt_set": "another"}, {"load": "4,8,16"}])
def test_another_seed_is_not_another_workload(quick: RunSummary, slow: RunSummary, setting: dict[str, Any]) -> None:
    assert compare([quick, dataclasses.replace(slow, workload=dict(slow.workload) | setting)]).findings == ()


def test_runs_that_asked_different_prompts_are_not_pairs(quick: RunSummary, slow: RunSummary) -> None:
    """Both engines are faster and slower together, which pairs take out of the ratio."""
    together = (1.0, 0.8, 1.2)
    pairs = [*repeated(quick, together), *repeated(slow, together)]
    apart = [dataclasses.replace(run, workload=dict(run.workload) | {"prompt_set": run.label}) for run in pairs]
    narrow, wide = (compare(runs).standings[1].ratio for runs in (pairs, apart))
    assert width(wide) > 0.5 > 5 * width(narrow) > 0, "what varies inside the runs remains"


def test_an_invalid_run_cannot_win(quick: RunSummary, slow: RunSummary) -> None:
    (finding,) = compare([quick, dataclasses.replace(slow, model="another")]).findings
    void = dataclasses.replace(slow, findings=(dataclasses.replace(finding, severity="invalid"),))
    comparison = compare([quick, void])
    assert comparison.winner is None
    assert comparison.sentence == "No winner is named, because the run of slow is invalid: see the findings."


def test_repeats_that_differ_are_told_and_widen_the_interval(quick: RunSummary, slow: RunSummary) -> None:
    """Three runs at 100 %, 80 % and 120 % of one another's tokens: 20 % apart from run to run."""
    apart = compare([*repeated(quick, (1.0, 0.8, 1.2)), *repeated(slow, CLOSE[:3])])
    near = compare([*repeated(quick, NEAR[:3]), *repeated(slow, CLOSE[:3])])
    (finding,) = apart.findings
    assert finding.kind == "run_to_run"
    assert "3 runs of quick differ in output tokens/s at 4 and 8 users: standard deviation 20 %" in finding.evidence
    assert near.findings == ()
    assert width(apart.standings[1].ratio) > 5 * width(near.standings[1].ratio)
    assert width(apart.standings[0].throughput) > 5 * width(near.standings[0].throughput)


def test_an_engine_that_served_nothing(quick: RunSummary, slow: RunSummary) -> None:
    dead = dataclasses.replace(scaled(slow, 0.0), label="dead")
    comparison = compare([quick, dead])
    assert comparison.winner is None
    assert comparison.sentence.startswith("quick served all tokens and dead none at 8 users in this run.")
    assert compare([dead, dead]).winner is None
