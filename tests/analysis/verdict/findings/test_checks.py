"""Each finding has a run that causes it, and a good run has none."""

from __future__ import annotations

import dataclasses
import heapq
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.report.remarks import remarks
from analysis.run.load import load_run
from analysis.run.windows import StageKey
from analysis.verdict.contenders import headline_ttft
from analysis.verdict.finding import Finding
from analysis.verdict.summary import RunSummary, summarise
from records.load import Rate
from records.request import RequestRecord
from records.stage import SECOND
from records.telemetry import TelemetrySample
from tests.support.analysis.synthetic import (
    FAILED,
    NOTHING_CAME,
    Engine,
    in_order,
    meta_of,
    record,
    sent_line,
    simulate,
    stages_of,
    write_run,
    write_samples,
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


def prompts_of(tokens: int, every: int) -> Change:
    """All are planned to have 40 tokens; every so many has `tokens`."""
    return lambda k, one: dataclasses.replace(one, planned_prompt_tokens=40, prompt_tokens=40 if k % every else tokens)


def now_and_then(every: int, **changes: Any) -> Change:
    return lambda k, one: dataclasses.replace(one, **changes) if k % every == 0 else one


def late(lag: int, every: int = 50) -> Change:
    return lambda k, one: dataclasses.replace(one, t_sched=one.t_sched - lag * MS) if k % every == 0 else one


def reconnecting(k: int, one: RequestRecord) -> RequestRecord:
    """Connecting took 3 ms, which is neither send lag nor TTFT."""
    later = one.t_sched + 3 * MS
    return dataclasses.replace(one, t_connect=one.t_sched, t_send=later) if k % 20 == 0 else one


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
    return in_order(
        [
            TelemetrySample(t=t * SECOND, client_cpu=cpu, loop_lag=lag, server={counter: tokens * t}, users=users)
            for t in range(1, 20)
        ]
    )


def findings(tmp_path: Path, records: list[RequestRecord], **changes: Any) -> tuple[Finding, ...]:
    telemetry = changes.pop("samples", samples())
    run = write_run(tmp_path, meta_of(changes.pop("stages", STAGES), **changes), records, telemetry)
    return summarise(load_run(run)).findings


def test_a_good_run_has_none(tmp_path: Path) -> None:
    assert findings(tmp_path, every_100_ms()) == ()


@pytest.mark.parametrize(
    ("change", "kind", "severity", "evidence"),
    [
        pytest.param(late(30), "client_late", "invalid", "were sent 30.0 ms late at p99", id="sent 30 ms late"),
        pytest.param(late(8), "client_late", "warn", "were sent 8.00 ms late at p99", id="requests sent 8 ms late"),
        pytest.param(read_late(40), "client_late", "warn", "read 40.0 ms late", id="the kernel knew, we did not"),
        pytest.param(
            now_and_then(10, **FAILED),
            "failures",
            "warn",
            "10 % of the attempts failed, 1.00 per second",
            id="failures",
        ),
        pytest.param(
            now_and_then(10, **NOTHING_CAME, outcome="cut_off"),
            "censored",
            "warn",
            "10 % of the requests",
            id="cut off",
        ),
        pytest.param(reconnecting, "reconnected", "warn", "7 of 140 requests had to open a con", id="reconnected"),
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
            "the tokens of 70 answers are unknown",
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
    assert [(f.severity, f.stage, f.label) for f in found] == [(severity, StageKey(0, "1 user"), "fake")]
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
    assert f"{count} requests succeeded" in found[0].evidence


def test_few_requests_do_not_void_a_run(tmp_path: Path) -> None:
    """The p99 of 50 requests is one of them: late once is a warning."""
    records = [record(k, 4 * SECOND + k * SECOND // 4) for k in range(50)]
    records[7] = dataclasses.replace(records[7], t_sched=records[7].t_sched - 500 * MS)
    assert {f.severity for f in findings(tmp_path, records) if f.kind == "client_late"} == {"warn"}


def test_nothing_that_ended_well_voids_a_run(tmp_path: Path) -> None:
    found = findings(tmp_path, every_100_ms(changed(**FAILED)))
    assert found[0].kind == "failures"
    assert found[0].severity == "invalid"


def test_malformed_lines_and_missing_workers(tmp_path: Path) -> None:
    folder = write_run(tmp_path, meta_of(STAGES, workers=3), every_100_ms(), samples())
    with (folder / "requests-0.jsonl").open("a") as file:
        file.write("not json\n")
    found = {f.kind: f.evidence for f in summarise(load_run(folder)).findings}
    assert found["malformed_lines"].startswith("1 lines")
    assert found["workers_missing"] == "the folder has records of 1 of the 3 worker processes"


def of_workers(tmp_path: Path, users: dict[str, list[int]], planned: int = 10) -> tuple[Finding, ...]:
    """A run of so many planned users; each worker's users at 1 s, 2 s, … as long as it lived."""
    folder = write_run(tmp_path, meta_of(stages_of((planned,), 20.0), workers=len(users)), every_100_ms(), samples())
    write_samples(folder / "telemetry.jsonl", [dataclasses.replace(one, users=None) for one in samples()])
    for worker, there in users.items():
        lived = [TelemetrySample(t * SECOND, 0.1, users=number) for t, number in enumerate(there, 1)]
        ended = len(there) > 15
        write_samples(folder / f"telemetry-{worker}.jsonl", in_order(lived) if ended else lived)
    return summarise(load_run(folder)).findings


def test_workers_that_end_when_their_users_do_are_not_missed(tmp_path: Path) -> None:
    """One of them leaves early because its users were done, one never had any."""
    assert of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 17 + [0], "2": [0] * 19}) == ()


def test_a_worker_that_dies_is_missed_with_its_users(tmp_path: Path) -> None:
    """The window of 4 s to 18 s ends with the last trace of worker 1, at 9 s."""
    found = {f.kind: f for f in of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 9})}
    assert set(found) == {"process_lost", "stopped_early", "too_few_samples"}
    assert found["process_lost"].evidence.startswith("worker process 1 with 4 users left its last trace 9.00 s after")
    assert "the stage at 10 users was cut short" in found["stopped_early"].evidence


def test_users_that_are_missing_after_a_worker_died_are_told(tmp_path: Path) -> None:
    """Worker 1 is last seen at 2 s, and counts for two seconds more; the window begins at 4 s."""
    found = [f for f in of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 2}) if f.kind == "users_missing"]
    assert [(f.severity, f.stage) for f in found] == [("invalid", StageKey(0, "10 users"))]
    assert found[0].evidence.startswith("on average over the window 6.07 of the 10 planned users")


def test_one_process_without_its_last_sample_is_told(tmp_path: Path) -> None:
    killed = [dataclasses.replace(sample, last=False) for sample in samples()]
    assert "process_lost" in {f.kind for f in findings(tmp_path, every_100_ms(), samples=killed)}


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
            ((5.0, 0.1, 0.0001), (20.0, 0.1, 0.0001)),
            ("past_calibration", "warn", "1 user", "up to 30 chunks/s and is calibrated up to 20"),
            id="too light",
        ),
        pytest.param(
            ((32.0, 0.1, 0.006),),
            ("client_error", "warn", "1 user", "the error of TTFT is ± 6.0 ms at p99, and its median was 53.0 ms"),
            id="at a load at which the client errs by more than 5 %",
        ),
        pytest.param(((32.0, 0.1, 0.002), (90.0, 0.1, 0.1)), None, id="good enough for such a TTFT"),
    ],
)
def test_what_the_calibration_says_of_a_run(
    tmp_path: Path,
    calibration: tuple[tuple[float, float, float], ...],
    expected: tuple[str, str, str | None, str] | None,
) -> None:
    """Ten requests a second, three chunks each; TTFT is 50 to 56 ms."""
    found = findings(tmp_path, every_100_ms(), client_error=calibration)
    if expected is None:
        assert found == ()
        return
    kind, severity, stage, words = expected
    assert [(f.kind, f.severity, f.stage and f.stage.label) for f in found] == [(kind, severity, stage)]
    assert words in found[0].evidence + found[0].remedy


@pytest.mark.parametrize(
    ("delay", "error"),
    [
        pytest.param(0.0, 0.0001, id="a quiet machine"),
        pytest.param(0.1, 0.0004, id="as busy as in the calibration under load"),
        pytest.param(0.4, None, id="busier than any calibration"),
    ],
)
def test_the_error_is_withheld_where_the_machine_was_busier_than_calibrated(
    tmp_path: Path, delay: float, error: float | None
) -> None:
    calibration = ((100.0, 0.01, 0.0001), (100.0, 0.2, 0.0004))
    busy = [dataclasses.replace(sample, run_delay=delay) for sample in samples()]
    folder = write_run(tmp_path, meta_of(STAGES, client_error=calibration), every_100_ms(), busy)
    summary = summarise(load_run(folder))
    assert summary.stages[0].client_error == error
    said = [f.evidence for f in summary.findings if f.kind == "past_calibration"]
    assert bool(said) == (error is None)
    assert not said or "waited for a core 40 % of the time" in said[0]


def test_several_processes_are_calibrated_together(tmp_path: Path) -> None:
    found = {f.kind: f.remedy for f in findings(tmp_path, every_100_ms(), workers=3, client_error=())}
    assert "`enginebench calibrate --processes 3`" in found["not_calibrated"]


def test_a_steady_queue_is_not_called_unsteady(tmp_path: Path) -> None:
    """Forty simulated windows; the trend tests may cry wolf once."""
    runs = [simulate(tmp_path / str(seed), Engine(noise=0.5), (4, 8), 15.0, seed=seed) for seed in range(20)]
    cries = [f for run in runs for f in summarise(load_run(run)).findings if f.kind == "never_steady"]
    assert len(cries) <= 1


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
        pytest.param(8.0, "", False, id="four places for half a second each take 8 requests a second"),
        pytest.param(16.0, "", True, id="but not 16"),
        pytest.param(16.0, "2..30", False, id="a rate that rises is meant to end with more in flight"),
    ],
)
def test_a_backlog_that_grows_in_an_open_loop_is_told(tmp_path: Path, rate: float, profile: str, told: bool) -> None:
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
    found = [finding for finding in summary.findings if finding.kind == "backlog_grew"]
    assert len(found) == told
    if told:
        assert "16.0 requests arrived a second and 8.00 ended: the backlog grew by 112" in found[0].evidence
    assert headline_ttft([summary]) == "ttft_user"


@pytest.mark.parametrize(("cut", "severity"), [(140, "invalid"), (50, "warn"), (1, "note")])
def test_what_the_end_of_the_run_cut_off_is_told(tmp_path: Path, cut: int, severity: str) -> None:
    records = every_100_ms(lambda k, one: dataclasses.replace(one, **CUT_OFF) if 180 - cut <= k < 180 else one)
    found = [f for f in findings(tmp_path, records) if f.kind == "censored"]
    assert found[0].severity == severity


CUT_OFF: dict[str, Any] = NOTHING_CAME | {"outcome": "cut_off"}


def test_convoys_of_users_are_told(tmp_path: Path) -> None:
    """Ten users who all send at once, every second; and ten who are spread over it."""
    convoy = [record(k, (k // 10) * SECOND + k % 10, user=k % 10) for k in range(200)]
    spread = [record(k, k * SECOND // 10, user=k % 10) for k in range(200)]
    stages, there = stages_of((10,), 20.0), samples(users=10)
    found = findings(tmp_path / "convoy", convoy, stages=stages, samples=there)
    assert "lock_step" in {f.kind for f in found}
    assert "lock_step" not in {f.kind for f in findings(tmp_path / "spread", spread, stages=stages, samples=there)}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        pytest.param({"unserved_users": 60}, "unserved_users", id="the warm-up hit its bound"),
        pytest.param({"unanswered": 3}, "unanswered", id="the hold hit its bound"),
    ],
)
def test_a_stage_that_hit_its_bounds_is_told(tmp_path: Path, changes: dict[str, Any], kind: str) -> None:
    stages = (dataclasses.replace(STAGES[0], **changes),)
    (found,) = findings(tmp_path, every_100_ms(), stages=stages)
    assert (found.kind, found.severity) == (kind, "warn")
    assert found.evidence.startswith(str(next(iter(changes.values()))))


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
    tpot = summary.stages[0].latencies["tpot"].p50.value
    assert tpot is not None
    assert ("never_steady" in kinds) == told
    if told:
        assert "TPOT went from" in kinds["never_steady"]
    else:
        assert tpot == pytest.approx(0.02, rel=0.02)


def test_an_initial_transient_is_told(tmp_path: Path) -> None:
    """The first fifth of the window is twice as slow."""
    summary = of_lengths(tmp_path, lambda t: 0.04 if t < 140 else 0.02)
    assert "never_steady" in {f.kind for f in summary.findings}


@pytest.mark.parametrize(
    ("change", "kind", "severity", "words"),
    [
        pytest.param(
            changed(output_tokens=64, first_chunk_tokens=64, chunks=1, icl=(), planned_output_tokens=64),
            "not_streamed",
            "warn",
            "all tokens of 140 of 140 streamed answers came at once",
            id="a buffering proxy that sends one chunk",
        ),
        pytest.param(
            lambda _, one: dataclasses.replace(
                one, output_tokens=64, chunks=64, icl=(1000,) * 63, t_last=(one.t_first or 0) + 63_000
            ),
            "not_streamed",
            "warn",
            "streamed answers came at once",
            id="a buffering proxy that sends all chunks together",
        ),
        pytest.param(
            now_and_then(10, **NOTHING_CAME | {"output_tokens": 0}),
            "empty_answers",
            "warn",
            "14 of 140 answers were complete and had no content",
            id="answers without content",
        ),
        pytest.param(
            now_and_then(2, planned_output_tokens=16),
            "cut_short",
            "warn",
            "70 of 140 answers were shorter than planned: 3.00 tokens on average instead of 16.0",
            id="answers that end early",
        ),
        pytest.param(
            prompts_of(42, every=4), "prompts_missed", "warn", "25 % of the prompts missed", id="long prompts"
        ),
        pytest.param(
            prompts_of(42, every=35), "prompts_missed", "note", "2.9 % of the prompts missed", id="a few of them"
        ),
        pytest.param(
            changed(cached_tokens=30), "prompts_cached", "note", "75 % of the prompt tokens", id="a warm prefix cache"
        ),
    ],
)
def test_what_answers_tell(tmp_path: Path, change: Change, kind: str, severity: str, words: str) -> None:
    found = [f for f in findings(tmp_path, every_100_ms(change), samples=samples(tokens=0)) if f.kind == kind]
    assert [(f.severity, f.stage) for f in found] == [(severity, StageKey(0, "1 user"))]
    assert words in found[0].evidence


def test_a_prompt_may_miss_its_length_by_a_token(tmp_path: Path) -> None:
    found = findings(tmp_path, every_100_ms(prompts_of(41, every=1)))
    assert "prompts_missed" not in {f.kind for f in found}


def test_where_the_tokenizer_was_known_every_prompt_that_misses_is_a_warning(tmp_path: Path) -> None:
    workload = dict(meta_of(STAGES).workload) | {"prompt_length_measured": True}
    found = findings(tmp_path, every_100_ms(prompts_of(42, every=35)), workload=workload)
    assert {f.severity for f in found if f.kind == "prompts_missed"} == {"warn"}


def test_answers_that_may_end_early_are_no_fault(tmp_path: Path) -> None:
    workload = dict(meta_of(STAGES).workload) | {"ignore_eos": False}
    found = findings(tmp_path, every_100_ms(changed(planned_output_tokens=16)), workload=workload)
    assert {f.severity for f in found if f.kind == "cut_short"} == {"note"}


def test_hidden_reasoning_is_no_disagreement_and_no_time_per_token(tmp_path: Path) -> None:
    """Two tokens after the first in 40 ms, 60 more that were never shown; the server counts all 63."""
    hidden = changed(output_tokens=63, unseen_tokens=60, reasoning_tokens=60)
    folder = write_run(tmp_path, meta_of(STAGES, model="unheard-of"), every_100_ms(hidden), samples(tokens=630.0))
    summary = summarise(load_run(folder))
    assert summary.stages[0].latencies["tpot"].p50.value == pytest.approx(0.02)
    assert summary.stages[0].answers.reasoning_tokens == 60
    assert "token_count_disagrees" not in {f.kind for f in summary.findings}


@pytest.mark.parametrize("at", [6.5, 9.0, 17.9])
def test_every_request_that_was_sent_is_accounted_for_after_a_kill(tmp_path: Path, at: float) -> None:
    """The client is killed at some instant: what had ended is on record, what had not is cut off."""
    records = [one for one in every_100_ms() if (one.t_send or 0) < at * SECOND]
    lines = [(one.t_send or 0, sent_line(one)) for one in records]
    lines += [(one.t_end, one.to_line()) for one in records if one.t_end < at * SECOND]
    folder = write_run(tmp_path, meta_of(STAGES), [], [one for one in samples() if one.t < at * SECOND][:-1])
    (folder / "requests-0.jsonl").write_text("".join(line for _, line in sorted(lines)))
    run = load_run(folder)
    assert len(run.requests) == len(records)
    assert set(run.requests["outcome"]) <= {"ok", "cut_off"}
    assert [f.kind for f in summarise(run).findings if f.kind == "process_lost"] == ["process_lost"]


def test_people_are_told_once_what_happened_at_several_stages(tmp_path: Path) -> None:
    summary: RunSummary = summarise(load_run(simulate(tmp_path / "run", Engine(slots=1, tpot=0.03), (2, 4, 8), 10.0)))
    few = [remark for remark in remarks(summary.findings) if remark.kind == "too_few_samples"]
    assert few[0].where == "fake, 2, 4 and 8 users"
    repeats = [remark for remark in remarks([*summary.findings, *summary.findings]) if remark.kind == few[0].kind]
    assert repeats[0].where == "fake, 2, 4 and 8 users (2 runs)"
    assert few[0].evidence.endswith("(at 8 users)")
