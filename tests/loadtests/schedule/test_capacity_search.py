"""The search for capacity without a clock: its bets, its counts, where it probes, and how it runs on stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from enginebench.records.load import Rate, Users
from enginebench.records.request import RequestRecord
from enginebench.records.search import SearchRecord
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from loadtests.harness.schedule.search.capacity_estimate import Sample, crossing
from loadtests.harness.schedule.search.capacity_search import CERTAIN, MIN_MET, Search, SearchGoal
from loadtests.harness.schedule.search.evidence import STAKES, ProbeOutcomes, Side, log_evidence
from loadtests.harness.schedule.search.prober import Prober, SearchPlan
from loadtests.harness.schedule.search.slices import ProbeSlices, ProcessSlices, slice_length
from tests.support.records import record

TTFT = Objective("ttft", 0.95, 0.5)
SIDES: tuple[Side, Side] = ("below", "above")


def counts(bad: list[int], *more: list[int]) -> ProbeOutcomes:
    """One request for each slice."""
    return ProbeOutcomes([1] * len(bad), [bad, *more], [bad, *more])


def test_betting_at_the_limit_is_wrong_as_rarely_as_it_promises() -> None:
    """The share that misses is exactly α: evidence of 40 for either side, looked for after each batch of 20."""
    rng, wrong, searches = Random(1), {"below": 0, "above": 0}, 400
    for _ in range(searches):
        shares = [sum(rng.random() < 0.05 for _ in range(20)) / 20 for _ in range(150)]
        for side in SIDES:
            looks = range(0, 150, 5)
            wrong[side] += any(log_evidence(shares[: n + 1], 0.05, side) >= CERTAIN for n in looks)
    assert all(count / searches <= 0.04 for count in wrong.values()), wrong
    assert wrong["above"] > 0


def test_bets_are_the_products_of_the_documented_stakes() -> None:
    shares, alpha = [0.0, 0.1, 0.2], 0.05
    for side, most in zip(SIDES, (1 / 0.95, -1 / 0.05), strict=True):
        products = [math.prod(1 + stake * most * (alpha - x) for x in shares) for stake in STAKES[side]]
        assert math.exp(log_evidence(shares, alpha, side)) == pytest.approx(sum(products) / len(products))


def test_requests_that_wait_alike_count_as_few() -> None:
    """Forty requests at a time are late together: the variance of batches is forty times that of independent ones."""
    rng = Random(2)
    alone = [int(rng.random() < 0.1) for _ in range(4000)]
    alike = [one for one in alone[:100] for _ in range(40)]
    assert counts(alone).correlation < 2.5
    assert 15 < counts(alike).correlation < 90


def test_nearly_late_requests_show_a_correlation_before_the_first_is_late() -> None:
    rng = Random(2)
    slow = [one for one in (int(rng.random() < 0.2) for _ in range(100)) for _ in range(40)]
    none = [0] * 4000
    assert ProbeOutcomes([1] * 4000, [none], [none]).correlation == 1
    assert ProbeOutcomes([1] * 4000, [none], [slow]).correlation > 7


def test_capacity_is_estimated_between_what_is_met_and_what_is_not() -> None:
    """The shares of a logistic curve of slope 10 that passes 5 % at 8 requests per second."""
    samples = [Sample(6.0, 0.006, 500), Sample(8.0, 0.05, 500), Sample(10.0, 0.33, 500)]
    assert crossing(samples, 0.05) == pytest.approx(8.0, rel=0.05)


def request(at: float, ttft: float) -> RequestRecord:
    start = round(at * SECOND)
    first = start + round(ttft * SECOND)
    return record(t_sched=start, t_send=start, t_first=first, t_last=first, t_end=first)


def stage_of(load: Rate | Users, start: int = 0) -> Stage:
    return Stage(0, StagePlan(load, Extent(0), Extent(100, "requests")), start, steady_start=start)


def test_counts_of_two_processes_add_up_and_close_when_all_have_ended() -> None:
    stage = stage_of(Rate(16.0))  # slices of a quarter of a second
    assert slice_length(stage.load) == SECOND // 4
    whole, processes = ProbeSlices(stage, 1), [ProcessSlices([TTFT]) for _ in range(2)]
    for name, process in enumerate(processes):
        process.enter(stage)
        for k, (at, ttft) in enumerate([(0.1, 0.3), (0.3, 0.9)]):
            process.scheduled(request(at, ttft))
            if (name, k) != (1, 1):
                process.ended(request(at, ttft))
        message = process.changes()
        assert message is not None
        whole.take(str(name), message)  # type: ignore[arg-type]
    assert whole.close(SECOND) == 1  # the other process has not answered the second slice
    processes[1].ended(request(0.3, 0.9))
    message = processes[1].changes()
    assert message is not None
    whole.take("1", message)  # type: ignore[arg-type]
    assert whole.close(SECOND) == 4
    found = whole.outcomes(0, 4)
    assert (found.requests, found.missed, found.slow) == ([2, 2, 0, 0], [[0, 2, 0, 0]], [[2, 2, 0, 0]])
    assert found.stay == pytest.approx(0.6)
    assert found.seconds == pytest.approx(1.0)


def test_a_request_of_an_earlier_stage_is_not_counted() -> None:
    process = ProcessSlices([TTFT])
    process.enter(stage_of(Users(3)))
    process.scheduled(request(1.0, 0.1))
    process.enter(Stage(1, stage_of(Users(4)).plan, SECOND // 2))
    process.ended(request(1.0, 0.1))
    assert process.changes() is None


def searched(share: Callable[[float], float], most: int = 100_000, **goal: float | bool | tuple[float, ...]) -> Search:
    """A search on a server where independent requests miss the objective with probability `share(load)`."""
    goals = {"shares": (0.05,), "start": 1.0, "lowest": 1 / 16, "highest": 1000.0} | goal
    search, rng, total = Search(SearchGoal(**goals)), Random(7), 0  # type: ignore[arg-type]
    while (probe := search.probe) is not None and total < most:
        bad = [int(rng.random() < share(probe.load)) for _ in range(probe.most_requests)]
        ended, n = None, 0
        while ended is None:
            n = min(max(n + 1, math.ceil(search.next_look)), len(bad))
            ended = search.look(counts(bad[:n], *[[0] * n] * (len(search.goal.shares) - 1)))
        total += n
    return search


def requests(search: Search) -> int:
    return sum(probe.outcomes.total for probe in search.probes)


@pytest.mark.parametrize("capacity", [0.31, 7.7, 450.0])
def test_a_sharp_capacity_is_bracketed_as_narrowly_as_asked(capacity: float) -> None:
    search = searched(lambda load: 0.001 if load <= capacity else 0.6)
    assert search.met is not None
    assert search.missed is not None
    assert search.met <= capacity < search.missed
    assert search.width <= 0.2
    assert search.estimate == pytest.approx(capacity, rel=0.15)
    assert requests(search) < 12_000


@pytest.mark.parametrize("precision", [0.3, 0.15, 0.1])
def test_a_search_ends_at_the_precision_asked(precision: float) -> None:
    """Shares of M/M/1: P(W > 5 s) = ρ exp(-5 (1 - ρ)), which is 5 % at 0.528 requests per service time."""
    search = searched(lambda load: min(1.0, load * math.exp(-5 * (1 - load))), precision=precision, start=0.1)
    assert search.width <= precision
    assert (search.met or 0) < 0.528 < (search.missed or 9)


def test_a_cold_start_does_not_hold_the_search_at_a_low_load() -> None:
    """Of the first 200 requests at the first load 15 are late: it goes on doubling from there."""
    search = Search(SearchGoal((0.05,), start=4.0))
    search.look(counts([int(k % 13 == 0) for k in range(200)]))
    assert search.probes[0].verdict == "undecided"
    loads = []
    while (probe := search.probe) is not None and probe.role == "locate":
        loads.append(probe.load)
        search.look(counts([int(probe.load > 20)] * probe.most_requests))
        assert (search.met, search.missed) == (None, None), "what locates certifies nothing"
    assert loads[:3] == [8, 16, 32]
    assert min(loads) >= 8


def test_a_stall_while_locating_does_not_send_the_next_probe_to_a_low_load() -> None:
    """As measured on a busy machine: a stall makes 6 of 30 requests late at 4 req/s, none is late from 8 to 32."""
    search, loads = Search(SearchGoal((0.05,), start=2.0)), []
    while (probe := search.probe) is not None and probe.role == "locate":
        loads.append(probe.load)
        late = 0.2 if probe.load == 4 else float(probe.load > 33)
        search.look(counts([int(k % 5 < 5 * late) for k in range(30 if probe.load == 4 else 24)]), last=True)
    assert loads[:6] == [2, 4, 8, 16, 32, 64]
    low, high = max(load for load in loads if load <= 33), min(load for load in loads if load > 33)
    assert search.estimate is not None
    assert low <= search.estimate <= high


def test_evidence_of_probes_at_higher_loads_counts_for_lower_ones() -> None:
    """Two probes that were met, neither long enough for a certificate: together they certify the lower load."""
    search = Search(SearchGoal((0.05,)))
    half = MIN_MET // 2 + 100
    for load, certified in ((10.0, None), (9.0, 9.0)):
        search._begin(load, "below")
        assert search.probe is not None
        search.probe.outcomes = counts([int(k % 33 == 0) for k in range(half)])
        search._certified(search.probe, "below")
        search.probes.append(search.probe)
        assert search.met == certified


def test_a_probe_ends_as_soon_as_the_bracket_is_as_precise_as_asked() -> None:
    """The probe at 11 certifies the lower load of an earlier one, and so the bracket, before its own."""
    search = Search(SearchGoal((0.05,), precision=0.2))
    search.missed = search.estimate = 14.0
    search._begin(10.0, "below")
    assert search.probe is not None
    search.probe.outcomes = counts([int(k % 40 == 0) for k in range(MIN_MET)])
    search.probes.append(search.probe)
    before = search.met
    search._begin(11.0, "below")
    assert search.look(counts([int(k % 26 == 0) for k in range(300)])) is not None
    assert [before, search.met] == [None, 10.0]
    assert (search.probes[-1].verdict, search.precise) == ("undecided", True)


@pytest.mark.parametrize("capacity", [1, 3, 12, 20, 37])
def test_numbers_of_users_are_whole_and_bracketed(capacity: int) -> None:
    search = searched(lambda users: 0.0 if users <= capacity else 1.0, lowest=1, whole=True)
    assert all(probe.load == int(probe.load) for probe in search.probes)
    located = [probe.load for probe in search.probes if probe.role == "locate"]
    assert len(located) == len(set(located)), located
    assert search.precise
    assert (search.met or 0) <= capacity < (search.missed or 0)
    assert requests(search) < 9000, "a borderline number of users is not probed before the bracket is known"


@pytest.mark.parametrize(("start", "highest"), [(4.0, 64.0), (30.0, 500.0), (7.0, 12_345.0), (1.0, 10.4)])
def test_a_search_stays_in_its_range_and_certifies_its_end(start: float, highest: float) -> None:
    """Also an end that is no round number: 30 / 64 has more digits than a load that is searched."""
    beyond = searched(lambda _: 0.0, start=start, lowest=start / 64, highest=highest)
    assert (beyond.met, beyond.missed) == (highest, None)
    assert max(probe.load for probe in beyond.probes) == highest
    below = searched(lambda _: 1.0, start=start, lowest=start / 64, highest=highest)
    assert (below.met, below.missed) == (None, start / 64)
    assert min(probe.load for probe in below.probes) == start / 64
    assert SearchPlan("users", (TTFT,), start, highest, 0.2, 600).goal().highest == math.floor(highest)


@pytest.mark.parametrize(
    ("start", "first", "capacity"),
    [
        pytest.param(1.0, 1, 40, id="a cold start at the lowest load"),
        pytest.param(64.0, 0, 40, id="a lucky probe at the highest load"),
    ],
)
def test_a_misleading_probe_at_an_end_of_the_range_does_not_hold_the_search_there(
    start: float, first: int, capacity: int
) -> None:
    search, rng = Search(SearchGoal((0.05,), start=start, lowest=1.0, highest=64.0, whole=True)), Random(7)
    search.look(counts([first] * 20 + [0] * 4))
    while (probe := search.probe) is not None and len(search.probes) < 60:
        bad = [int(rng.random() < (0.001 if probe.load <= capacity else 0.6)) for _ in range(probe.most_requests)]
        for n in range(20, len(bad) + 20, 20):
            if search.look(counts(bad[:n])) is not None:
                break
    assert search.probes[0].load == start
    assert (search.met or 0) <= capacity < (search.missed or 0)
    assert search.precise


def test_shares_at_the_limit_everywhere_certify_nothing() -> None:
    search = searched(lambda _: 0.05, most=60_000, highest=64)
    assert (search.met, search.missed) == (None, None)


def test_any_of_several_objectives_may_be_missed() -> None:
    search = searched(lambda load: 0.0 if load <= 8 else 1.0, shares=(0.05, 0.01), precision=0.3)
    assert search.precise
    assert (search.met or 0) <= 8 < (search.missed or 0)


def plan(by: str = "rate", seconds: float = 600, start: float = 4.0, highest: float = 4.0) -> SearchPlan:
    return SearchPlan(by, (TTFT,), start, highest, 0.2, seconds)  # type: ignore[arg-type]


def test_probes_become_stages_and_leave_a_trail() -> None:
    prober = Prober(plan())
    first = prober.next_stage()
    assert first is not None
    assert (first.label, first.load, first.warm_up.amount) == ("probe 1: 4 req/s", Rate(4.0), 2.5)  # five limits
    stage = Stage(0, first, 0, steady_start=5 * SECOND)
    prober.enter(stage)
    process = ProcessSlices([TTFT])
    process.enter(stage)
    for k in range(100):
        process.scheduled(request(k / 4, 0.1))
        process.ended(request(k / 4, 0.1))
    prober.take("0", process.changes() or {})
    ended = prober.look(25 * SECOND, stage)
    assert ended is not None
    assert ended.verdict == "met"
    assert prober.look(26 * SECOND, stage) is None  # judged once
    following = prober.next_stage()
    assert following is not None
    assert following.warm_up.amount == 50.0  # 200 requests, before a probe that may certify
    trail = prober.record()
    assert trail.state == "running"
    assert [(probe.load, probe.role, probe.verdict, probe.stage) for probe in trail.probes] == [
        (4.0, "locate", "met", 0)
    ]


def test_a_search_out_of_time_ends_undecided() -> None:
    prober = Prober(plan("users", seconds=60, start=1.0, highest=100.0))
    first = prober.next_stage()
    assert first is not None
    stage = Stage(0, first, 0, steady_start=5 * SECOND)
    prober.enter(stage)
    assert prober.look(59 * SECOND, stage) is None
    assert prober.look(60 * SECOND, stage) is not None
    assert prober.next_stage() is None
    assert prober.record().state == "undecided"


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        pytest.param(
            SearchRecord("rate", "req/s", ("ttft_p95=0.2",), 0.2, "found", 33.3, 27.0, 38.0, requests=9000),
            "Capacity at ttft_p95=0.2 is about 33.3 req/s; at least 27, at most 38 certified "
            "(0 probes, 9,000 requests).",
            id="found",
        ),
        pytest.param(
            SearchRecord("rate", "req/s", ("ttft_p95=0.2",), 0.2, "undecided", 33.3, 27.0, None, 5),
            "Capacity at ttft_p95=0.2 is about 33.3 req/s; at least 27 certified (0 probes, 5 requests). "
            "A longer search may reach ± 20 %: raise --search-seconds.",
            id="one side",
        ),
        pytest.param(
            SearchRecord("rate", "req/s", ("ttft_p95=0.2",), 0.2, "running", 1234.0, 999.6, 1400.0),
            "capacity about 1,234 req/s; at least 1,000, at most 1,400 certified",
            id="thousands",
        ),
        pytest.param(
            SearchRecord("users", "users", ("ttft_p95=0.2",), 0.2, "running", 8.0, 7.0, 9.0),
            "capacity about 8 users; at least 7, at most 9 certified",
            id="while it runs",
        ),
    ],
)
def test_a_sentence_says_what_is_certified(record: SearchRecord, sentence: str) -> None:
    assert record.sentence == sentence
