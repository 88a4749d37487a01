"""Each finding has a run that earns it, and a good run earns none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.report.remarks import remarks
from analysis.run.load import load_run
from analysis.verdict.finding import Finding
from analysis.verdict.summary import RunSummary, summarise
from records.request import RequestRecord, TelemetrySample
from tests.support.synthetic import (
    FAILED,
    NOTHING_CAME,
    SECOND,
    Engine,
    meta_of,
    record,
    simulate,
    stages_of,
    write_run,
)

MS = 1_000_000
STAGES = stages_of((1,), 20.0)  # steady from 4 s to 18 s
Change = Callable[[int, RequestRecord], RequestRecord]


def every_100_ms(change: Change | None = None) -> list[RequestRecord]:
    """200 requests, 140 of them in the window; each leaves 14 ms before the next."""
    records = [record(k, k * 100 * MS, t_end=k * 100 * MS + 98 * MS, **SHORT(k)) for k in range(200)]
    return records if change is None else [change(k, one) for k, one in enumerate(records)]


def SHORT(k: int) -> dict[str, Any]:
    first = k * 100 * MS + (50 + k % 7) * MS
    return {"t_first": first, "t_first_out": first, "read_first": first, "t_last": first + 40 * MS}


def changed(**changes: Any) -> Change:
    return lambda _, one: dataclasses.replace(one, **changes)


def now_and_then(every: int, **changes: Any) -> Change:
    return lambda k, one: dataclasses.replace(one, **changes) if k % every == 0 else one


def late(lag: int, every: int = 50) -> Change:
    return lambda k, one: dataclasses.replace(one, t_sched=one.t_sched - lag * MS) if k % every == 0 else one


def read_late(lag: int) -> Change:
    return lambda _, one: dataclasses.replace(one, read_first=(one.t_first or 0) + lag * MS)


def slower(k: int, one: RequestRecord) -> RequestRecord:
    """TTFT grows from 50 ms to 250 ms."""
    return dataclasses.replace(one, t_first=(one.t_first or 0) + k * MS, t_last=(one.t_last or 0) + k * MS)


def longer(k: int, one: RequestRecord) -> RequestRecord:
    """Requests end ever later: more and more of them are in flight."""
    return dataclasses.replace(one, t_end=one.t_end + 30 * k * MS)


def samples(cpu: float = 0.2, lag: float = 0.001, tokens: float = 30.0, users: int = 1) -> list[TelemetrySample]:
    counter = 'enginebench_generation_tokens_total{engine="fake"}'
    return [
        TelemetrySample(t=t * SECOND, client_cpu=cpu, loop_lag=lag, server={counter: tokens * t}, users=users)
        for t in range(1, 20)
    ]


def findings(tmp_path: Path, records: list[RequestRecord], **changes: Any) -> tuple[Finding, ...]:
    telemetry = changes.pop("samples", samples())
    run = write_run(tmp_path, meta_of(changes.pop("stages", STAGES), **changes), records, telemetry)
    return summarise(load_run(run)).findings


def test_a_good_run_earns_none(tmp_path: Path) -> None:
    assert findings(tmp_path, every_100_ms()) == ()


@pytest.mark.parametrize(
    ("change", "kind", "severity", "evidence"),
    [
        pytest.param(late(30), "client_late", "invalid", "went out 30.0 ms late at p99", id="requests sent 30 ms late"),
        pytest.param(late(8), "client_late", "warn", "went out 8.00 ms late at p99", id="requests sent 8 ms late"),
        pytest.param(read_late(40), "client_late", "warn", "noticed 40.0 ms late", id="the kernel knew, we did not"),
        pytest.param(now_and_then(10, **FAILED), "failures", "warn", "10 % of the requests failed", id="failures"),
        pytest.param(
            now_and_then(10, **NOTHING_CAME, outcome="cut_off"),
            "censored",
            "warn",
            "10 % of the requests",
            id="cut off",
        ),
        pytest.param(now_and_then(20, reconnected=True), "reconnected", "warn", "7 of 140 requests", id="reconnected"),
        pytest.param(slower, "never_steady", "warn", "TTFT went from", id="TTFT grows inside the window"),
        pytest.param(longer, "never_steady", "warn", "requests in flight went from", id="the backlog grows"),
        pytest.param(
            changed(output_tokens=12, first_chunk_tokens=4),
            "tokens_per_chunk",
            "note",
            "carried 4.00 tokens",
            id="chunks",
        ),
        pytest.param(
            changed(output_tokens=2), "token_count_disagrees", "warn", "fewer tokens than they had chunks", id="too few"
        ),
        pytest.param(
            now_and_then(2, output_tokens=None),
            "token_count_disagrees",
            "warn",
            "nobody counted the tokens of 70",
            id="none",
        ),
        pytest.param(
            now_and_then(2, token_source="tokenizer"),
            "token_count_disagrees",
            "warn",
            "the other 70",
            id="mixed sources",
        ),
    ],
)
def test_what_records_tell(tmp_path: Path, change: Change, kind: str, severity: str, evidence: str) -> None:
    found = [f for f in findings(tmp_path, every_100_ms(change), model="unheard-of") if f.kind == kind]
    assert [(f.severity, f.users, f.label) for f in found] == [(severity, 1, "fake")]
    assert evidence in found[0].evidence
    assert found[0].remedy


@pytest.mark.parametrize(
    ("telemetry", "kind", "evidence"),
    [
        pytest.param(samples(cpu=0.97), "client_cpu_bound", "used 0.970 cores", id="a busy load generator"),
        pytest.param(samples(lag=0.03), "event_loop_late", "up to 30.0 ms late", id="a late event loop"),
        pytest.param(
            samples(tokens=60.0), "token_count_disagrees", "counter grew by 780", id="somebody else was served"
        ),
    ],
)
def test_what_telemetry_tells(tmp_path: Path, telemetry: list[TelemetrySample], kind: str, evidence: str) -> None:
    (found,) = findings(tmp_path, every_100_ms(), samples=telemetry)
    assert (found.kind, found.severity) == (kind, "warn")
    assert evidence in found.evidence


def test_first_tokens_read_with_others_are_told_where_the_reader_was_late(tmp_path: Path) -> None:
    together = [dataclasses.replace(one, merged_first=at % 50 == 0) for at, one in enumerate(every_100_ms())]
    late = {found.kind for found in findings(tmp_path, together, samples=samples(lag=0.03))}
    assert late == {"event_loop_late", "read_together"}


def test_chunks_that_a_server_writes_at_once_are_no_fault_of_the_reader(tmp_path: Path) -> None:
    together = [dataclasses.replace(one, merged_first=True) for one in every_100_ms()]
    assert "read_together" not in {found.kind for found in findings(tmp_path, together, samples=samples(lag=0.0))}


@pytest.mark.parametrize(
    ("server", "found"),
    [
        pytest.param(130.0, False, id="390 tokens apart while 400 are in flight"),
        pytest.param(150.0, True, id="650 tokens apart"),
    ],
)
def test_a_server_that_counts_when_requests_end_may_be_apart_by_what_is_in_flight(
    tmp_path: Path, server: float, found: bool
) -> None:
    """Forty requests at a time, ten a second, ten tokens each: this client sees 100 tokens a second."""
    records = [record(k, k * 100 * MS, t_end=k * 100 * MS + 4 * SECOND, output_tokens=10) for k in range(200)]
    kinds = {f.kind for f in findings(tmp_path, records, samples=samples(tokens=server))}
    assert ("token_count_disagrees" in kinds) == found


def test_lost_records_break_littles_law(tmp_path: Path) -> None:
    """Half a queue's arrivals stay for a second, the others' records say that they are still there."""
    records = [record(k, k * 100 * MS, t_end=k * 100 * MS + SECOND) for k in range(200)]
    records += [record(500 + k, 0, t_end=19 * SECOND) for k in range(5)]
    assert "littles_law_off" in {f.kind for f in findings(tmp_path, records)}


@pytest.mark.parametrize(("count", "severity"), [(50, "note"), (10, "warn")])
def test_few_samples(tmp_path: Path, count: int, severity: str) -> None:
    records = [record(k, 4 * SECOND + k * 14 * SECOND // count) for k in range(count)]
    found = [f for f in findings(tmp_path, records, samples=samples(tokens=0)) if f.kind == "too_few_samples"]
    assert [f.severity for f in found] == [severity]
    assert f"{count} requests ended well" in found[0].evidence


def test_few_requests_do_not_void_a_run(tmp_path: Path) -> None:
    """The p99 of 50 requests is one of them: late once is a warning."""
    records = [record(k, 4 * SECOND + k * SECOND // 4) for k in range(50)]
    records[7] = dataclasses.replace(records[7], t_sched=records[7].t_sched - 500 * MS)
    assert {f.severity for f in findings(tmp_path, records) if f.kind == "client_late"} == {"warn"}


def test_nothing_that_ended_well_voids_a_run(tmp_path: Path) -> None:
    found = findings(tmp_path, every_100_ms(changed(**FAILED)))
    assert found[0].kind == "failures"
    assert found[0].severity == "invalid"


def test_spoilt_lines_and_missing_workers(tmp_path: Path) -> None:
    folder = write_run(tmp_path, meta_of(STAGES, workers=3), every_100_ms(), samples())
    with (folder / "requests-0.jsonl").open("a") as file:
        file.write("not json\n")
    found = {f.kind: f.evidence for f in summarise(load_run(folder)).findings}
    assert found["spoilt_lines"].startswith("1 lines")
    assert found["workers_missing"] == "records of 1 of the 3 worker processes are here"


def of_workers(tmp_path: Path, users: dict[str, list[int]], planned: int = 10) -> tuple[Finding, ...]:
    """A run of so many planned users; each worker's users at 1 s, 2 s, … as long as it lived."""
    folder = write_run(tmp_path, meta_of(stages_of((planned,), 20.0), workers=len(users)), every_100_ms(), samples())
    write_samples(folder / "telemetry.jsonl", [dataclasses.replace(one, users=None) for one in samples()])
    for worker, there in users.items():
        lived = [TelemetrySample(t * SECOND, 0.1, users=number) for t, number in enumerate(there, 1)]
        write_samples(folder / f"telemetry-{worker}.jsonl", lived)
    return summarise(load_run(folder)).findings


def write_samples(path: Path, lines: list[TelemetrySample]) -> None:
    path.write_text("".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines))


def test_workers_that_end_when_their_users_do_are_not_missed(tmp_path: Path) -> None:
    """One of them leaves early because its users were done, one never had any."""
    assert of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 17 + [0], "2": [0] * 19}) == ()


def test_a_worker_that_dies_is_missed_with_its_users(tmp_path: Path) -> None:
    """The window is 4 s to 18 s. Worker 1 is last seen at 9 s, and is given the benefit of the next two seconds."""
    users, lost = of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 9})
    assert (users.kind, users.severity, users.users) == ("users_missing", "invalid", 10)
    assert users.evidence.startswith("8.07 of the 10 planned users were there"), "6, and 4 for half the time"
    assert (lost.kind, lost.severity) == ("workers_missing", "warn")
    assert lost.evidence.startswith("worker process 1 with 4 users was last heard of 9.00 s after the start")


@pytest.mark.parametrize(
    ("there", "severity"),
    [
        pytest.param(100, None, id="all of them"),
        pytest.param(99, None, id="all but one of a hundred"),
        pytest.param(95, "warn", id="nineteen of twenty"),
        pytest.param(89, "invalid", id="fewer than nine of ten"),
    ],
)
def test_fewer_users_than_planned_are_told(tmp_path: Path, there: int, severity: str | None) -> None:
    found = [f.severity for f in of_workers(tmp_path, {"0": [there] * 19}, 100) if f.kind == "users_missing"]
    assert found == ([severity] if severity else [])


def test_several_hosts_are_named_and_not_called_uncalibrated(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, every_100_ms(), hosts=2, client_error=())
    assert (found.kind, found.severity) == ("several_hosts", "note")


@pytest.mark.parametrize(
    ("calibration", "expected"),
    [
        pytest.param((), ("not_calibrated", "note", None, "run `enginebench calibrate` there once"), id="none"),
        pytest.param(
            ((5.0, 0.0001), (20.0, 0.0001)),
            ("past_calibration", "warn", 1, "up to 30 chunks/s and is calibrated up to 20"),
            id="too light",
        ),
        pytest.param(
            ((32.0, 0.006), (90.0, 0.0001)),
            ("client_error", "warn", 1, "TTFT is only known to ± 6.0 ms at p99, and its median was 53.0 ms"),
            id="at a load at which the client errs by more than 5 %",
        ),
        pytest.param(((32.0, 0.002), (90.0, 0.1)), None, id="good enough for such a TTFT"),
    ],
)
def test_what_the_calibration_says_of_a_run(
    tmp_path: Path, calibration: tuple[tuple[float, float], ...], expected: tuple[str, str, int | None, str] | None
) -> None:
    """Ten requests a second, three chunks each; TTFT is 50 to 56 ms."""
    found = findings(tmp_path, every_100_ms(), client_error=calibration)
    if expected is None:
        assert found == ()
        return
    kind, severity, users, words = expected
    assert [(f.kind, f.severity, f.users) for f in found] == [(kind, severity, users)]
    assert words in found[0].evidence + found[0].remedy


def test_several_processes_are_calibrated_together(tmp_path: Path) -> None:
    found = {f.kind: f.remedy for f in findings(tmp_path, every_100_ms(), workers=3, client_error=())}
    assert "`enginebench calibrate --processes 3`" in found["not_calibrated"]


def test_a_steady_queue_is_not_called_unsteady(tmp_path: Path) -> None:
    """Forty simulated windows; the trend tests may cry wolf once."""
    runs = [simulate(tmp_path / str(seed), Engine(noise=0.5), (4, 8), 15.0, seed=seed) for seed in range(20)]
    cries = [f for run in runs for f in summarise(load_run(run)).findings if f.kind == "never_steady"]
    assert len(cries) <= 1


@pytest.mark.parametrize(("users", "severity"), [(40, "invalid"), (20, "warn")])
def test_waits_as_long_as_the_test_are_found_out(tmp_path: Path, users: int, severity: str) -> None:
    """One request at a time, 0.4 s each: forty users wait for 16 s, and no request of theirs ends in time."""
    engine = Engine("slow", slots=1, prefill=0.2, tpot=0.02, tokens=11)
    found = summarise(load_run(simulate(tmp_path / "run", engine, (users,), 20.0))).findings
    assert (found[0].kind, found[0].severity) == ("censored", severity)


def test_people_are_told_once_what_happened_at_several_steps(tmp_path: Path) -> None:
    summary: RunSummary = summarise(load_run(simulate(tmp_path / "run", Engine(slots=1, tpot=0.03), (2, 4, 8), 10.0)))
    few = [remark for remark in remarks(summary.findings) if remark.kind == "too_few_samples"]
    assert few[0].where == "fake, 2, 4 and 8 users"
    assert few[0].evidence.endswith("(at 8 users)")
