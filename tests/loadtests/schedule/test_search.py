"""The search for capacity without a clock: its test, its counts, and how it runs on stages."""

from __future__ import annotations

from random import Random

import pytest
from scipy import special

from loadtests.harness.schedule.search.confidence import log_evidence, log_incomplete_beta
from loadtests.harness.schedule.search.counts import ProcessCounts, StageCounts, slice_length
from loadtests.harness.schedule.search.evidence import Evidence, Series, overloaded, shares
from loadtests.harness.schedule.search.location import Sample, locate
from loadtests.harness.schedule.search.prober import Prober, SearchPlan, limit_of
from loadtests.harness.schedule.search.procedure import Goal, Search
from records.load import Rate, Users
from records.request import RequestRecord
from records.slo import Objective, parse_objectives
from records.stage import SECOND, Extent, Stage, StagePlan

TTFT = Objective("ttft", 0.95, 0.5)


@pytest.mark.parametrize(("x", "a", "b"), [(0.95, 19, 1), (0.95, 919, 81.5), (0.5, 400, 380), (0.99, 3099, 21)])
def test_the_incomplete_beta_function_is_scipys(x: float, a: float, b: float) -> None:
    below, above = log_incomplete_beta(x, a, b)
    assert below == pytest.approx(float(special.log1p(-special.betaincc(a, b, x))), rel=1e-9)
    assert above == pytest.approx(float(special.log1p(-special.betainc(a, b, x))), rel=1e-6)


def test_looking_after_every_request_decides_wrongly_in_at_most_alpha() -> None:
    """At exactly the limit, with independent requests: the proven case."""
    rng, wrong, searches = Random(1), 0, 200
    for _ in range(searches):
        good = bad = 0
        for _ in range(300):
            good, bad = (good + 1, bad) if rng.random() < 0.95 else (good, bad + 1)
            if max(log_evidence(good, bad, 0.95)) >= 3.0:  # ln 20: each side at 5 %
                wrong += 1
                break
    assert 0.01 < wrong / searches <= 0.10


def test_what_is_clear_is_decided() -> None:
    assert log_evidence(130, 0, 0.95)[0] > 4.79  # ln 120
    assert log_evidence(103, 0, 0.95)[0] < 4.79
    assert log_evidence(50, 20, 0.95)[1] > 4.79


def evidence_of(bad: list[int], level: list[float], backlog: list[int] = []) -> Evidence:  # noqa: B006
    """One request for each slice."""
    return Evidence([1] * len(bad), [Series(bad, level, [each**2 for each in level])], backlog)


def test_requests_that_wait_alike_count_as_few() -> None:
    rng = Random(2)
    alone = [int(rng.random() < 0.1) for _ in range(4000)]
    alike = [one for one in alone[:100] for _ in range(40)]
    (independent,) = shares(evidence_of(alone, [float(one) for one in alone]))
    (correlated,) = shares(evidence_of(alike, [float(one) for one in alike]))
    assert independent.effective > 1000
    assert correlated.effective < 120


def test_a_backlog_that_grows_is_overload_and_one_that_wanders_is_not() -> None:
    late = [0] * 200 + [1] * 800
    assert overloaded(evidence_of(late, [3.0] * 1000, [k // 2 for k in range(1000)]))
    assert not overloaded(evidence_of([0] * 1000, [0.1] * 1000, [k // 2 for k in range(1000)]))  # nothing is late
    rng, found = Random(3), 0
    for _ in range(200):
        level, walk = 0, []
        for _ in range(1000):
            level = max(0, level + rng.choice((-1, 1)))
            walk.append(level)
        found += overloaded(evidence_of(late, [3.0] * 1000, walk))
    assert found <= 1


def test_capacity_is_located_between_what_is_met_and_what_is_not() -> None:
    """The shares of a logistic curve of slope 10 that passes 5 % at 8 requests per second."""
    samples = [Sample(6.0, 497, 3), Sample(8.0, 475, 25), Sample(10.0, 335, 165)]
    found = locate(samples, 0.95, 4, 16)
    assert found.load == pytest.approx(8.0, rel=0.05)
    assert found.spread < 0.05


def request(at: float, ttft: float, outcome: str = "ok", **more: float) -> RequestRecord:
    start = round(at * SECOND)
    first = start + round(ttft * SECOND)
    return RequestRecord(
        request_id="0-1",
        worker="0",
        scenario="capacity",
        stage=0,
        outcome=outcome,  # type: ignore[arg-type]
        t_sched=start,
        t_send=start,
        t_first=first if outcome == "ok" else None,
        t_last=first,
        t_end=first,
        **more,  # type: ignore[arg-type]
    )


def stage_of(load: Rate | Users, start: int = 0) -> Stage:
    return Stage(0, StagePlan(load, Extent(0), Extent(100, "requests")), start, steady_start=start)


def test_counts_of_two_processes_add_up_and_close_when_all_have_ended() -> None:
    stage = stage_of(Rate(16.0))  # slices of a quarter of a second
    assert slice_length(stage.load) == SECOND // 4
    whole, processes = StageCounts(stage, 1), [ProcessCounts([TTFT]) for _ in range(2)]
    for name, process in enumerate(processes):
        process.enter(stage)
        for k, (at, ttft) in enumerate([(0.1, 0.2), (0.3, 0.9)]):
            process.scheduled(k, round(at * SECOND))
            if (name, k) != (1, 1):
                process.ended(k, request(at, ttft))
        message = process.changes()
        assert message is not None
        whole.take(str(name), message)  # type: ignore[arg-type]
    assert whole.close(SECOND) == 1  # the other process has not answered the second slice
    processes[1].ended(1, request(0.3, 0.9))
    message = processes[1].changes()
    assert message is not None
    whole.take("1", message)  # type: ignore[arg-type]
    assert whole.close(SECOND) == 4
    found = whole.evidence(0, 4, SECOND)
    assert found.requests == [2, 2, 0, 0]
    assert found.series[0].bad == [0, 2, 0, 0]
    assert found.series[0].level[0] == pytest.approx(2 * 0.2 / 0.5)
    assert found.in_flight == [2, 2, 2, 2]


def test_a_request_of_an_earlier_stage_is_not_counted() -> None:
    process = ProcessCounts([TTFT])
    process.enter(stage_of(Users(3)))
    process.scheduled(1, SECOND)
    process.enter(Stage(1, stage_of(Users(4)).plan, SECOND // 2))
    process.ended(1, request(1.0, 0.1))
    assert process.changes() is None


@pytest.mark.parametrize(
    ("text", "outcome", "ttft", "good"),
    [
        ("ttft_p95=0.5", "ok", 0.4, True),
        ("ttft_p95=0.5", "ok", 0.6, False),
        ("ttft_p95=0.5", "rejected", 0.1, False),
        ("failures=0.01", "ok", 9.0, True),
        ("failures=0.01", "timeout", 0.1, False),
    ],
)
def test_an_objective_judges_a_request(text: str, outcome: str, ttft: float, good: bool) -> None:
    (objective,) = parse_objectives([text])
    assert objective.judge(request(0.0, ttft, outcome))[0] is good
    assert str(objective) == text


def test_several_objectives_are_one_text_or_several() -> None:
    assert parse_objectives(["ttft_p95=0.5,failures=0.01"]) == parse_objectives(["ttft_p95=0.5", "failures=0.01"])
    for wrong in ("ttft=0.5", "failures=2", "speed_p95=1", "ttft_p95=nan"):
        with pytest.raises(ValueError, match="an objective is"):
            parse_objectives([wrong])


def sharp(capacity: float, whole: bool = False, highest: float = 1000.0) -> Search:
    """A search on a server whose requests are all in time up to `capacity`, and all late beyond it."""
    search = Search(Goal((0.95,), start=1.0, lowest=1 / 16 if not whole else 1, highest=highest, whole=whole))
    while (probe := search.probe) is not None:
        n = probe.most_requests
        late = int(probe.load > capacity)
        rng = Random(probe.number)
        level = [2.0 * late + 0.3 * rng.random() for _ in range(n)]
        search.look(evidence_of([late] * n, level), n / probe.load)
    return search


@pytest.mark.parametrize("capacity", [0.31, 7.7, 450.0])
def test_a_sharp_capacity_is_bracketed(capacity: float) -> None:
    search = sharp(capacity)
    met, missed = search.bracket
    assert search.found
    assert met is not None
    assert missed is not None
    assert met <= capacity < missed
    assert search.estimate == pytest.approx(capacity, rel=0.15)


def test_numbers_of_users_are_whole() -> None:
    search = sharp(12.5, whole=True)
    assert search.bracket[0] in range(10, 13)
    assert search.bracket[1] in range(13, 16)
    assert all(decision.probe.load == int(decision.probe.load) for decision in search.decisions)


def test_a_search_stays_in_its_range() -> None:
    assert not sharp(5000.0, highest=64).found
    assert max(decision.probe.load for decision in sharp(5000.0, highest=64).decisions) == 64
    assert not sharp(0.001).found
    assert min(decision.probe.load for decision in sharp(0.001).decisions) == 1 / 16


def test_what_cannot_be_decided_is_undecided() -> None:
    """Shares of exactly 95 % at every load say neither that it is met nor that it is missed."""
    search = Search(Goal((0.95,), start=1.0, highest=64, probes=12))
    while (probe := search.probe) is not None:
        bad = [int(k % 20 == 0) for k in range(probe.most_requests)]
        search.look(evidence_of(bad, [float(one) for one in bad]), 100.0)
    assert not search.found
    assert {decision.verdict for decision in search.decisions} == {"undecided"}


def test_probes_become_stages_and_leave_a_trail() -> None:
    prober = Prober(SearchPlan("rate", (TTFT,), 4.0, 4.0, seconds=600))
    plan = prober.next_stage()
    assert plan is not None
    assert plan.label == "probe 1: 4 req/s"
    assert plan.load == Rate(4.0)
    assert plan.warm_up.amount == 5.0  # ten limits
    stage = Stage(0, plan, 0, steady_start=5 * SECOND)
    prober.enter(stage)
    process = ProcessCounts([TTFT])
    process.enter(stage)
    for k in range(800):
        process.scheduled(k, k * SECOND // 4)
        process.ended(k, request(k / 4, 0.1 + 0.001 * (k * 37 % 100)))
    prober.take("0", process.changes() or {})
    decision = prober.look(200 * SECOND, stage)
    assert decision is not None
    assert decision.verdict == "met"
    assert prober.look(201 * SECOND, stage) is None  # judged once
    assert prober.next_stage() is None
    trail = prober.record()
    assert trail.state == "met at the highest load"
    assert [(probe.load, probe.verdict, probe.stage) for probe in trail.probes] == [(4.0, "met", 0)]


def test_a_search_out_of_time_ends_undecided() -> None:
    prober = Prober(SearchPlan("users", (TTFT,), 1.0, 100.0, seconds=60))
    plan = prober.next_stage()
    assert plan is not None
    stage = Stage(0, plan, 0, steady_start=5 * SECOND)
    prober.enter(stage)
    assert prober.look(59 * SECOND, stage) is None
    assert prober.look(60 * SECOND, stage) is not None
    assert prober.next_stage() is None
    assert prober.record().state == "undecided"


@pytest.mark.parametrize(
    ("objective", "late", "limit"),
    [
        (TTFT, (0.4, 0.1, 2.0), "queue"),
        (TTFT, (0.1, 0.4, 2.0), "prefill"),
        (TTFT, None, "time to first token"),
        (Objective("e2e", 0.9, 1.0), (0.4, 0.1, 2.0), "decode"),
        (Objective("tpot", 0.9, 1.0), (0.4, 0.1, 2.0), "decode"),
        (Objective("failures", 0.99), (0.4, 0.1, 2.0), "failures"),
    ],
)
def test_what_limits_is_read_off_the_late_requests(
    objective: Objective, late: tuple[float, float, float] | None, limit: str
) -> None:
    assert limit_of(objective, late) == limit
