"""What is counted of requests, into which buckets, and how it is written down."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from enginebench.records.load import Load, Rate, Users
from enginebench.records.metrics import MOMENTARY, QUANTITIES, TOTALS
from enginebench.records.request import RequestRecord
from enginebench.records.slo import RunObjectives, parse_objectives
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from enginebench.records.view import EMPTY
from enginebench.settings.schema import read_address, write_address
from loadtests.harness.live.buckets import CountedMetrics, edges_around
from loadtests.harness.live.counts import SETTLED, LiveCounts
from loadtests.harness.live.live_json import read_live
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.live.metric_families import EXPORTED, families, name_of
from tests.support.records import META

MS = 1_000_000
SLO = "ttft_p95=0.137,tpot_p50=0.02,failures=0.01"
OBJECTIVES = RunObjectives(parse_objectives([SLO]))
ANSWERED = RequestRecord(
    request_id="0-1", worker="0", scenario="s", stage=0, outcome="ok", t_sched=0, t_send=1 * MS, t_first=101 * MS,
    t_last=141 * MS, t_end=142 * MS, icl=(10 * MS, 30 * MS), chunks=3, first_chunk_tokens=1, output_tokens=3,
    prompt_tokens=7,
)  # fmt: skip


PLAN = StagePlan(Users(5), Extent(0), Extent(10))
STAGE = Stage(0, PLAN, 0, 0)  # its window has begun
METRICS = CountedMetrics(OBJECTIVES)


def counted(*records: RequestRecord, objectives: RunObjectives = OBJECTIVES) -> LiveCounts:
    counts = LiveCounts(CountedMetrics(objectives))
    counts.enter(STAGE)
    for record in records:
        counts.request_scheduled()
        counts.request_ended(record)
    counts.settle_all()
    return counts


@pytest.mark.parametrize("limits", [(), (0.137,), (0.5, 0.6), (1e-5,), (5000.0,)])
def test_edges_are_close_and_reach_far_and_each_limit_is_one(limits: tuple[float, ...]) -> None:
    edges = edges_around(limits)
    assert list(edges) == sorted(set(edges))
    assert edges[0] <= 1e-4
    assert edges[-1] >= 1000
    assert set(limits) <= set(edges), "so the share within each is exact"
    if all(1e-4 < limit < 1000 for limit in limits):
        assert max(after / before for before, after in pairwise(edges)) < 1.16


def test_a_request_is_counted_in_each_of_its_metrics() -> None:
    counts = counted(ANSWERED)
    stage = counts.stages[0]
    truth = {"ttft": 0.1, "ttft_user": 0.101, "tpot": 0.02, "e2e_user": 0.141, "send_lag": 0.001}
    for name, seconds in truth.items():
        edges, histogram = METRICS[name].edges, stage.histograms[name]
        ((bucket, count),) = histogram.values.items()
        assert count == 1
        assert edges[bucket - 1] < seconds <= edges[bucket], name
        assert histogram.total == pytest.approx(seconds)
    assert "client_lag" not in stage.histograms, "no kernel stamps"
    assert (stage.outcomes["ok"], stage.good, stage.output_tokens, stage.arrived) == (1, 1, 3, 3)
    assert (counts.scheduled, counts.in_flight) == (1, 0)


def test_a_metric_that_is_not_shown_is_counted_if_it_is_limited() -> None:
    limited = CountedMetrics(RunObjectives(parse_objectives(["ntpot_p95=1"])))
    assert limited.keys() - METRICS.keys() == {"ntpot_user"}


def test_failures_count_as_infinite_and_what_was_cut_off_by_what_is_known() -> None:
    failed = msgspec.structs.replace(ANSWERED, outcome="timeout")
    cut_off = msgspec.structs.replace(ANSWERED, outcome="cut_off", t_last=None)
    stage = counted(failed, cut_off).stages[0]
    ttft, e2e, lag = (stage.histograms[name] for name in ("ttft_user", "e2e_user", "send_lag"))
    assert (ttft.failed, ttft.finite) == (1, 1)
    assert (e2e.failed, e2e.values, sum(e2e.bounds.values())) == (1, {}, 1), "its end is not known"
    assert (lag.failed, lag.finite) == (0, 2), "it was sent in time"
    assert (stage.outcomes["timeout"], stage.outcomes["cut_off"], stage.good) == (1, 1, 0)


def test_answers_without_a_metric_have_no_percentile_though_others_failed() -> None:
    whole = msgspec.structs.replace(ANSWERED, t_first=None, icl=(), chunks=0, streamed=False)
    failed = msgspec.structs.replace(ANSWERED, outcome="timeout")
    stage = counted(whole, failed).stages[0]
    assert stage.histogram("ttft").distribution(METRICS["ttft"].edges, ok=1) == EMPTY


def at(seconds: float, **changes: Any) -> RequestRecord:
    """`ANSWERED`, so many seconds later."""
    stamps = ("t_sched", "t_send", "t_first", "t_last", "t_end")
    moved = {name: getattr(ANSWERED, name) + round(seconds * SECOND) for name in stamps}
    return msgspec.structs.replace(ANSWERED, **moved | changes)


def test_what_was_scheduled_in_the_window_is_counted_there_however_late_the_window_is_told() -> None:
    counts, begun = LiveCounts(METRICS), Stage(0, PLAN, 0)
    counts.enter(begun)
    for seconds in (4.9, 5.0, 5.1):
        counts.request_ended(at(seconds))
    counts.enter(replace(begun, steady_start=5 * SECOND))  # was told a moment after it began
    counts.request_ended(at(9))
    assert counts.settle(at(9).t_end) is False, "the last one is too recent"
    assert counts.stages[0].outcomes["ok"] == 2
    assert counts.run.outcomes["ok"] == 3, "the first was scheduled in the warm-up"
    counts.request_ended(at(12, stage=1))  # scheduled in this window, though the next stage was on by then
    counts.enter(replace(begun, steady_start=5 * SECOND, steady_end=12 * SECOND))
    counts.enter(Stage(1, PLAN, 13 * SECOND))
    counts.settle_all()
    assert counts.stages[0].outcomes["ok"] == 3
    assert counts.stages.keys() == {0}, "the window ended before the last one was scheduled"
    assert counts.run.outcomes["ok"] == 5


def test_tokens_belong_to_the_window_in_which_they_arrived() -> None:
    """Of three tokens one arrives before the window's start."""
    counts = LiveCounts(METRICS)
    counts.enter(Stage(0, PLAN, 0, 31 * MS + 2 * SECOND))
    counts.request_ended(at(1.929))
    counts.settle_all()
    stage = counts.stages[0]
    assert stage.outcomes["ok"] == 0
    assert (stage.arrived, stage.output_tokens, counts.run.output_tokens) == (2, 0, 3)


def test_processes_are_added_up_from_their_messages(tmp_path: Path) -> None:
    meta = dataclasses.replace(META, plan=(PLAN, PLAN), stages=(STAGE,))
    run = LiveRun(tmp_path, 0, METRICS, None, lambda: meta, lambda: 5)
    outside = at(100, stage=1)
    for worker, sender in enumerate((counted(ANSWERED), counted(ANSWERED, outside))):
        for _ in range(2):  # the second message has nothing new
            run.take(f"{worker}", sender.message())
    assert run.counts(0).outcomes["ok"] == 2
    assert run.counts(0).histograms["tpot"].finite == 2
    assert (run.counts().outcomes["ok"], run.counts().output_tokens) == (3, 9)
    assert run.in_flight == 0
    run.finish()
    assert read_live(tmp_path).outcomes["ok"] == 3


COMMON = {"run", "engine", "scenario", "model"}


def page(counts: LiveCounts, objectives: str = SLO, load: Load = PLAN.load) -> dict[tuple[str, ...], float]:
    """Samples by name and the values of their labels."""
    plan = replace(PLAN, load=load)
    meta = replace(META, run_id="r1", scenario="s", label='a"b\\', model="m", url="http://x", plan=(plan,))
    meta = replace(meta, stages=(replace(STAGE, plan=plan),), workload={"slo": objectives})
    with TemporaryDirectory() as folder:
        start = time.monotonic_ns() - SECOND - SETTLED
        metrics = CountedMetrics(RunObjectives.from_workload(meta.workload))
        live = LiveRun(Path(folder), start, metrics, counts, lambda: meta, lambda: 5)
        live.finish()
    return {
        (
            sample.name.removeprefix("enginebench_load_"),
            *(value for name, value in sorted(sample.labels.items()) if name not in COMMON),
        ): sample.value
        for family in text_string_to_metric_families(b"".join(map(generate_latest, families(live, 1e9))).decode())
        for sample in family.samples
        if (sample.labels["run"], sample.labels["engine"]) == ("r1", 'a"b\\')
    }


def test_an_objective_that_is_given_twice_has_one_line_the_tightest() -> None:
    found = page(counted(ANSWERED), "ttft_p95=0.3,ttft_p95=3")
    assert found["objective_seconds", "ttft_p95"] == 0.3


def test_the_page_is_prometheus_text() -> None:
    found = page(counted(ANSWERED, ANSWERED))
    assert found["run_info", "http://x"] == 1
    assert found["run_start_seconds",] == 1e9
    assert found["requests_total", "ok"] == 2
    assert found["requests_total", "timeout"] == 0
    assert found["good_requests_total",] == 2
    assert found["objective_seconds", "ttft_p95"] == 0.137
    assert ("objective_seconds", "failures") not in found
    assert found["users", "5 users"] == 5
    assert found["stage_index", "5 users"] == 0
    assert {(f"{name_of(metric)}_count",) for metric in EXPORTED} <= set(found)
    assert found["ttft_user_seconds_bucket", "0.137"] == 2
    assert found["tpot_seconds_bucket", "+Inf"] == 2
    assert found["tpot_seconds_sum",] == pytest.approx(0.04)
    assert 0 < found["stage_throughput_tokens_per_second", "5 users"] <= 6, "six tokens in a second, or a little more"


def test_what_does_not_apply_is_absent() -> None:
    found = page(counted(ANSWERED, objectives=RunObjectives()), "")
    assert ("good_requests_total",) not in found, "without objectives nothing is good or bad"
    assert ("recent_offered_rate", "5 users") not in found, "a closed loop offers what it is answered"
    found = page(counted(ANSWERED), load=Rate(2.5))
    assert ("recent_offered_rate", "2.5 req/s") in found
    assert ("users", "2.5 req/s") not in found, "an open loop has arrivals and no users"


def test_everything_exported_is_declared() -> None:
    own = {"run_info", "run_start_seconds", "objective_seconds", "finding"}
    own |= {"stage_load", "stage_start_seconds", "stage_end_seconds"}
    declared = {name_of(one) for one in (*MOMENTARY, *TOTALS)}
    declared |= {f"stage_{name_of(one)}" for one in EXPORTED}
    declared |= {f"stage_{name_of(one)}" for one in QUANTITIES if one.shown.exported}
    declared |= {f"{name_of(one)}_{part}" for one in EXPORTED for part in ("bucket", "sum", "count")}
    found = {key[0] for load in (Users(5), Rate(1.0)) for key in page(counted(ANSWERED), load=load)}
    assert found == (own | declared) - {"stage_client_lag_seconds"}, "all but what is unknown without kernel stamps"


def test_addresses() -> None:
    assert read_address("127.0.0.1:9646") == ("127.0.0.1", 9646)
    assert write_address(read_address("[::1]:0")) == "[::1]:0"
    for wrong in ("9646", "localhost", "a:b", "a:", ":9646", "a:70000"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            read_address(wrong)
