"""The live view of a stage. The tab of Locust's page that shows it: tests/loadtests/users/test_page.py."""

from __future__ import annotations

import dataclasses
from random import Random

import msgspec
import pytest

from enginebench.records.load import Users
from enginebench.records.request import Outcome, RequestRecord
from enginebench.records.slo import RunObjectives
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from enginebench.records.view import Missing, StageKey, StageView
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.counts import SETTLED, Counts, LiveCounts
from loadtests.harness.live.live_text import slo_text
from loadtests.harness.live.live_view import view_of
from tests.support.records import META, record


def ended(ttft: float = 0.1, outcome: Outcome = "ok") -> RequestRecord:
    """Eleven tokens, 10 ms apart."""
    first = round(ttft * SECOND)
    last = first + SECOND // 10
    return record(
        outcome=outcome, t_sched=0, t_send=0, t_first=first, t_last=last, t_end=last, chunks=11, first_chunk_tokens=1,
        output_tokens=11,
    )  # fmt: skip


WHOLE = Stage(0, StagePlan(Users(4), Extent(0), Extent(3600)), 0, 0)  # its window is open


def stage_of(*records: RequestRecord, slo: str = "", now: int = 10 * SECOND + SETTLED) -> tuple[LiveCounts, StageView]:
    """Ten seconds of a window are counted, unless `now` is given."""
    metrics = CountedMetrics(RunObjectives.from_workload({"slo": slo}))
    counts = LiveCounts(metrics)
    counts.enter(WHOLE)
    for one in records:
        counts.request_ended(one)
    counts.settle_all()
    view = view_of(WHOLE, StageKey(0, "4 users"), counts.stages[0], metrics, META, now)
    return counts, view


def test_percentiles_are_within_one_per_cent() -> None:
    rng = Random(1)
    values = sorted(rng.lognormvariate(-2, 1) for _ in range(5000))
    _, view = stage_of(*(ended(ttft=value) for value in values))
    for name, exact in (("p50", values[2499]), ("p99", values[4949])):
        assert view.value("ttft_user", name) == pytest.approx(exact, rel=0.0101)


def test_failures_are_infinitely_long_and_what_was_cut_off_is_neither() -> None:
    _, view = stage_of(*(ended(outcome=outcome) for outcome in ("ok",) * 90 + ("rejected",) * 10))
    assert view.failed == 10
    assert view.value("ttft_user", "p90") == pytest.approx(0.1, rel=0.01)
    assert view.value("ttft_user", "p95") == float("inf")
    assert view.metrics["ttft_user"].answered is not None
    assert view.metrics["ttft_user"].answered["p99"] == pytest.approx(0.1, rel=0.01)
    _, view = stage_of(*(ended(outcome=outcome) for outcome in ("ok",) * 90 + ("cut_off",) * 50))
    assert view.value("ttft_user", "p99") == pytest.approx(0.1, rel=0.01), "they had their first token"
    assert view.value("e2e_user", "p50") == pytest.approx(0.2, rel=0.01)
    assert view.metrics["e2e_user"].percentile("p99").missing == Missing.CUT_OFF, "some might have taken longer"


def test_nothing_is_per_second_before_a_time_of_the_window_is_counted() -> None:
    """A throughput of 0 would be a number that was not measured."""
    _, view = stage_of(ended(), now=SETTLED)
    assert view.value("throughput") is None
    assert view.value("goodput") is None
    refused = record(outcome="rejected", t_sched=0, t_send=0, t_end=SECOND, t_first=None, t_last=None, chunks=0)
    _, view = stage_of(refused)
    assert view.value("throughput") is None, "no answer has ended, and some may be on their way"


def test_the_quantities_of_a_window_that_is_open() -> None:
    """Ten answers of eleven tokens in ten seconds, all of them in the first 200 ms."""
    _, view = stage_of(*[ended()] * 10, ended(outcome="rejected"), slo="ttft_p95=0.15")
    assert view.value("throughput") == pytest.approx(11 * 11 / 10)
    assert view.value("goodput") == 1
    assert (view.quantities["attainment"].value, view.quantities["failure_share"].value) == (10 / 11, 1 / 11)
    assert "failures" in {finding.kind for finding in view.findings}


def test_retries_are_reported_during_the_run() -> None:
    retries = [msgspec.structs.replace(ended(), attempt=1)] * 4
    _, view = stage_of(*[ended()] * 2, *[ended(outcome="rejected")] * 4, *retries)
    (evidence,) = (finding.evidence for finding in view.findings if finding.kind == "failures")
    assert "10 attempts were made for 6 logical requests, 6 of which were answered" in evidence


def test_a_window_in_which_the_run_was_stopped_ends_there() -> None:
    counts, _ = stage_of(ended(), slo="ttft_p95=0.5")
    stopped = dataclasses.replace(WHOLE, end=4 * SECOND)
    metrics = CountedMetrics(RunObjectives.from_workload({"slo": "ttft_p95=0.5"}))
    view = view_of(stopped, StageKey(0, "4 users"), counts.stages[0], metrics, META, 9 * SECOND)
    assert (view.end, view.complete, view.value("goodput")) == (4.0, False, 0.25)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param(("ok",) * 9 + ("rejected",), "met", id="90 % are within the limit"),
        pytest.param(("ok",) * 8 + ("rejected",) * 2, "missed", id="80 % are"),
        pytest.param(("ok",) * 8 + ("rejected", "unsent"), "not measured", id="one was never sent"),
        pytest.param((), "", id="nothing has ended"),
    ],
)
def test_the_slo_is_met_as_measured(outcomes: tuple[Outcome, ...], expected: str) -> None:
    """The nearest-rank p90 of ten requests is the ninth."""
    metrics = CountedMetrics(RunObjectives.from_workload({"slo": "ttft_p90=0.5"}))
    counts = LiveCounts(metrics)
    counts.enter(WHOLE)
    for outcome in outcomes:
        counts.request_ended(ended(outcome=outcome))
    counts.settle_all()
    window = counts.stages.get(0, Counts())
    assert slo_text(view_of(WHOLE, StageKey(0, "4 users"), window, metrics, META, 9 * SECOND)) == expected
