"""What is counted of requests, into which buckets, and how it is written down."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadtests.harness.exporter.counts import ICL, METRICS, Buckets, Counts, together
from loadtests.harness.exporter.edges import edges_around
from loadtests.harness.exporter.text import Now, RunFacts, families
from records.request import RequestRecord
from records.slo import RunObjectives, parse_objectives
from settings.schema import read_address, write_address

MS = 1_000_000
OBJECTIVES = RunObjectives(parse_objectives(["ttft_p95=0.137,tpot_p50=0.02,failures=0.01"]))
ANSWERED = RequestRecord(
    request_id="0-1",
    worker="0",
    scenario="s",
    stage=0,
    outcome="ok",
    t_sched=0,
    t_send=1 * MS,
    t_first=101 * MS,
    t_last=141 * MS,
    t_end=142 * MS,
    icl=(10 * MS, 30 * MS),
    chunks=3,
    first_chunk_tokens=1,
    output_tokens=3,
    prompt_tokens=7,
)


def counted(*records: RequestRecord, objectives: RunObjectives = OBJECTIVES) -> Counts:
    counts = Counts(Buckets(objectives))
    for record in records:
        counts.request_scheduled()
        counts.request_ended(record)
    return counts


@pytest.mark.parametrize("limits", [(), (0.137,), (0.5, 0.6), (1e-5,), (5000.0,)])
def test_edges_are_close_around_each_limit_and_reach_far(limits: tuple[float, ...]) -> None:
    edges = edges_around(limits)
    assert list(edges) == sorted(set(edges))
    assert edges[0] <= 1e-4
    assert edges[-1] >= 1000
    for limit in limits:
        assert limit in edges, "so the share within it is exact"
        near = [edge for edge in edges if limit / 1.9 <= edge <= limit * 1.9]
        assert max(after / before for before, after in pairwise(near)) <= 1.1
    if all(1e-4 < limit < 1000 for limit in limits):
        assert max(after / before for before, after in pairwise(edges)) < 1.6


def test_a_request_is_counted_in_each_of_its_metrics() -> None:
    counts = counted(ANSWERED)
    stage, edges = counts.stages[0], Buckets(OBJECTIVES).edges
    truth = {"ttft": 0.101, "tpot": 0.02, "e2e": 0.141, "send_lag": 0.001}  # ttft and e2e from when it was due
    for name, seconds in truth.items():
        histogram = stage.histograms[name]
        (bucket,) = [index for index, count in enumerate(histogram.counts) if count]
        assert edges[name][bucket - 1] < seconds <= edges[name][bucket], name
        assert histogram.total == pytest.approx(seconds)
    assert sum(stage.histograms["client_lag"].counts) == 0, "no kernel stamps"
    assert sum(stage.histograms[ICL].counts) == 2
    assert stage.histograms[ICL].total == pytest.approx(0.04)
    assert (stage.outcomes["ok"], stage.good, stage.output_tokens, stage.prompt_tokens) == (1, 1, 3, 7)
    assert (counts.scheduled, counts.in_flight) == (1, 0)


def test_failures_count_as_infinite_and_what_was_cut_off_by_what_is_known() -> None:
    failed = msgspec.structs.replace(ANSWERED, outcome="timeout")
    cut_off = msgspec.structs.replace(ANSWERED, outcome="cut_off", t_last=None)
    stage = counted(failed, cut_off).stages[0]
    assert stage.histograms["ttft"].counts[-1] == 1
    assert sum(stage.histograms["ttft"].counts) == 2
    assert sum(stage.histograms["e2e"].counts) == 1, "its end is not known"
    assert sum(stage.histograms["send_lag"].counts) == 2
    assert stage.histograms["send_lag"].counts[-1] == 0, "it was sent in time"
    assert (stage.outcomes["timeout"], stage.outcomes["cut_off"], stage.good) == (1, 1, 0)


def test_processes_are_added_up_from_their_messages() -> None:
    buckets = Buckets(OBJECTIVES)
    received = [Counts(buckets), Counts(buckets)]
    for sender, receiver in zip(
        (counted(ANSWERED), counted(ANSWERED, msgspec.structs.replace(ANSWERED, stage=1))), received, strict=True
    ):
        for _ in range(2):  # the second message has nothing new
            receiver.take(msgspec.msgpack.decode(msgspec.msgpack.encode(sender.message())))
    total = together(received, buckets)
    assert [total.stages[index].outcomes["ok"] for index in (0, 1)] == [2, 1]
    assert sum(total.stages[0].histograms[ICL].counts) == 4
    assert total.scheduled == 3


def page(counts: Counts, objectives: RunObjectives = OBJECTIVES, **changes: Any) -> dict[tuple[str, ...], float]:
    """Samples by name and the values of their labels."""
    facts = RunFacts("r1", "http://x", {"scenario": "s", "engine": 'a"b\\', "model": "m"}, 1e9, objectives)
    now = Now("5 users", 0, users=5, in_flight=counts.in_flight, offered=None)
    text = "".join(families(facts, replace(now, **changes), {"5 users": counts.stages[0]}, Buckets(objectives)))
    return {
        (
            sample.name.removeprefix("enginebench_load_"),
            *(value for name, value in sorted(sample.labels.items()) if name not in {"engine", "scenario", "model"}),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["engine"] == 'a"b\\'
    }


def test_the_page_is_prometheus_text() -> None:
    found = page(counted(ANSWERED, ANSWERED))
    assert found["run_info", "r1", "http://x"] == 1
    assert found["run_start_seconds", "r1"] == 1e9
    assert found["requests_total", "ok", "5 users"] == 2
    assert found["requests_total", "timeout", "5 users"] == 0
    assert found["good_requests_total", "5 users"] == 2
    assert found["objective_seconds", "ttft_p95"] == 0.137
    assert ("objective_seconds", "failures") not in found
    assert found["users", "5 users"] == 5
    assert found["stage_index", "5 users"] == 0
    assert {(f"{name}_seconds_count", "5 users") for name in (*METRICS, ICL)} <= set(found)
    assert found["ttft_seconds_bucket", "0.137", "5 users"] == 2
    assert found["icl_seconds_bucket", "+Inf", "5 users"] == 4
    assert found["icl_seconds_sum", "5 users"] == pytest.approx(0.08)


def test_what_does_not_apply_is_absent() -> None:
    found = page(counted(ANSWERED, objectives=RunObjectives()), RunObjectives())
    assert ("good_requests_total", "5 users") not in found, "without objectives nothing is good or bad"
    assert ("offered_rate", "5 users") not in found, "a closed loop offers what it is answered"
    found = page(counted(ANSWERED), users=None, offered=2.5)
    assert found["offered_rate", "5 users"] == 2.5
    assert ("users", "5 users") not in found, "an open loop has arrivals and no users"


def test_buckets_never_decrease() -> None:
    records = [msgspec.structs.replace(ANSWERED, t_first=(1 + 7 * k) * MS, t_last=(300 + k) * MS) for k in range(40)]
    found = page(counted(*records))
    buckets = [
        (math.inf if key[1] == "+Inf" else float(key[1]), count)
        for key, count in found.items()
        if key[0] == "ttft_seconds_bucket"
    ]
    values = [count for _, count in sorted(buckets)]
    assert values == sorted(values)
    assert values[-1] == 40


def test_addresses() -> None:
    assert read_address("127.0.0.1:9646") == ("127.0.0.1", 9646)
    assert write_address(read_address("[::1]:0")) == "[::1]:0"
    for wrong in ("9646", "localhost", "a:b", "a:", ":9646", "a:70000"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            read_address(wrong)
