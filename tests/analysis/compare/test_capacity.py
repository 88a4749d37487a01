"""How much load an engine holds within its objectives: one judge over all repeats, a bracket of measured loads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from enginebench.analysis.compare.capacity import (
    capacities_of,
    capacity_matrix,
    compare_capacities,
    judge_load,
    objective_lines,
    slo_capacity,
)
from enginebench.analysis.compare.command import document
from enginebench.analysis.compare.comparison import compare
from enginebench.analysis.engine_runs import EngineRuns, engine_runs_of
from enginebench.analysis.compare.headline import headline
from enginebench.analysis.compare.tables import criteria, overview_of
from enginebench.analysis.first_screen import PlannedReplicas, candidates_of, first_screen
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.search import ProbeRecord, SearchRecord
from enginebench.records.slo import CAPACITY_GRID, Objective, parse_objectives
from enginebench.records.view import Estimate, Judgement, StageView
from enginebench.settings.schema import UserMistake
from tests.support.analysis.compared import judged, judged_view, run, view

SLO = Objective("ttft", 0.95, 0.5)
SHARES = {True: Estimate(0.99, 0.98, 1.0, 400, effective=400.0), False: Estimate(0.2, 0.1, 0.3, 400, effective=400.0)}


def measured(label: str, shares: Mapping[float, float], repeats: int = 1, **changes: float) -> list[RunSummary]:
    """By load the share of 400 effective requests within the objective, in each of the repeats."""
    stages = [judged_view(load, SLO, share, **changes) for load, share in shares.items()]
    return [run(label, stages, k, objectives=(SLO,)) for k in range(repeats)]


def met_and_missed(runs: Sequence[RunSummary]) -> tuple[float | None, float | None]:
    capacity = slo_capacity(runs)
    assert capacity is not None
    return capacity.met, capacity.missed


@pytest.mark.parametrize(
    ("shares", "bracket"),
    [
        pytest.param({10: 0.999, 20: 0.2}, (10, 20), id="met at 10 and missed at 20: nothing in between"),
        pytest.param({10: 0.999, 14: 0.95, 20: 0.2}, (10, 20), id="what is undecided is no end"),
        pytest.param({10: 0.999, 20: 0.999}, (20, None), id="the most that was measured"),
        pytest.param({10: 0.2, 20: 0.1}, (None, 10), id="missed from the first on"),
        pytest.param({10: 0.95}, (None, None), id="undecided"),
        pytest.param({10: 0.999, 20: 0.2, 30: 0.999}, (10, 20), id="no load above one that misses it"),
    ],
)
def test_the_bracket_lies_between_measured_loads(
    shares: dict[float, float], bracket: tuple[float | None, float | None]
) -> None:
    assert met_and_missed(measured("a", shares)) == bracket


def test_what_it_says() -> None:
    (capacity,) = capacities_of(measured("a", {10: 0.999, 14: 0.96, 20: 0.2}))
    assert capacity.bracket == "10 users (20 miss it)"
    assert capacity.sentence.startswith(
        "a holds 10 users within TTFT p95 ≤ 500 ms and misses it at 20, limited by TTFT p95 ≤ 500 ms; 14 users are "
        "undecided: ≈ "
    )
    (none,) = capacities_of(measured("a", {10: 0.2}))
    assert none.sentence == "a misses TTFT p95 ≤ 500 ms from 10 users on, limited by TTFT p95 ≤ 500 ms."
    assert none.bracket == "< 10 users"
    (one,) = capacities_of(measured("a", {1: 0.999, 10: 0.2}))
    assert one.bracket == "1 user (10 miss it)"
    assert one.sentence.startswith("a holds 1 user within TTFT p95 ≤ 500 ms and misses it at 10")
    (undecided,) = capacities_of(measured("a", {10: 0.999, 14: 0.96}))
    assert undecided.bracket == "10 users (14 undecided)"
    assert undecided.sentence.startswith("a holds 10 users within TTFT p95 ≤ 500 ms; 14 users are undecided: ≈ ")
    (most,) = capacities_of(measured("a", {10: 0.999}))
    assert most.sentence == "a holds 10 users within TTFT p95 ≤ 500 ms, the most that was measured."


def test_a_ratio_that_the_brackets_leave_open_is_not_printed() -> None:
    runs = [*measured("a", {1: 0.999, 10: 0.999}, repeats=3), *measured("b", {1: 0.999, 10: 0.955}, repeats=3)]
    assert headline(compare(runs), runs).startswith(
        "a holds 10 users within TTFT p95 ≤ 500 ms (the most measured); b holds 1 (10 undecided), over 3 repeats. No "
        "winner is named: "
    )


def test_of_many_engines_those_of_one_bracket_share_a_sentence() -> None:
    shares: dict[str, dict[float, float]] = {
        "first": {1: 0.999, 8: 0.999},
        "second": {1: 0.999, 8: 0.999},
        "open": {1: 0.999, 8: 0.95},
        "too": {1: 0.999, 8: 0.95},
        "less": {1: 0.999, 8: 0.2},
        "none": {1: 0.2, 8: 0.1},
    }
    runs = [each for label, of in shares.items() for each in measured(label, of, repeats=3)]
    assert headline(compare(runs), runs).startswith(
        "first and second hold 8 users within TTFT p95 ≤ 500 ms (the most measured), over 3 repeats. "
        "open and too hold 1 (8 undecided); less holds 1 (8 miss it); none misses it at 1 (the least measured). "
        "No winner is named: "
    )


def test_repeats_are_judged_together_in_any_order() -> None:
    """97.4 % of 400 is not enough evidence for 95 %; three times that is."""
    (one,) = engine_runs_of(measured("a", {10: 0.966}))
    assert judge_load(one, "10 users", (SLO,)).answer == "not enough evidence"
    runs = measured("a", {10: 0.966}, repeats=4)
    (four,) = engine_runs_of(runs)
    judgement = judge_load(four, "10 users", (SLO,))
    assert (judgement.answer, judgement.runs) == ("met", 4)
    assert judgement.objectives[0].share.effective == pytest.approx(1600)
    uneven = [
        replace(each, stages=(judged_view(10, SLO, share),))
        for each, share in zip(runs, (0.99, 0.9, 0.97, 1.0), strict=True)
    ]
    answers = [judge_load(engine_runs_of(order)[0], "10 users", (SLO,)) for order in (uneven, uneven[::-1])]
    assert answers[0].objectives[0].share == answers[1].objectives[0].share


def test_runs_that_differ_more_than_their_requests_explain_widen_the_interval() -> None:
    def effective(shares: Sequence[float]) -> float:
        runs = [run("a", [judged_view(10, SLO, share)], k, objectives=(SLO,)) for k, share in enumerate(shares)]
        return judge_load(engine_runs_of(runs)[0], "10 users", (SLO,)).objectives[0].share.effective or 0.0

    assert effective((0.9, 0.9, 0.9)) == pytest.approx(1200)
    assert effective((0.8, 0.9, 1.0)) == pytest.approx(0.9 * 0.1 / (0.01 / 3))


def test_how_much_longer_would_decide() -> None:
    """97 % of 400 within 60 s: more than those are needed for 9 of 10 runs to decide, and 10,000 took 60 s."""
    (engine,) = engine_runs_of(measured("a", {10: 0.97}))
    judgement = judge_load(engine, "10 users", (SLO,))
    assert judgement.seconds_needed is not None
    assert judgement.seconds_needed == pytest.approx((judgement.objectives[0].requests_needed or 0) * 60 / 10_000)
    (engine,) = engine_runs_of(measured("a", {10: 0.95}))
    assert judge_load(engine, "10 users", (SLO,)).seconds_needed is None, "on the boundary no length decides"


def test_a_withheld_interval_is_not_one_of_width_zero() -> None:
    stage = judged_view(10, SLO, 0.999)
    (judgement,) = stage.judgements
    withheld = replace(judgement.share, low=None, high=None, effective=None, why="requests repeat in cycles")
    doubtful = replace(stage, judgements=(Judgement(SLO, withheld, "not enough evidence"),))
    runs = [run("a", [each], k, objectives=(SLO,)) for k, each in enumerate((stage, doubtful))]
    judgement = judge_load(engine_runs_of(runs)[0], "10 users", (SLO,)).objectives[0]
    assert (judgement.answer, judgement.share.low, judgement.share.why) == (
        "not enough evidence",
        None,
        "requests repeat in cycles; 3 repeats would be judged by their spread",
    )


def without_interval(shares: Sequence[float], why: str = "requests repeat in cycles") -> EngineRuns:
    """Runs of which each by itself withholds its interval."""
    runs = []
    for k, share in enumerate(shares):
        stage = judged_view(10, SLO, share)
        withheld = replace(stage.judgements[0].share, low=None, high=None, effective=None, why=why, n=10_000)
        doubtful = Judgement(SLO, withheld, "not enough evidence")
        runs.append(run("a", [replace(stage, judgements=(doubtful,))], k, objectives=(SLO,)))
    return engine_runs_of(runs)[0]


def test_two_runs_without_intervals_say_why_and_that_a_third_helps() -> None:
    engine = without_interval((0.99, 0.98))
    judgement = judge_load(engine, "10 users", (SLO,))
    assert (judgement.answer, judgement.seconds_needed) == ("not enough evidence", None)
    assert judgement.need == "requests repeat in cycles; 3 repeats would be judged by their spread"
    ((_, line),) = objective_lines(engine)
    assert line.endswith("(98.5 % within, requests repeat in cycles; 3 repeats would be judged by their spread)")
    capacity = slo_capacity(engine.runs)
    assert capacity is not None
    assert "10 users are undecided: requests repeat in cycles; 3 repeats" in capacity.sentence


def test_runs_judged_by_their_spread_say_how_many_more_would_decide() -> None:
    """A mean of 97 % with a standard deviation of 2 points: t · 2 / √n is below 2 points from 7 runs on, and three took
    180 s."""
    judgement = judge_load(without_interval((0.95, 0.97, 0.99)), "10 users", (SLO,))
    assert judgement.answer == "not enough evidence"
    assert judgement.seconds_needed == pytest.approx(4 * 60, rel=0.01)
    assert judgement.need == (
        "≈ 240 s more would decide; judged by the spread between runs, so more repeats are needed"
    )


def several(judgements: Sequence[Judgement]) -> EngineRuns:
    """A run for each, of one load."""
    stages = [
        view(10, {}, judgements=(each,), outcomes={} if each.share.value is None else {"ok": 400})
        for each in judgements
    ]
    return engine_runs_of([run("a", [stage], k, objectives=(SLO,)) for k, stage in enumerate(stages)])[0]


@pytest.mark.parametrize(
    ("unknown", "answer"),
    [
        pytest.param(0, "met", id="none was cut off"),
        pytest.param(1, "met", id="one of 401 in each run: they are too few to change it"),
        pytest.param(60, "not enough evidence", id="60 of 460 in each run: they may all have missed it"),
    ],
)
def test_requests_that_were_cut_off_do_not_decide_in_repeats_either(unknown: int, answer: str) -> None:
    """Of the others 99.9 % met it."""
    runs = several([replace(judged(SLO, 0.999, 400), unknown=unknown)] * 3)
    judgement = judge_load(runs, "10 users", (SLO,))
    assert (judgement.answer, judgement.objectives[0].unknown) == (answer, 3 * unknown)
    assert judgement.need == ("" if answer == "met" else "depends on cut-off requests")


def test_two_runs_that_contradict_each_other_decide_nothing() -> None:
    """Together 99.5 % of 5,200 requests met it, by the weight of the longer run."""
    runs = several([judged(SLO, 0.999, 5000), judged(SLO, 0.9, 200)])
    assert [stage.judgements[0].answer for stage in runs.stages] == ["met", "missed"]
    judgement = judge_load(runs, "10 users", (SLO,))
    assert judgement.answer == "not enough evidence"
    assert judgement.need == "the runs contradict each other; 3 repeats would be judged by their spread"


@pytest.mark.parametrize(
    ("shares", "answer"),
    [
        pytest.param((0.999, 0.999), "not enough evidence", id="the others met it: that one may not have"),
        pytest.param((0.2, 0.2), "missed", id="the others missed it"),
        pytest.param((), "not enough evidence", id="there is no other"),
    ],
)
def test_a_run_without_requests_is_no_evidence_that_a_load_is_met(shares: Sequence[float], answer: str) -> None:
    runs = several([*(judged(SLO, share, 400) for share in shares), Judgement.without(SLO)])
    judgement = judge_load(runs, "10 users", (SLO,))
    assert (judgement.answer, judgement.runs) == (answer, len(shares))
    assert answer == "missed" or judgement.need.startswith("no request in the window")


def test_a_load_at_which_the_server_hung_is_not_passed_over() -> None:
    hung = view(20, {}, judgements=(Judgement.without(SLO),), outcomes={})
    runs = [run("a", [judged_view(10, SLO, 0.999), hung], objectives=(SLO,))]
    capacity = slo_capacity(runs)
    assert capacity is not None
    assert capacity.sentence == (
        "a holds 10 users within TTFT p95 ≤ 500 ms; 20 users are undecided: no request in the window."
    )
    assert objective_lines(engine_runs_of(runs)[0]) == [
        (
            "not enough evidence",
            "a, TTFT p95 ≤ 500 ms: met at 10 users; not enough evidence at 20 users (no request in the window)",
        )
    ]


def test_the_matrix_has_loads_at_which_no_request_ended_well() -> None:
    pair = (CAPACITY_GRID[0], next(objective for objective in CAPACITY_GRID if objective.metric == "tpot"))
    stages = [view(10, {}, grid=tuple(judged(objective, 0.999, 400) for objective in pair))]
    stages += [view(20, {}, grid=tuple(map(Judgement.without, pair)), outcomes={})]
    capacity = capacity_matrix(engine_runs_of([run("a", stages)])[0])[pair]
    assert (capacity.met, capacity.undecided) == (10, (20,))


def test_several_objectives_are_them() -> None:
    both = (SLO, Objective("tpot", 0.95, 0.03))
    stages = [
        view(load, {}, judgements=tuple(judged(objective, share, 400) for objective in both))
        for load, share in ((10, 0.999), (20, 0.2))
    ]
    capacity = slo_capacity([run("a", stages, objectives=both)])
    assert capacity is not None
    assert capacity.bracket == "10 users (20 miss them)"
    assert " and misses them at 20" in capacity.sentence


def search(met: float | None, missed: float | None, probes: Mapping[float, str], slo: str = str(SLO)) -> SearchRecord:
    records = tuple(
        ProbeRecord(round(load), load, "below", verdict, 400)  # type: ignore[arg-type]
        for load, verdict in probes.items()
    )
    return SearchRecord("users", "users", (slo,), 0.2, "found", 11.0, met, missed, probes=records)


def searched(label: str, met: float, missed: float, repeat: int = 0, slo: str = str(SLO)) -> RunSummary:
    probes = {met: "met", missed: "missed"}
    stages = [judged_view(load, SLO, share) for load, share in ((met, 0.97), (missed, 0.93))]
    return run(label, stages, repeat, objectives=(SLO,), search=search(met, missed, probes, slo))


def test_a_search_keeps_what_it_certified() -> None:
    """Its own test allowed for being looked at many times: the same shares by themselves would not be enough."""
    assert met_and_missed([searched("a", 10, 12)]) == (10, 12)
    assert met_and_missed(measured("a", {10: 0.96, 12: 0.94})) == (None, None)
    assert met_and_missed([searched("a", 10, 12), searched("a", 9, 14, 1)]) == (9, 14), "the bracket that holds both"


def test_probes_of_several_searches_are_no_samples_to_be_pooled() -> None:
    """Together their requests would be enough, and neither has certified anything."""
    uncertified = search(None, None, {10: "met"})
    runs = [run("a", [judged_view(10, SLO, 1.0)], k, objectives=(SLO,), search=uncertified) for k in range(2)]
    capacity = slo_capacity(runs)
    assert capacity is not None
    assert (capacity.met, capacity.missed) == (None, None)
    assert [judgement.answer for judgement in capacity.loads] == ["not enough evidence"]
    certified = [searched("a", 10, 12), searched("a", 9, 14, 1)]
    both = slo_capacity(certified)
    assert both is not None
    assert {each.load: each.answer for each in both.loads} == {
        9: "met", 10: "not enough evidence", 12: "not enough evidence", 14: "missed"
    }  # fmt: skip


def test_a_search_within_other_objectives_certifies_nothing() -> None:
    assert met_and_missed([searched("a", 10, 12, slo="ttft_p95=9")]) != (10, 12)


def test_capacity_searches_of_several_engines_are_compared() -> None:
    """Which holds more, by what ratio, with what the brackets allow: 20 against 10, at least 20 ÷ 12."""
    runs = [searched(label, *ends, k) for label, ends in (("a", (20.0, 24.0)), ("b", (10.0, 12.0))) for k in range(3)]
    comparison = compare(runs)
    assert (comparison.engines, comparison.stages, comparison.winner) == (("a", "b"), (), "a")
    ratio = comparison.capacity_ratio("a", "b")
    assert ratio is not None
    assert (ratio.ratio.value, ratio.ratio.low, ratio.ratio.high) == pytest.approx((2, 20 / 12, 2.4))
    assert headline(comparison, runs) == (
        "a holds 20 users within TTFT p95 ≤ 500 ms (24 miss it); b holds 10 (12 miss it): 2.0× [1.7, 2.4], over 3 "
        "repeats."
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio", "verdict"),
    [
        pytest.param({10: 1, 20: 0.2}, {10: 1, 20: 0.2}, (1, 0.5, 2), "not shown", id="the same bracket"),
        pytest.param(
            {10: 1, 20: 1}, {10: 1, 20: 0.2}, (2, 1, math.inf), "better", id="one meets what the other misses"
        ),
        pytest.param({10: 1, 20: 0.2}, {10: 1, 20: 1}, (0.5, 0, 1), "worse", id="the other way round"),
        pytest.param({10: 1, 20: 1}, {10: 0.2}, (None, 2, math.inf), "better", id="the other meets none"),
        pytest.param({10: 1, 20: 1}, {10: 0.95, 20: 0.95}, (None, 0, math.inf), "not shown", id="undecided"),
    ],
)
def test_capacities_are_compared_by_their_brackets(
    ours: dict[float, float], theirs: dict[float, float], ratio: tuple[float | None, float, float], verdict: str
) -> None:
    sides = [slo_capacity(measured(label, shares)) for label, shares in (("a", ours), ("b", theirs))]
    assert sides[0] is not None
    assert sides[1] is not None
    found = compare_capacities(sides[0], sides[1])
    assert ((found.ratio.value, found.ratio.low, found.ratio.high), found.verdict) == (ratio, verdict)


@pytest.mark.parametrize(
    ("runs", "ends", "verdict", "why"),
    [
        pytest.param(1, (40.0, 60.0), "not shown", "a winner needs 3 repeats of each", id="one run each"),
        pytest.param(3, (40.0, 60.0), "better", None, id="three runs each"),
        pytest.param(3, (20.4, 60.0), "not shown", "below the practical margin of 1.05", id="1.01 times as much"),
        pytest.param(3, (18.0, 60.0), "not shown", "the brackets of measured loads overlap", id="overlapping brackets"),
    ],
)
def test_headline_table_and_document_have_one_verdict_on_capacity(
    runs: int, ends: tuple[float, float], verdict: str, why: str | None
) -> None:
    """20.4 against 20.2 in brackets that do not overlap is no reason to change engines."""
    sides = (("a", ends), ("b", (20.2, 20.3) if ends[0] == 20.4 else (15.0, 20.2)))
    summaries = [searched(label, *bracket, k) for label, bracket in sides for k in range(runs)]
    comparison = compare(summaries, "b")
    ratio = comparison.capacity_ratio("a", "b")
    assert ratio is not None
    assert (ratio.verdict, ratio.why) == (verdict, why)
    assert comparison.winner == ("a" if verdict == "better" else None)
    assert [row[3] for row in overview_of(comparison)[0].rows] == ["baseline", verdict]
    assert document(comparison, summaries)["capacity_comparisons"][0]["verdict"] == verdict
    if why is not None:
        assert f"No winner is named: {why}" in headline(comparison, summaries) or f"({why})" in str(comparison.why)
    opposite = comparison.capacity_ratio("b", "a")
    assert opposite is not None
    assert opposite.verdict == ("worse" if verdict == "better" else verdict)


def test_the_criteria_say_how_a_capacity_is_claimed() -> None:
    runs = [searched(label, *ends, k) for label, ends in (("a", (20.0, 24.0)), ("b", (10.0, 12.0))) for k in range(3)]
    assert "brackets of measured loads, not samples, and have no p value" in criteria(compare(runs))


def test_with_objectives_the_headline_is_who_holds_how_many_users_within_them() -> None:
    """At the heaviest load both miss them, and there the engine that holds fewer serves more tokens."""
    near = (1.0, 0.99, 1.01)
    runs = [
        run(label, [_stage(load, share, rate * near[k], tpot) for load, share, rate in stages], k, objectives=(SLO,))
        for label, tpot, stages in (
            ("small", 0.032, [(14, 0.999, 300), (20, 0.2, 340), (40, 0.1, 400)]),
            ("large", 0.047, [(14, 0.999, 290), (20, 0.999, 330), (40, 0.1, 360)]),
        )
        for k in range(3)
    ]
    comparison = compare(runs)
    assert (comparison.winner, comparison.stage) == ("large", "20 users"), "not 40 users, where both miss them"
    assert headline(comparison, runs) == (
        "large holds 20 users within TTFT p95 ≤ 500 ms (40 miss it); small holds 14 (20 miss it): 1.4× [1.0, 2.9], "
        "over 3 repeats."
    )
    assert dict(first_screen("", candidates_of(comparison, runs)).sentences)["trade-off"] == (
        "large holds more users than small, but at capacity a token takes 47.0 ms, with small 32.0 ms (TPOT p50)."
    )
    answers = {(load.stage, load.engine): load.answer for load in comparison.loads}
    assert answers["20 users", "large"] == "met"
    assert answers["20 users", "small"] == answers["40 users", "large"] == "missed"


def test_of_many_engines_that_hold_as_many_only_the_next_one_is_named() -> None:
    runs = [
        run(f"engine {place}", [_stage(8, 0.999, 300 - 10 * place, 0.03)], k, objectives=(SLO,))
        for place in range(6)
        for k in range(3)
    ]
    assert headline(compare(runs), runs).startswith(
        "engine 0 and 5 others hold 8 users within TTFT p95 ≤ 500 ms (the most measured). At 8 users, engine 0 serves "
        "1.03"
    )


def test_capacities_within_different_objectives_are_not_compared() -> None:
    """`b` holds as many users within half the limit: neither a tie nor a table says so."""
    half = Objective("ttft", 0.95, 0.25)
    runs = [run("a", [judged_view(8, SLO, 0.999, throughput=300)], k, objectives=(SLO,)) for k in range(3)]
    runs += [run("b", [judged_view(8, half, 0.999, throughput=200)], k, objectives=(half,)) for k in range(3)]
    comparison = compare(runs)
    assert comparison.capacities == ()
    assert headline(comparison, runs).startswith("a served 1.5")
    assert first_screen("", candidates_of(comparison, runs)).table is None


def test_more_users_are_said_to_be_held_only_where_that_is_shown() -> None:
    """At 20 users the share of `small` leaves open whether it meets the objective."""
    runs = [
        run(label, [_stage(load, share, 300, tpot) for load, share in stages], k, objectives=(SLO,))
        for label, tpot, stages in (
            ("small", 0.032, [(14, 0.999), (20, 0.95)]),
            ("large", 0.047, [(14, 0.999), (20, 0.999)]),
        )
        for k in range(3)
    ]
    comparison = compare(runs)
    assert {each.engine: (each.met, each.missed) for each in comparison.capacities} == {
        "small": (14, None),
        "large": (20, None),
    }
    trade_off = dict(first_screen("", candidates_of(comparison, runs)).sentences)["trade-off"]
    assert trade_off.startswith("large is shown to hold 20 users, small 14, but at capacity")


def test_the_first_screen_has_every_tier_and_the_best_engine_first_without_a_plan() -> None:
    tiers = parse_objectives(["fast:ttft_p95=0.5", "relaxed:ttft_p95=2"])
    runs = []
    for label, most in (("small", 10), ("large", 20)):
        for k in range(3):
            stages = []
            for load in (10, 20):
                judged = [Judgement(tiers[0], SHARES[load <= most], "met" if load <= most else "missed")]
                judged.append(Judgement(tiers[1], SHARES[True], "met"))
                stages.append(replace(_stage(load, 0.999, 300, 0.03), judgements=tuple(judged)))
            runs.append(run(label, stages, k, objectives=tiers))
    refused = [
        PlannedReplicas(label, "80 users", None, None, None, None, "Not planned.") for label in ("small", "large")
    ]
    table = first_screen("", candidates_of(compare(runs), runs, refused)).table
    assert table is not None
    assert table.headers[:3] == ("engine", "users within fast", "users within relaxed")
    assert [row[:3] for row in table.rows] == [("large", "≥ 20", "≥ 20"), ("small", "10 (20 missed)", "≥ 20")]
    assert table.caption.startswith("fast: TTFT p95 ≤ 500 ms; relaxed: TTFT p95 ≤ 2.00 s; in brackets the lowest ")


def _stage(load: float, share: float, tokens: float, tpot: float) -> StageView:
    return judged_view(load, SLO, share, throughput=tokens, tpot_p50=tpot)


def test_where_no_engine_meets_the_objectives_none_is_named() -> None:
    runs = [
        each for label, rate in (("a", 200.0), ("b", 100.0)) for each in measured(label, {10: 0.2}, 3, throughput=rate)
    ]
    comparison = compare(runs)
    assert comparison.winner is None
    assert headline(comparison, runs).startswith("No engine is known to meet TTFT p95 ≤ 500 ms at any load; ")


def test_the_matrix_is_made_of_measured_stages() -> None:
    tight, loose = CAPACITY_GRID[0], CAPACITY_GRID[2]
    fast = next(objective for objective in CAPACITY_GRID if objective.metric == "tpot")
    grids = {
        10: (judged(tight, 0.999, 400), judged(loose, 0.999, 400), judged(fast, 0.999, 400)),
        20: (judged(tight, 0.2, 400), judged(loose, 0.999, 400), judged(fast, 0.999, 400)),
    }
    engine = engine_runs_of([run("a", [view(load, {}, grid=grid) for load, grid in grids.items()])])[0]
    matrix = capacity_matrix(engine)
    assert matrix[tight, fast].met == 10
    assert matrix[loose, fast].met == 20
    assert len(matrix) == 2, "pairs that were not judged are left out"


def test_a_line_for_each_objective_with_its_share_at_each_load() -> None:
    """Not one share for several loads."""
    (engine,) = engine_runs_of(measured("a", {5: 0.96, 10: 0.999, 20: 0.168}, repeats=2))
    ((answer, line),) = objective_lines(engine)
    assert answer == "missed"
    assert line.startswith(
        "a (2 runs), TTFT p95 ≤ 500 ms: met at 10 users; not enough evidence at 5 users (96 % within"
    )
    assert line.endswith("missed at 20 users (16.8 % within)")
    (engine,) = engine_runs_of(measured("a", {5: 0.999, 10: 0.999}))
    assert objective_lines(engine) == [("met", "a, TTFT p95 ≤ 500 ms: at 5 and 10 users")], (
        "the answer stands before it"
    )


def test_one_label_with_two_objectives_is_refused() -> None:
    first, second = measured("a", {10: 0.999}, repeats=2)
    other = replace(second, objectives=(Objective("ttft", 0.95, 1.0),))
    with pytest.raises(
        UserMistake, match=r"the runs of a were made with different objectives \(ttft_p95=0.5; ttft_p95=1\)"
    ):
        engine_runs_of([first, other])
