"""What users felt of a burst or of a killed server, and when it was over: from runs whose answers are known."""

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


def late_between(start: float, end: float, ttft: float = 1.0) -> list[RequestRecord]:
    """Ten a second, whose TTFT is `ttft` from `start` to `end`; a burst lasts from 20 s to 25 s."""
    return [answered(k, k / 10, ttft if start <= k / 10 < end else usual(k)) for k in range(600)]


def late_again(every: int) -> list[RequestRecord]:
    """In the burst, and after it each of `every`."""
    return [answered(k, k / 10, 1.0 if 200 <= k < 250 or (k > 250 and k % every == 0) else 0.1) for k in range(600)]


LEFT_BEHIND = late_between(20, 31)


@pytest.mark.parametrize(
    ("records", "slo", "absorbed", "times"),
    [
        # Three slow ones of twenty are allowed, and the first is none: at 31 s.
        pytest.param(LEFT_BEHIND, "", False, (1.0, 6.0, None), id="until latency is back at its usual level"),
        # p95 allows one request of twenty to be late, but for the first.
        pytest.param(LEFT_BEHIND, "ttft_p95=0.5", False, (1.0, 6.0, 6.0), id="until the SLO is met again"),
        pytest.param(late_between(20, 25, 0.4), "ttft_p95=0.5", True, (0.4, 0.0, 0.0), id="within the SLO"),
        pytest.param(late_between(0, 0), "", True, (0.12, 0.0, None), id="latency stays as it was"),
        pytest.param(late_between(20, 60), "ttft_p95=0.5", False, (1.0, None, None), id="it does not end"),
        pytest.param(late_again(10), "ttft_p95=0.5", False, (1.0, 0.0, None), id="p95 does not allow one of 10"),
        pytest.param(late_again(21), "ttft_p95=0.5", False, (1.0, 0.0, 0.0), id="one of 21 it does"),
    ],
)
def test_when_a_burst_is_over(
    tmp_path: Path, records: list[RequestRecord], slo: str, absorbed: bool, times: tuple[float | None, ...]
) -> None:
    """`times`: the longest TTFT, and the seconds until it was back at its usual level and the SLO was met again."""
    (burst,) = disrupted(tmp_path, records, slo=slo)
    assert (burst.command, burst.start, burst.end, burst.failed) == ("", 20, 25, 0)
    assert (burst.judged, burst.absorbed) == (bool(slo), absorbed)
    assert (burst.peak, burst.recovered, burst.slo_recovered) == pytest.approx(times)


def test_a_burst_of_requests_at_one_instant_is_followed(tmp_path: Path) -> None:
    """Ten a second, and 20 more at 30 s, whose TTFT is a second; what they leave behind lasts until 33 s."""
    records = late_between(30, 33)
    records += [answered(600 + k, 30.0, 1.0) for k in range(20)]
    load = Rate(10.0, "constant", (Segment(10, 10, 30), Burst(20)))
    (burst,) = disrupted(tmp_path, records, load)
    assert (burst.start, burst.end) == (30, 30 + 1e-9)
    assert burst.recovered == pytest.approx(3.0)
    assert [period.requests for period in burst.periods] == [280, 21, 29, 270]


def test_the_periods_of_a_burst(tmp_path: Path) -> None:
    (burst,) = disrupted(tmp_path, LEFT_BEHIND, slo="ttft_p95=0.5")
    before, during, after, again = burst.periods
    assert [period.requests for period in burst.periods] == [180, 50, 60, 290]
    assert [period.within for period in burst.periods] == [1.0, 0.0, 0.0, 1.0]
    assert (after.end, after.ttft_longest, again.start) == pytest.approx((31, 1.0, 31))
    assert (before.ttft_p50, during.ttft_p95) == pytest.approx((0.1, 1.0))
    assert during.most_in_flight == 11, "ten requests a second for 1.04 s each"


def test_stages_of_users_that_rise_and_fall_are_one_burst(tmp_path: Path) -> None:
    stages = stages_of((Users(4), Users(12), Users(4)), 20.0, warm_up=0.1, hold=0.0)
    records = [msgspec.structs.replace(one, stage=min(k // 200, 2)) for k, one in enumerate(late_between(20, 45))]
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
    assert disrupted(tmp_path, late_between(0, 0), Rate(10.0)) == ()


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
