"""Windows that are not steady, and stages whose load was not the planned one."""

import dataclasses
import heapq
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.load import Profile, Rate, Segment
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import TelemetrySample
from enginebench.records.view import Missing
from tests.support.analysis.found import MS, STAGES, every_100_ms, findings, samples
from tests.support.analysis.synthetic import in_order, meta_of, record, stages_of, write_run


def test_lost_records_break_littles_law(tmp_path: Path) -> None:
    """Half a queue's arrivals stay for a second, the others' records say that they are still there."""
    records = [record(k, k * 100 * MS, t_end=k * 100 * MS + SECOND) for k in range(200)]
    records += [record(500 + k, 0, t_end=19 * SECOND) for k in range(5)]
    (found,) = [f for f in findings(tmp_path, records) if f.kind == "unsteady"]
    assert "requests were in flight, but Little's law (arrival rate × mean time in flight) gives" in found.evidence


def test_the_edges_of_a_short_window_do_not_break_littles_law(tmp_path: Path) -> None:
    """One of the fourteen requests of a user takes 3 s, of which the window of 14 s has one: λW is 16/14."""
    records = [record(k, k * SECOND, t_end=(k + 1) * SECOND) for k in range(17)]
    records.append(record(17, 17 * SECOND, t_end=20 * SECOND))
    assert "unsteady" not in {finding.kind for finding in findings(tmp_path, records)}


@pytest.mark.parametrize(
    ("seconds", "growth", "told"),
    [
        pytest.param(2000.0, 40e6, True, id="from 200 MB to 240 MB"),
        pytest.param(2000.0, 5e6, False, id="5 MB are no leak"),
        pytest.param(500.0, 40e6, False, id="a few minutes tell nothing: caches fill"),
    ],
)
def test_memory_that_grows_for_long_is_told(tmp_path: Path, seconds: float, growth: float, told: bool) -> None:
    records = [record(k, k * SECOND) for k in range(int(seconds))]
    samples = [
        TelemetrySample(t=k * SECOND, server={"process_resident_memory_bytes": 200e6 + growth * k / seconds})
        for k in range(int(seconds))
    ]
    run = write_run(tmp_path / "run", meta_of(stages_of((1,), seconds)), records, in_order(samples))
    found = [finding for finding in summarise(load_run(run)).findings if finding.kind == "memory_grew"]
    assert len(found) == told
    if told:
        assert "process from 200 MiB to 224 MiB (68.7 MiB an hour)" in found[0].evidence


@pytest.mark.parametrize(
    ("rate", "profile", "told"),
    [
        pytest.param(8.0, (), False, id="four places for half a second each take 8 requests a second"),
        pytest.param(16.0, (), True, id="but not 16"),
        pytest.param(16.0, (Segment(2, 30),), False, id="a rate that rises is meant to end with more in flight"),
    ],
)
def test_a_backlog_that_grows_in_an_open_loop_is_told(
    tmp_path: Path, rate: float, profile: Profile, told: bool
) -> None:
    load, gap, free = Rate(rate, "constant", profile), round(SECOND / rate), [0] * 4
    records = []
    for k in range(round(20 * rate)):
        begun = max(heapq.heappop(free), k * gap)
        ended = begun + SECOND // 2
        heapq.heappush(free, ended)
        seen = dict.fromkeys(("t_first", "t_first_out", "read_first", "t_last", "t_end"), ended)
        records.append(record(k, k * gap, t_send=k * gap, icl=(), chunks=1, **seen))
    stage = stages_of((load,), 20.0)
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stage), records)))
    found = [finding for finding in summary.findings if finding.kind == "unsteady"]
    assert len(found) == told
    if told:
        assert "16.0 requests arrived a second and 8.00 ended: the backlog grew by 112" in found[0].evidence


def test_convoys_of_users_are_told(tmp_path: Path) -> None:
    """Ten users who all send at once, every second; and ten who are spread over it."""
    convoy = [record(k, (k // 10) * SECOND + k % 10, user=k % 10) for k in range(200)]
    rng = random.Random(2)
    spread = [record(k, k * SECOND // 10 + rng.randrange(90 * MS), user=k % 10) for k in range(200)]
    stages, there = stages_of((10,), 20.0), samples(users=10)
    found = findings(tmp_path / "convoy", convoy, stages=stages, samples=there)
    assert "lock_step" in {f.kind for f in found}
    assert "lock_step" not in {f.kind for f in findings(tmp_path / "spread", spread, stages=stages, samples=there)}


@pytest.mark.parametrize(
    ("lengths", "remedy"),
    [
        ("16", "vary the lengths: --output-tokens uniform:LOW-HIGH"),
        ("uniform:8-24", "`enginebench run rate` sends requests independently of each other"),
    ],
)
def test_requests_that_repeat_in_cycles_are_told_wherever_an_interval_is_withheld(
    tmp_path: Path, lengths: str, remedy: str
) -> None:
    """Ten users who are spread over a second, each with a latency of its own, which never changes."""
    march = []
    for k in range(400):
        at = k * SECOND // 10
        first = at + (20 + 8 * (k % 10)) * MS
        seen = {"t_first": first, "t_first_out": first, "read_first": first, "t_last": first, "t_end": first}
        march.append(record(k, at, user=k % 10, icl=(), chunks=1, **seen))
    run = write_run(
        tmp_path / "run", meta_of(stages_of((10,), 40.0), workload={"output_tokens": lengths}), march, samples(users=10)
    )
    summary = summarise(load_run(run))
    (view,) = summary.stages
    assert view.metrics["ttft"].percentile("p50").missing is Missing.CYCLIC
    (found,) = [finding for finding in summary.findings if finding.kind == "lock_step"]
    words = "the users sent their requests in a fixed order, so latencies repeat"
    assert (found.evidence, found.remedy) == (words, remedy)


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"unserved_users": 1}, "1 of 1 user still waited for the first answer when measuring began"),
        (
            {"unanswered": 3},
            "3 of the window's requests had no answer when the stage reached its longest duration: they ended under "
            "the load of the next stage, or were cut off",
        ),
    ],
)
def test_a_stage_that_hit_its_bounds_is_told(tmp_path: Path, changes: dict[str, Any], evidence: str) -> None:
    stages = (dataclasses.replace(STAGES[0], **changes),)
    (found,) = findings(tmp_path, every_100_ms(), stages=stages)
    assert (found.kind, found.severity) == ("unfinished", "warn")
    assert found.evidence == evidence


def of_lengths(tmp_path: Path, speed: Callable[[float], float]) -> RunSummary:
    """Eight users for 400 s; answers of 300 to 600 tokens take `speed` seconds a token, by the instant they begin."""
    rng = random.Random(0)
    records: list[RequestRecord] = []
    ready = [(rng.random(), user) for user in range(8)]
    while ready[0][0] < 400:
        t, user = heapq.heappop(ready)
        tokens, gap = rng.randrange(300, 600), speed(t)
        at, span = int(t * SECOND), int(gap * SECOND)
        first = at + SECOND // 10
        gaps = (span,) * (tokens - 1)
        last = first + sum(gaps)
        stamps = {"t_first": first, "t_first_out": first, "read_first": first, "t_last": last, "t_end": last}
        records.append(record(len(records), at, user=user, icl=gaps, chunks=tokens, output_tokens=tokens, **stamps))
        heapq.heappush(ready, (last / SECOND + 0.001, user))
    sampled = in_order([TelemetrySample(t=t * SECOND, users=8) for t in range(1, 400)])
    stages = stages_of((8,), 400.0)
    return summarise(load_run(write_run(tmp_path, meta_of(stages, model="unheard-of"), records, sampled)))


@pytest.mark.parametrize(
    ("drift", "told"),
    [pytest.param(0.0, False, id="a steady engine"), pytest.param(0.15, True, id="15 % slower at the window's end")],
)
def test_tpot_of_long_answers_is_true_or_has_a_finding(tmp_path: Path, drift: float, told: bool) -> None:
    summary = of_lengths(tmp_path, lambda t: 0.02 * (1 + drift * t / 400))
    kinds = {f.kind: f.evidence for f in summary.findings}
    tpot = summary.stages[0].value("tpot", "p50")
    assert tpot is not None
    assert ("unsteady" in kinds) == told
    if told:
        assert "TPOT went from" in kinds["unsteady"]
    else:
        assert tpot == pytest.approx(0.02, rel=0.02)
