"""What a report recommends and what tokens cost: only what the numbers and their intervals support."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path

import pytest

from analysis.compare.winner import compare
from analysis.data.load import load_run
from analysis.plan.settings import PlanSettings
from analysis.report.costs import saved, table
from analysis.report.decision import Advice, Decision, decide
from analysis.report.page import render
from analysis.summary.run_summary import RunSummary, summarise
from records.slo import parse_objectives
from records.view import Estimate
from tests.support.analysis.synthetic import Engine, simulate


@pytest.fixture(scope="module")
def repeats(tmp_path_factory: pytest.TempPathFactory) -> list[RunSummary]:
    """Three runs of each of two engines, one with twice the places."""
    folder = tmp_path_factory.mktemp("repeats")
    slow, quick = Engine("slow", slots=2), Engine("quick", slots=4)
    return [
        summarise(
            load_run(simulate(folder / f"{engine.label}-{k}", engine, (1, 4, 8), 6.0, seed=k, repeat=k)),
            parse_objectives(["ttft_p50=10"]),
        )
        for engine in (slow, quick)
        for k in range(3)
    ]


def said(decision: Decision, topic: str, engine: str | None) -> Advice:
    (found,) = [one for one in decision.advice if (one.topic, one.engine) == (topic, engine)]
    return found


def test_cost_is_the_inverse_of_throughput_with_its_interval(repeats: list[RunSummary]) -> None:
    decision = decide(repeats, compare(repeats), PlanSettings(price=(("", "3.6"),)))
    assert decision.costs is not None
    slow, quick = decision.costs.engines
    assert slow.throughput.value is not None
    assert slow.cost.value == pytest.approx(1e6 / slow.throughput.value / 3600 * 3.6)
    assert slow.throughput.high is not None
    assert slow.cost.low == pytest.approx(1e6 / slow.throughput.high / 3600 * 3.6)
    assert quick.against.value == pytest.approx(0.5, rel=0.05)
    assert quick.against.low is not None
    assert quick.against.high is not None
    assert quick.against.low < quick.against.value < quick.against.high < 1  # type: ignore[operator]
    assert "less [" in said(decision, "cost", "quick").said


def test_a_dearer_replica_must_be_faster_by_as_much(repeats: list[RunSummary]) -> None:
    prices = (("slow", "1"), ("quick", "3"))
    costs = decide(repeats, compare(repeats), PlanSettings(price=prices)).costs
    assert costs is not None
    assert costs.engines[1].against.value == pytest.approx(1.5, rel=0.05)
    assert "more [" in saved(costs.engines[1].against)
    assert table(costs).headers[3:5] == ("price of an hour", "cost per 1M tokens")


@pytest.mark.parametrize(
    ("against", "text"),
    [
        pytest.param(Estimate(0.5, 0.4, 0.6), "50 % less [40 %, 60 %]", id="cheaper"),
        pytest.param(Estimate(1.5, 1.2, 1.8), "50 % more [20 %, 80 %]", id="dearer"),
        pytest.param(Estimate(0.9, 0.8, 1.1), "no difference is shown", id="the interval holds 1"),
        pytest.param(Estimate(0.5, why="1 < 3 repeats"), "n/a, 1 < 3 repeats", id="no interval"),
    ],
)
def test_a_saving_is_claimed_only_where_the_interval_allows_it(against: Estimate, text: str) -> None:
    assert saved(against) == text


def test_a_winner_is_recommended_and_a_draw_is_not(repeats: list[RunSummary]) -> None:
    found = compare(repeats)
    assert said(decide(repeats, found), "engine", "quick").said.startswith("Serve with quick. quick served ")
    single = [repeats[0], repeats[3]]
    none = said(decide(single, compare(single)), "engine", None)
    assert none.text is None
    assert "none is recommended over the others, because 1 < 3 repeats" in none.said


def test_the_load_of_a_replica_is_the_lower_end_of_its_interval(repeats: list[RunSummary]) -> None:
    decision = decide(repeats[:3], compare(repeats[:3]))
    text = said(decision, "load", "slow").said
    assert text == (
        "Give a replica at most 8 users: every objective is met up to 8 users [8, 8] "
        "(met at 8 users, the highest measured)."
    )
    blind = [
        dataclasses.replace(run, stages=tuple(dataclasses.replace(stage, attainment=None) for stage in run.stages))
        for run in repeats[:3]
    ]
    assert "--slo" in said(decide(blind, compare(blind)), "load", "slow").said


def test_the_law_passes_through_what_was_measured(repeats: list[RunSummary]) -> None:
    (law,) = decide(repeats[:3], compare(repeats[:3])).laws
    largest = max(stage.concurrency.average for run in repeats[:3] for stage in run.stages)
    assert law.fit.curve[-1].in_flight == pytest.approx(largest), "it is drawn no further than it was measured"
    for run in repeats[:3]:
        for stage in run.stages:
            near = min(law.fit.curve, key=lambda point: abs(point.in_flight - stage.concurrency.average)).throughput
            assert near.value == pytest.approx(stage.throughput.value, rel=0.25)
            assert near.low < near.value < near.high  # type: ignore[operator]


def test_what_failed_has_no_cost(tmp_path: Path) -> None:
    run = summarise(load_run(simulate(tmp_path / "bad", Engine("bad", failures=0.4), (2, 4), 6.0)))
    costs = decide([run], compare([run])).costs
    assert costs is not None
    assert costs.engines[0].hours.value is None
    assert "failed" in (costs.engines[0].hours.why or "")


def test_what_is_not_known_of_several_engines_for_one_reason_is_said_once() -> None:
    advice = (
        Advice("load", "a", None, "no objective"),
        Advice("cost", "a", "A million tokens cost $2."),
        Advice("load", "b", None, "no objective"),
        Advice("cost", "b", None, "no price"),
        Advice("load", "c", None, "no objective"),
        Advice("cost", "c", None, "no price"),
        Advice("limit", "a", "100 tokens/s."),
    )
    assert [(one.heading, one.said) for one in Decision(advice, None, ()).for_reading] == [
        ("load", "n/a: no objective."),
        ("a, cost", "A million tokens cost $2."),
        ("cost", "n/a: no price (b and c)."),
        ("a, limit", "100 tokens/s."),
    ]
    both = Decision((*advice[-2:], Advice("cost", "b", "A million tokens cost $3.")), None, ())
    assert [one.heading for one in both.for_reading] == ["c, cost", "b, cost", "a, limit"], "topic by topic"


def test_the_page_has_every_sentence_and_every_number(repeats: list[RunSummary]) -> None:
    comparison = compare(repeats)
    decision = decide(repeats, comparison, PlanSettings(price=(("", "2"),)))
    page = render(repeats, comparison, decision)
    assert page.count("<dt>") >= len(decision.for_reading)
    text = html.unescape(re.sub("<[^>]+>", "", page))
    assert [one.said for one in decision.advice if one.text and one.said not in text] == []
    assert decision.costs is not None
    for row in table(decision.costs).rows:
        for cell in row:
            assert f">{cell}</td>" in page
