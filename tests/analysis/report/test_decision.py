"""What a report recommends and what tokens cost: only what the numbers and their intervals support."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from enginebench.analysis.compare.comparison import compare
from enginebench.analysis.data.load import load_run
from enginebench.analysis.first_screen import PlannedReplicas
from enginebench.analysis.plan.alternatives import Alternatives
from enginebench.analysis.plan.prices import dollars
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.report.card import card
from enginebench.analysis.report.contents import report_of
from enginebench.analysis.report.costs import Costs, cost_table, saved
from enginebench.analysis.report.decision import Decision, decide, replicas_of
from enginebench.analysis.report.document import as_json_document
from enginebench.analysis.report.markdown import markdown
from enginebench.analysis.report.page import render
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.load import Users
from enginebench.records.slo import Objective, parse_objectives
from enginebench.records.view import Estimate
from tests.support.analysis.compared import judged_view, run
from tests.support.analysis.printed import printed, reported
from tests.support.analysis.synthetic import Engine, simulate


@pytest.fixture(scope="module")
def repeats(tmp_path_factory: pytest.TempPathFactory) -> list[RunSummary]:
    """Three runs of each of two engines, one with twice the slots, within 10 s at every load."""
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


def texts(decision: Decision, topic: str, engine: str | None) -> list[str]:
    return [each.text for each in decision.advice if (each.topic, each.engine) == (topic, engine)]


def costs_of(runs: list[RunSummary], **prices: str) -> Costs:
    settings = PlanSettings(price=tuple((label.removeprefix("all"), price) for label, price in prices.items()))
    costs = decide(runs, compare(runs), settings).costs
    assert costs is not None
    return costs


def test_cost_is_the_price_of_an_hour_over_the_tokens_of_an_hour(repeats: list[RunSummary]) -> None:
    costs = costs_of(repeats, all="3.6")
    slow, quick = costs.of("slow"), costs.of("quick")
    for cost in (slow, quick):
        assert cost.stage == "8 users"
        assert cost.throughput.value is not None
        assert cost.throughput.high is not None
        assert cost.cost.value == pytest.approx(1e6 / cost.throughput.value / 3600 * 3.6)
        assert cost.cost.low == pytest.approx(1e6 / cost.throughput.high / 3600 * 3.6)
    tokens = compare(repeats).of("8 users", "quick", "throughput", "slow")
    assert tokens is not None
    assert costs.baseline == "slow"
    assert quick.against == tokens.ratio.inverse, "the comparison's own ratio"
    assert quick.against.value == pytest.approx(0.5, rel=0.05)
    assert slow.against.value == 1


def test_cost_is_that_at_the_highest_load_within_the_objectives(repeats: list[RunSummary]) -> None:
    """One engine waits for slots from two users on, and the other from four."""
    slo = parse_objectives(["ttft_p50=0.15"])
    runs = [summarise(load_run(run.folder), slo) for run in repeats]
    costs = costs_of(runs, all="3.6")
    slow, quick = costs.of("slow"), costs.of("quick")
    assert (slow.stage, quick.stage) == ("1 user", "4 users")
    assert slow.throughput.value is not None
    assert quick.throughput.value is not None
    assert quick.against.value == pytest.approx(slow.throughput.value / quick.throughput.value, rel=0.01)
    report = report_of(runs, compare(runs), decide(runs, compare(runs), PlanSettings(price=(("", "3.6"),))))
    answer = report.screen.table
    assert answer is not None
    assert answer.headers == ("engine", "users within the SLO", "per 1M tokens")
    assert [row[:2] for row in answer.rows] == [("quick", "4 (8 missed)"), ("slow", "1 (4 missed)")]
    assert quick.cost.value is not None
    assert answer.rows[0][2] == dollars(quick.cost.value)


def test_a_dearer_replica_must_be_faster_by_as_much(repeats: list[RunSummary]) -> None:
    costs = costs_of(repeats, slow="1", quick="3")
    assert costs.of("quick").against.value == pytest.approx(1.5, rel=0.05)
    assert "more [" in saved(costs.of("quick"))
    assert cost_table(costs).headers[4:6] == ("price of an hour", "cost per 1M tokens")


def test_what_differs_in_format_is_compared_and_named(repeats: list[RunSummary]) -> None:
    other = [replace(run, engine={**(run.engine or {}), "dtype": "float32"}) for run in repeats[3:]]
    costs = costs_of([*repeats[:3], *other], all="2")
    assert costs.of("quick").against.value == pytest.approx(0.5, rel=0.05)
    table = cost_table(costs)
    assert [row[table.headers.index("differs in")] for row in table.rows] == ["", "number format"]
    host = [replace(run, host={**run.host, "cpu": "another"}) for run in repeats[3:]]
    blocked = costs_of([*repeats[:3], *host], all="2")
    assert blocked.of("quick").against.value is None
    assert blocked.of("quick").cost.value is not None
    assert "quick (quick and slow" in cost_table(blocked).caption or "different clients" in cost_table(blocked).caption
    allowed = decide([*repeats[:3], *host], compare([*repeats[:3], *host], allow_different=True)).costs
    assert allowed is not None
    assert allowed.of("quick").against.value == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("against", "claimed", "text"),
    [
        pytest.param(Estimate(0.5, 0.4, 0.6), True, "50 % less [40 %, 60 %]", id="cheaper"),
        pytest.param(Estimate(1.5, 1.2, 1.8), True, "50 % more [20 %, 80 %]", id="dearer"),
        pytest.param(Estimate(0.9, 0.8, 1.1), False, "no difference is shown", id="not claimed"),
        pytest.param(Estimate(0.5, why="1 < 3 repeats"), False, "–", id="no interval"),
    ],
)
def test_a_saving_is_said_only_where_it_is_claimed(
    repeats: list[RunSummary], against: Estimate, claimed: bool, text: str
) -> None:
    cost = costs_of(repeats, slow="1", quick="3").of("quick")
    assert saved(replace(cost, against=against, claimed=claimed)) == text


def test_a_cost_is_claimed_beyond_the_practical_margin_alone(repeats: list[RunSummary]) -> None:
    """With an interval as narrow as may be: of prices that leave 1 % between the two, no difference is said."""
    same = costs_of(repeats, all="1").of("quick").against.value
    assert same is not None
    nearly = costs_of(repeats, slow="1", quick=str(1.01 / same)).of("quick")
    assert nearly.against.value == pytest.approx(1.01)
    assert not nearly.claimed
    assert costs_of(repeats, slow="1", quick="3").of("quick").claimed


def test_a_saving_is_less_than_the_baseline_costs(repeats: list[RunSummary]) -> None:
    """`costs 40 % less [38 %, 42 %] than slow`"""
    (text,) = texts(decide(repeats, compare(repeats, "slow")), "cost", "quick")
    assert re.fullmatch(r"A token costs [\d.]+ % less \[[\d.]+ %, [\d.]+ %\] than slow at 8 users\.", text)


def test_a_winner_is_recommended_and_a_draw_is_not(repeats: list[RunSummary]) -> None:
    assert texts(decide(repeats, compare(repeats)), "engine", "quick") == ["Serve with quick."]
    single = [repeats[0], repeats[3]]
    assert [each for each in decide(single, compare(single)).advice if each.topic == "engine"] == []


def test_there_is_one_answer_to_how_many_users(repeats: list[RunSummary]) -> None:
    comparison = compare(repeats)
    capacity = comparison.capacity("slow")
    assert capacity is not None
    assert texts(decide(repeats, comparison), "load", "slow") == [capacity.sentence]
    assert (capacity.met, capacity.missed) == (8.0, None)
    assert reported(repeats).capacities == comparison.capacities


def test_a_fitted_maximum_is_named_as_fitted(repeats: list[RunSummary]) -> None:
    decision = decide(repeats[:3], compare(repeats[:3]))
    (text,) = texts(decision, "limit", "slow")
    assert text == f"{decision.laws['slow'].sentence}."
    assert "measured at most" in text
    assert "the fitted law" in text


def test_what_failed_has_no_cost(tmp_path: Path) -> None:
    run = summarise(load_run(simulate(tmp_path / "bad", Engine("bad", failures=0.4), (2, 4), 6.0)))
    costs = decide([run], compare([run])).costs
    assert costs is not None
    assert costs.engines[0].hours.value is None
    assert "bad (" in cost_table(costs).caption
    assert "failed" in cost_table(costs).caption


def test_replicas_and_their_cost_stand_in_the_answer(repeats: list[RunSummary]) -> None:
    replicas = [
        PlannedReplicas(
            "slow", "80 users", 10, 9, 12, 1606.0, "80 users: 10 replicas.", False, ("on a knife edge", "no slots")
        ),
        PlannedReplicas("quick", "80 users", None, None, None, None, "Not planned: too few."),
    ]
    report = report_of(repeats, compare(repeats), decide(repeats, compare(repeats), None, replicas))
    answer = report.screen.table
    assert answer is not None
    cells = {row[0]: row[2:4] for row in answer.rows}
    assert answer.headers[2:4] == ("replicas for 80 users", "a month")
    assert cells == {"slow": ("10 [9, 12]*", "$1,606*"), "quick": ("–", "–")}
    assert answer.caption.endswith("*: not reliable.")
    for text in (printed(report, 160), markdown(report)):
        assert "Not planned: too few." in text
    assert "warn slow: on a knife edge (1 more on the page)." in printed(report, 160)
    assert "- **slow, warning**: on a knife edge.\n- **slow, warning**: no slots.\n" in markdown(report)
    assert render(report).count("<dd>on a knife edge.</dd>") == 1
    assert as_json_document(report)["decision"]["replicas"][0]["warnings"] == ["on a knife edge", "no slots"]


@pytest.mark.parametrize("reliable", [True, False])
def test_a_plan_that_is_not_reliable_heads_neither_report_nor_card(reliable: bool, repeats: list[RunSummary]) -> None:
    sentence = "80 users: slow needs the fewest, 10 replicas."
    replicas = [PlannedReplicas("slow", "80 users", 10, 9, 12, None, "80 users: 10 replicas.", reliable)]
    report = report_of(repeats, compare(repeats), decide(repeats, compare(repeats), None, replicas, sentence))
    screen, title = report.screen, " ".join(re.findall(r'weight="650">([^<]*)<', card(report)))
    assert (screen.answer == sentence) is title.startswith(sentence) is reliable
    assert reliable or title.startswith(report.headline[:40])
    assert dict(screen.sentences).get("the peak") == (None if reliable else sentence)


@pytest.mark.parametrize(
    ("months", "lead"),
    [
        pytest.param((1460.0, 2920.0), "quick costs $1,460 a month less than slow", id="both have a price"),
        pytest.param((1460.0, None), "quick needs 1 replica fewer than slow", id="the best one alone has"),
        pytest.param((None, 2920.0), "quick needs 1 replica fewer than slow", id="the other one alone has"),
    ],
)
def test_dollars_are_compared_with_dollars(
    repeats: list[RunSummary], months: tuple[float | None, ...], lead: str
) -> None:
    replicas = [
        PlannedReplicas(engine, "80 users", count, count, count, month, "")
        for engine, count, month in zip(("quick", "slow"), (1, 2), months, strict=True)
    ]
    screen = report_of(repeats, compare(repeats), decide(repeats, compare(repeats), None, replicas)).screen
    assert dict(screen.sentences)["trade-off"].startswith(lead)


def test_what_was_not_asked_for_is_one_line(repeats: list[RunSummary]) -> None:
    plain = [
        replace(run, objectives=(), stages=tuple(replace(s, judgements=()) for s in run.stages)) for run in repeats
    ]
    report = reported(plain)
    line = "Not asked for: users within an SLO (--slo ttft_p99=1), replicas for a peak (--peak 80users) and costs"
    assert report.decision.not_asked.startswith(line)
    for text in (printed(report, 300), markdown(report), html.unescape(render(report))):
        assert text.count("Not asked for: ") == 1
        assert text.index("Second lines") < text.index("Not asked for")
    assert "--slo" not in reported(repeats).decision.not_asked


def test_the_page_has_every_sentence_and_every_number(repeats: list[RunSummary]) -> None:
    report = reported(repeats, PlanSettings(price=(("", "2"),)))
    page = render(report)
    text = html.unescape(re.sub("<[^>]+>", "", page))
    assert [each.text for each in report.decision.advice if each.text not in text] == []
    assert report.decision.costs is not None
    for row in cost_table(report.decision.costs).rows:
        for cell in row:
            assert f">{cell}</td>" in page or f"</i>{cell}</td>" in page


@pytest.mark.parametrize("same_prompts", [True, False], ids=["in pairs", "not in pairs"])
def test_a_repeat_without_the_stage_of_the_costs_is_left_out(same_prompts: bool) -> None:
    """`wide` holds 20 users, a load that its last run lacks; `narrow` holds 10."""
    slo, runs = Objective("ttft", 0.95, 0.5), []
    for label, (share, rate) in {"narrow": (0.2, 100.0), "wide": (0.999, 200.0)}.items():
        for k in range(4):
            numbers = (1 + k / 100) * rate
            stages = [judged_view(10, slo, 0.999, throughput=numbers), judged_view(20, slo, share, throughput=numbers)]
            prompts = {"prompt_set": f"set {k}" if same_prompts else f"{label} {k}"}
            stages = stages[: 1 if (label, k) == ("wide", 3) else 2]
            runs.append(run(label, stages, k, objectives=(slo,), workload=prompts))
    costs = decide(runs, compare(runs)).costs
    assert costs is not None
    wide = costs.of("wide")
    assert wide.stage == "20 users"
    assert wide.against.value == pytest.approx(0.5 if same_prompts else 0.5 * 1.015 / 1.01, rel=1e-3)
    assert wide.against.n == 3


def test_a_peak_is_planned_for_each_setting_of_an_engine(
    repeats: list[RunSummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `enginebench plan` does: runs of one label with other settings are no repeats."""
    few, many = ("slow (max_concurrency=2)", "slow (max_concurrency=64)")
    runs = [replace(repeats[0], engine={**(repeats[0].engine or {}), "max_concurrency": 64}), *repeats[1:]]
    planned: list[str] = []

    def made(groups: Mapping[str, Sequence[RunSummary]], settings: PlanSettings) -> Alternatives:
        planned.extend(groups)
        return Alternatives((), priced=False)

    monkeypatch.setattr("enginebench.analysis.plan.alternatives.make_alternatives", made)
    replicas_of(runs, PlanSettings(peak=Users(80), slo=parse_objectives(["ttft_p50=10"])))
    assert sorted(planned) == ["quick", few, many]
    replicas = [
        PlannedReplicas(name, "80 users", count, count, count, None, f"80 users: {count} replicas.")
        for count, name in enumerate((many, "quick", few), 2)
    ]
    report = report_of(runs, compare(runs), decide(runs, compare(runs), None, replicas))
    assert report.screen.table is not None
    assert [row[0] for row in report.screen.table.rows] == [many, "quick", few]
    assert texts(report.decision, "replicas", few) == ["80 users: 4 replicas."]
    page = html.unescape(re.sub("<[^>]+>", "", render(report)))
    assert f"{few}, replicas80 users: 4 replicas." in page
