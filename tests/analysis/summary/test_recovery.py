"""What users felt of a burst or of a killed server, and when it was over: from runs whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Load, Rate, Users
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunEvent
from enginebench.records.stage import SECOND
from enginebench.records.view import Finding
from tests.support.analysis.synthetic import NOTHING_CAME, meta_of, record, stages_of, write_run

MS = SECOND // 1000
BURST = Rate(10.0, "constant", "10x20+50x5+10x35")


def answered(number: int, at: float, ttft: float) -> RequestRecord:
    due = round(at * SECOND)
    seen = dict.fromkeys(("t_first", "t_first_out", "read_first"), due + round(ttft * SECOND))
    ended = dict.fromkeys(("t_last", "t_end"), due + round(ttft * SECOND) + 40 * MS)
    return record(number, due, **seen, **ended)


def told(tmp_path: Path, records: list[RequestRecord], load: Load = BURST, **changes: Any) -> list[Finding]:
    """Of one stage of a minute, warm-up two seconds, nothing held."""
    stages = stages_of((load,), 60.0, warm_up=2 / 60, hold=0.0)
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stages, **changes), records)))
    return [finding for finding in summary.findings if finding.kind == "recovery"]


def usual(k: int) -> float:
    """100 ms, and 120 ms for every tenth."""
    return 0.12 if k % 10 == 0 else 0.1


def test_a_burst_is_over_when_latency_is_back_in_its_band(tmp_path: Path) -> None:
    """Ten a second. From 20 s to 25 s a burst; what it leaves behind makes TTFT a second long until 31 s."""
    records = [answered(k, k / 10, 1.0 if 20 <= k / 10 < 31 else usual(k)) for k in range(600)]
    (finding,) = told(tmp_path, records)
    assert finding.severity == "note"
    assert finding.stage is not None
    expected = (
        "after the burst to 50 req/s: TTFT (user) peaked at 1.00 s, 5.70 s after its end TTFT (user) was back within "
        "120 ms (its p95 before)"
    )
    assert finding.evidence == expected, "three slow ones of the twenty are borne: back at 30.7 s"


def test_a_burst_that_is_not_got_over_is_a_warning(tmp_path: Path) -> None:
    records = [answered(k, k / 10, 1.0 if k >= 200 else usual(k)) for k in range(600)]
    (finding,) = told(tmp_path, records)
    assert finding.severity == "warn"
    assert "it did not return within 120 ms" in finding.evidence


@pytest.mark.parametrize("load", [Users(4), Rate(10.0)])
def test_a_command_is_followed_by_failures_a_first_answer_and_a_recovery(tmp_path: Path, load: Load) -> None:
    """Killed at 20 s: four seconds of failures, then answers that take half a second, from 30 s on the usual ones."""
    records = []
    for k in range(600):
        at = k / 10
        if 20 <= at < 24:
            records.append(record(k, round(at * SECOND), **NOTHING_CAME | {"outcome": "rejected", "status": 503}))
        else:
            records.append(answered(k, at, 0.5 if 24 <= at < 30 else usual(k)))
    events = (
        RunEvent(-9 * SECOND, "server started"),
        RunEvent(-2 * SECOND, "server ready"),
        RunEvent(20 * SECOND - 1, "kill -9 1"),
    )
    (finding,) = told(tmp_path, records, load, events=events)
    assert finding.evidence == (
        "after `kill -9 1`: 40 requests failed, the first answer to a request sent after it began 4.50 s later "
        "(the server's first start had taken 7.00 s), TTFT (user) peaked at 500 ms, 9.70 s after it TTFT (user) was "
        "back within 120 ms (its p95 before)"
    )


def test_without_a_disruption_nothing_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, [answered(k, k / 10, usual(k)) for k in range(600)], Rate(10.0)) == []


def test_too_few_requests_before_make_no_band(tmp_path: Path) -> None:
    records = [answered(k, 2.0 * k, usual(k)) for k in range(30)]
    assert told(tmp_path, records, events=(RunEvent(20 * SECOND, "x"),)) == []


def test_what_was_in_flight_when_the_engine_died_is_felt_and_not_what_was_usual(tmp_path: Path) -> None:
    """The answers that were on their way at 20 s are lost: an eighth of all that were due before it."""
    lost = NOTHING_CAME | {"outcome": "bad_stream", "t_end": 20 * SECOND + MS}
    records = [
        record(k, round(k / 10 * SECOND), **lost) if 17.5 <= k / 10 < 20 else answered(k, k / 10, usual(k))
        for k in range(600)
    ]
    (finding,) = told(tmp_path, records, Rate(10.0), events=(RunEvent(20 * SECOND - 1, "kill -9 1"),))
    assert finding.evidence.startswith("after `kill -9 1`: 25 requests failed, ")
    assert "TTFT (user) was back within 120 ms" in finding.evidence


def test_the_peak_is_that_of_all_who_felt_it(tmp_path: Path) -> None:
    """Every first token due between 20 s and 23 s comes at 23.05 s: that of the request of 19.9 s 3.15 s after it."""
    records = []
    for k in range(600):
        due = k / 10
        paused = due < 23 and due + usual(k) > 19.95
        records.append(answered(k, due, 23.05 - due if paused else usual(k)))
    (finding,) = told(tmp_path, records, Users(4), events=(RunEvent(20 * SECOND - 1, "kill -STOP 1"),))
    assert "TTFT (user) peaked at 3.15 s" in finding.evidence
