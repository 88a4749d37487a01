"""What users felt of a burst or of a killed server, and when it was over: from runs whose answers are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.sections.disruptions import answer, worst_periods
from enginebench.analysis.summary.recovery import Disruption, Period
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Burst, Load, Rate, Segment, Users
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunEvent
from enginebench.records.slo import parse_objectives
from enginebench.records.stage import SECOND
from tests.support.analysis.synthetic import NOTHING_CAME, meta_of, record, stages_of, write_run

MS = SECOND // 1000
BURST = Rate(10.0, "constant", (Segment(10, 10, 20), Segment(50, 50, 5), Segment(10, 10, 35)))


def answered(number: int, at: float, ttft: float) -> RequestRecord:
    due = round(at * SECOND)
    seen = dict.fromkeys(("t_first", "t_first_out", "read_first"), due + round(ttft * SECOND))
    ended = dict.fromkeys(("t_last", "t_end"), due + round(ttft * SECOND) + 40 * MS)
    return record(number, due, **seen, **ended)


def disrupted(
    tmp_path: Path, records: list[RequestRecord], load: Load = BURST, slo: str = "", **changes: Any
) -> tuple[Disruption, ...]:
    """The disruptions of one stage of a minute, with a warm-up of two seconds and nothing held."""
    stages = stages_of((load,), 60.0, warm_up=2 / 60, hold=0.0)
    run = load_run(write_run(tmp_path / "run", meta_of(stages, **changes), records))
    return summarise(run, parse_objectives([slo]) if slo else ()).disruptions


def usual(k: int) -> float:
    """100 ms, and 120 ms for every tenth."""
    return 0.12 if k % 10 == 0 else 0.1


def test_a_burst_is_over_when_latency_is_back_at_its_usual_level(tmp_path: Path) -> None:
    """Ten a second. From 20 s to 25 s a burst; what it leaves behind makes TTFT a second long until 31 s."""
    records = [answered(k, k / 10, 1.0 if 20 <= k / 10 < 31 else usual(k)) for k in range(600)]
    (burst,) = disrupted(tmp_path, records)
    assert (burst.command, burst.start, burst.end) == ("", 20, 25)
    assert (burst.peak, burst.failed) == (1.0, 0)
    assert burst.recovered == pytest.approx(6.0), (
        "three slow ones of twenty are allowed, and the first is none: at 31 s"
    )
    assert (burst.judged, burst.slo_recovered) == (False, None)


def test_a_burst_of_requests_at_one_instant_is_followed(tmp_path: Path) -> None:
    """Ten a second, and 20 more at 30 s, whose TTFT is a second; what they leave behind lasts until 33 s."""
    records = [answered(k, k / 10, 1.0 if 30 <= k / 10 < 33 else usual(k)) for k in range(600)]
    records += [answered(600 + k, 30.0, 1.0) for k in range(20)]
    load = Rate(10.0, "constant", (Segment(10, 10, 30), Burst(20)))
    (burst,) = disrupted(tmp_path, records, load)
    assert (burst.start, burst.end) == (30, 30 + 1e-9)
    assert burst.recovered == pytest.approx(3.0)
    assert [period.requests for period in burst.periods] == [280, 21, 29, 270]


def test_an_slo_decides_whether_a_burst_is_absorbed(tmp_path: Path) -> None:
    """p95 allows one request of twenty to be late, but for the first: met again at 31 s."""
    records = [answered(k, k / 10, 1.0 if 20 <= k / 10 < 31 else usual(k)) for k in range(600)]
    (burst,) = disrupted(tmp_path, records, slo="ttft_p95=0.5")
    assert (burst.judged, burst.absorbed) == (True, False)
    assert burst.slo_recovered == pytest.approx(6.0)
    before, during, after, again = burst.periods
    assert [period.requests for period in burst.periods] == [180, 50, 60, 290]
    assert [period.within for period in burst.periods] == [1.0, 0.0, 0.0, 1.0]
    assert (after.end, after.ttft_longest, again.start) == pytest.approx((31, 1.0, 31))
    assert (before.ttft_p50, during.ttft_p95) == pytest.approx((0.1, 1.0))
    assert during.most_in_flight == 11, "ten requests a second for 1.04 s each"


def test_a_burst_within_the_slo_is_absorbed(tmp_path: Path) -> None:
    records = [answered(k, k / 10, 0.4 if 20 <= k / 10 < 25 else usual(k)) for k in range(600)]
    (burst,) = disrupted(tmp_path, records, slo="ttft_p95=0.5")
    assert burst.absorbed
    assert burst.peak == pytest.approx(0.4)


def test_without_an_slo_a_burst_is_absorbed_if_latency_stays_as_it_was(tmp_path: Path) -> None:
    (burst,) = disrupted(tmp_path, [answered(k, k / 10, usual(k)) for k in range(600)])
    assert (burst.judged, burst.absorbed, burst.recovered) == (False, True, 0.0)


def test_a_burst_that_does_not_end_has_no_recovery(tmp_path: Path) -> None:
    records = [answered(k, k / 10, 1.0 if k >= 200 else usual(k)) for k in range(600)]
    (burst,) = disrupted(tmp_path, records, slo="ttft_p95=0.5")
    assert (burst.recovered, burst.slo_recovered) == (None, None)


def test_the_slo_is_met_again_if_all_that_follows_meets_it(tmp_path: Path) -> None:
    """From 25 s on one request of 10 takes a second, which p95 does not allow. One of 21 it does."""

    def late(every: int) -> list[RequestRecord]:
        return [answered(k, k / 10, 1.0 if 200 <= k < 250 or (k > 250 and k % every == 0) else 0.1) for k in range(600)]

    (burst,) = disrupted(tmp_path / "a", late(10), slo="ttft_p95=0.5")
    assert burst.slo_recovered is None
    (burst,) = disrupted(tmp_path / "b", late(21), slo="ttft_p95=0.5")
    assert burst.slo_recovered == pytest.approx(0.0)
    assert burst.periods[-1].within == pytest.approx(1 - 16 / 350, abs=0.003)


def test_stages_of_users_that_rise_and_fall_are_one_burst(tmp_path: Path) -> None:
    stages = stages_of((Users(4), Users(12), Users(4)), 20.0, warm_up=0.1, hold=0.0)
    records = [answered(k, k / 10, 1.0 if 20 <= k / 10 < 45 else usual(k)) for k in range(600)]
    records = [msgspec.structs.replace(one, stage=min(k // 200, 2)) for k, one in enumerate(records)]
    (burst,) = summarise(load_run(write_run(tmp_path / "run", meta_of(stages), records))).disruptions
    assert (burst.start, burst.end) == (20, 40)
    assert burst.recovered == pytest.approx(5.0)


@pytest.mark.parametrize("load", [Users(4), Rate(10.0)])
def test_a_command_is_followed_by_failures_and_a_recovery(tmp_path: Path, load: Load) -> None:
    """Killed at 20 s: four seconds of failures, then answers that take half a second, from 30 s on the usual ones."""
    records = []
    for k in range(600):
        at = k / 10
        if 20 <= at < 24:
            records.append(record(k, round(at * SECOND), **NOTHING_CAME | {"outcome": "rejected", "status": 503}))
        else:
            records.append(answered(k, at, 0.5 if 24 <= at < 30 else usual(k)))
    (outage,) = disrupted(tmp_path, records, load, events=(RunEvent(20 * SECOND - 1, "kill -9 1"),))
    assert (outage.command, outage.failed) == ("kill -9 1", 40)
    assert (outage.peak, outage.recovered) == pytest.approx((0.5, 10.0))


def test_without_a_disruption_there_is_none(tmp_path: Path) -> None:
    assert disrupted(tmp_path, [answered(k, k / 10, usual(k)) for k in range(600)], Rate(10.0)) == ()


def test_too_few_requests_before_make_no_band(tmp_path: Path) -> None:
    records = [answered(k, 2.0 * k, usual(k)) for k in range(30)]
    assert disrupted(tmp_path, records, events=(RunEvent(20 * SECOND, "x"),)) == ()


def test_what_was_in_flight_when_the_engine_died_is_felt_and_not_what_was_usual(tmp_path: Path) -> None:
    """The answers that were on their way at 20 s are lost: an eighth of all that were due before it."""
    lost = NOTHING_CAME | {"outcome": "bad_stream", "t_end": 20 * SECOND + MS}
    records = [
        record(k, round(k / 10 * SECOND), **lost) if 17.5 <= k / 10 < 20 else answered(k, k / 10, usual(k))
        for k in range(600)
    ]
    (outage,) = disrupted(tmp_path, records, Rate(10.0), events=(RunEvent(20 * SECOND - 1, "kill -9 1"),))
    assert outage.failed == 25


def test_the_peak_is_that_of_all_who_felt_it(tmp_path: Path) -> None:
    """Every first token due between 20 s and 23 s comes at 23.05 s: that of the request of 19.9 s 3.15 s after it."""
    records = []
    for k in range(600):
        due = k / 10
        paused = due < 23 and due + usual(k) > 19.95
        records.append(answered(k, due, 23.05 - due if paused else usual(k)))
    (outage,) = disrupted(tmp_path, records, Users(4), events=(RunEvent(20 * SECOND - 1, "kill -STOP 1"),))
    assert outage.peak == pytest.approx(3.15)


def test_of_several_bursts_the_longest_ttft_and_recovery_are_told() -> None:
    period = Period(0.0, 10.0, 100, 0, 0.5, 0.1, 0.2, 0.3, 4)
    first = Disruption("", 10.0, 20.0, 3.0, 0, None, True, False, 30.0, (period,), ())
    second = replace(first, start=70.0, peak=5.0, slo_recovered=12.0)
    told = answer("mock", (second, first))
    assert (told.peak, told.recovered, told.total) == (5.0, 30.0, 2)
    assert worst_periods((second, first)).title.endswith("burst 2 of 2, with the longest TTFT")
    lost = replace(first, slo_recovered=None)
    told = answer("mock", (lost, second))
    assert (told.peak, told.recovered) == (5.0, None)
    assert "burst 1 of 2, which did not recover" in worst_periods((lost, second)).title
