"""What speaks against the load generator: lateness, lost processes, missing users, calibration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import TelemetrySample
from enginebench.records.view import Finding, StageKey
from tests.support.analysis.found import MS, STAGES, every_100_ms, findings, now_and_then, samples
from tests.support.analysis.synthetic import (
    NOTHING_CAME,
    in_order,
    meta_of,
    sent_line,
    stages_of,
    write_run,
    write_samples,
)


@pytest.mark.parametrize(
    ("telemetry", "kind", "evidence"),
    [
        pytest.param(samples(cpu=0.97), "load_generator_late", "used 0.970 cores", id="a busy load generator"),
        pytest.param(samples(lag=0.03), "load_generator_late", "up to 30.0 ms late", id="a late event loop"),
        pytest.param(samples(tokens=60.0), "token_counts", "counter grew by 780", id="somebody else was served"),
    ],
)
def test_what_telemetry_tells(tmp_path: Path, telemetry: list[TelemetrySample], kind: str, evidence: str) -> None:
    (found,) = findings(tmp_path, every_100_ms(), samples=telemetry)
    assert (found.kind, found.severity) == (kind, "warn")
    assert evidence in found.evidence


def test_first_tokens_read_with_others_are_told_where_the_reader_was_late(tmp_path: Path) -> None:
    together = [
        msgspec.structs.replace(
            one, merged_first=at % 50 == 0, stamps="kernel", read_first=(one.t_first or 0) + 30 * MS
        )
        for at, one in enumerate(every_100_ms())
    ]
    (late,) = findings(tmp_path, together, samples=samples(lag=0.03))
    assert (late.kind, late.severity) == ("load_generator_late", "warn")
    assert late.evidence == (
        "the load generator was up to 30.0 ms late to send or read: the TTFT of 3 of 140 answers may be overstated"
    )


def test_chunks_that_a_server_writes_at_once_are_no_fault_of_the_reader(tmp_path: Path) -> None:
    together = [msgspec.structs.replace(one, merged_first=True) for one in every_100_ms()]
    assert findings(tmp_path, together, samples=samples(lag=0.0)) == ()


def test_malformed_lines_and_missing_workers(tmp_path: Path) -> None:
    folder = write_run(tmp_path, meta_of(STAGES, workers=3), every_100_ms(), samples())
    with (folder / "requests-0.jsonl").open("a") as file:
        file.write("not json\n")
    (found,) = [f for f in summarise(load_run(folder)).findings if f.kind == "records_missing"]
    assert (found.severity, found.evidence) == (
        "invalid",
        "requests*.jsonl has 1 malformed line, left out here; the folder has records of 1 of the 3 worker processes",
    )
    assert found.remedy.startswith("copy requests-*.jsonl of every worker"), "of the worst of both"


def of_workers(tmp_path: Path, users: dict[str, list[int]], planned: int = 10) -> tuple[Finding, ...]:
    """A run of so many planned users; each worker's users at 1 s, 2 s, … as long as it lived. That its requests, one
    every 100 ms, march in step is left out."""
    folder = write_run(tmp_path, meta_of(stages_of((planned,), 20.0), workers=len(users)), every_100_ms(), samples())
    write_samples(folder / "telemetry.jsonl", [msgspec.structs.replace(one, users=None) for one in samples()])
    for worker, there in users.items():
        lived = [TelemetrySample(t * SECOND, 0.1, users=number) for t, number in enumerate(there, 1)]
        ended = len(there) > 15
        write_samples(folder / f"telemetry-{worker}.jsonl", in_order(lived) if ended else lived)
    return tuple(finding for finding in summarise(load_run(folder)).findings if finding.kind != "lock_step")


def test_workers_that_end_when_their_users_do_are_not_missed(tmp_path: Path) -> None:
    """One of them leaves early because its users were done, one never had any."""
    assert of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 17 + [0], "2": [0] * 19}) == ()


def test_a_worker_that_dies_is_missed_with_its_users(tmp_path: Path) -> None:
    """The window of 4 s to 18 s ends with the last trace of worker 1, at 9 s."""
    found = {f.kind: f for f in of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 9})}
    assert set(found) == {"load_missing", "unfinished"}
    assert found["load_missing"].evidence.startswith("worker process 1 with 4 users wrote its last record 9.00 s after")
    assert "a run was stopped during 10 users" in found["unfinished"].evidence


def test_users_that_are_missing_after_a_worker_died_are_told(tmp_path: Path) -> None:
    """Worker 1 is last seen at 2 s, and counts for two seconds more; the window begins at 4 s."""
    found = [f for f in of_workers(tmp_path, {"0": [6] * 19, "1": [4] * 2}) if f.kind == "load_missing"]
    assert [(f.severity, f.stage) for f in found] == [("invalid", StageKey(0, "10 users")), ("warn", None)]
    assert found[0].evidence.startswith("on average over the window 6.07 of the 10 planned users")


@pytest.mark.parametrize(("there", "severity"), [(100, None), (99, None), (95, "warn"), (89, "invalid")])
def test_fewer_users_than_planned_are_told(tmp_path: Path, there: int, severity: str | None) -> None:
    """99 % of them are enough; below 90 % the run is invalid."""
    found = [f.severity for f in of_workers(tmp_path, {"0": [there] * 19}, 100) if f.kind == "load_missing"]
    assert found == ([severity] if severity else [])


LIGHT = ((5.0, 0.1, 0.0001), (20.0, 0.1, 0.0001))  # chunks a second, run delay, error


@pytest.mark.parametrize(
    ("changes", "severity", "stage", "words"),
    [
        ({"client_error": (), "hosts": 2}, "note", None, "2 hosts made the load"),
        ({"client_error": ()}, "note", None, "run `enginebench calibrate` once"),
        ({"client_error": (), "workers": 3}, "note", None, "timing error with --processes 3 was never measured"),
        ({"client_error": LIGHT}, "warn", "1 user", "up to 30 chunks/s and is calibrated up to 20"),
        (
            {"client_error": ((32.0, 0.1, 0.006),)},
            "warn",
            "1 user",
            "the error of TTFT is ± 6.0 ms at p99, and its median was 53.0 ms",
        ),
        ({"client_error": ((32.0, 0.1, 0.002), (90.0, 0.1, 0.1))}, None, None, ""),  # good enough for such a TTFT
    ],
)
def test_what_the_calibration_says_of_a_run(
    tmp_path: Path, changes: dict[str, Any], severity: str | None, stage: str | None, words: str
) -> None:
    """Ten requests a second, three chunks each; TTFT is 50 to 56 ms."""
    found = [f for f in findings(tmp_path, every_100_ms(), **changes) if f.kind == "timing_error"]
    assert [(f.severity, f.stage and f.stage.label) for f in found] == ([(severity, stage)] if severity else [])
    assert all(words in f.evidence + f.remedy for f in found)


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
    busy = [msgspec.structs.replace(sample, run_delay=delay) for sample in samples()]
    folder = write_run(tmp_path, meta_of(STAGES, client_error=calibration), every_100_ms(), busy)
    summary = summarise(load_run(folder))
    assert summary.stages[0].value("client_error") == error
    said = [f.evidence for f in summary.findings if f.kind == "timing_error"]
    assert bool(said) == (error is None)
    assert not said or "waited for a core 40 % of the time" in said[0]


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
    assert [f.kind for f in summarise(run).findings if f.kind == "load_missing"] == ["load_missing"]


@pytest.mark.parametrize(
    ("waited", "lag", "kinds", "evidence", "remedy"),
    [
        (
            0.99, 0.03, {"load_generator_late", "timing_error"},
            "; the load generator was up to 30.0 ms late to send or read; the load generator waited for a core 99 % of "
            "the time",
            "a core of its own",
        ),
        (0.02, 0.0, {"load_generator_late"}, "", "more processes (--processes)"),
    ],
)  # fmt: skip
def test_what_helps_a_late_load_generator_depends_on_whether_it_waited_for_a_core(
    tmp_path: Path, waited: float, lag: float, kinds: set[str], evidence: str, remedy: str
) -> None:
    late = [msgspec.structs.replace(one, t_sched=one.t_sched - 40 * MS) for one in every_100_ms()]
    crowded = [msgspec.structs.replace(sample, run_delay=waited) for sample in samples(lag=lag)]
    found = {f.kind: f for f in findings(tmp_path, late, samples=crowded)}
    assert kinds <= set(found)
    finding = found["load_generator_late"]
    sent = "requests were sent 40.0 ms late at p99; median TTFT was 53.0 ms"
    assert (finding.severity, finding.evidence) == ("invalid", sent + evidence)
    assert remedy in finding.remedy


def test_requests_that_could_not_be_sent_make_the_run_invalid_and_are_no_failures(tmp_path: Path) -> None:
    why = "no connection to h:1: Too many open files"
    unsent = NOTHING_CAME | {"outcome": "unsent", "t_send": None, "detail": why}
    folder = write_run(tmp_path, meta_of(STAGES), every_100_ms(now_and_then(10, **unsent)), samples())
    summary = summarise(load_run(folder))
    (found,) = (f for f in summary.findings if f.severity == "invalid")
    assert (found.kind, found.severity, found.stage) == ("load_missing", "invalid", None)
    assert found.evidence.startswith("20 requests could not be sent")
    assert why in found.evidence
    assert "failures" not in {f.kind for f in summary.findings}
    (stage,) = summary.stages
    assert (stage.outcomes["unsent"], stage.failed, stage.metrics["ttft"].n) == (14, 0, 126)
    assert stage.value("failure_share") == 0


POWER = {'enginebench_gpu_power_watts{gpu="0"}': 300.0}
VLLM = {"vllm:num_requests_running": 1.0, "vllm:num_requests_waiting": 0.0, "vllm:generation_tokens_total": 5.0}
TGI = {"tgi_queue_size": 0.0, "tgi_batch_current_size": 1.0}
GONE, NO_POWER = "no longer answered in the last 12.0 s of the window", "no longer had GPU power in the last 13.0 s"
NO_TOKENS = "the /metrics of TGI had no series for tokens generated (tgi_request_generated_tokens_sum)"
NO_CACHE = (
    "the /metrics of vLLM had no series for KV cache in use (vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc)"
)
Page = Callable[[int, dict[str, float]], dict[str, float]]


@pytest.mark.parametrize(
    ("page", "severity", "words"),
    [
        pytest.param(lambda t, page: page if t <= 9 else {}, None, "", id="a scrape or two that failed"),
        pytest.param(lambda t, page: page if t <= 6 else {}, "warn", GONE, id="the server's page is gone"),
        pytest.param(
            lambda t, page: page | (POWER if t < 6 else {}), "warn", NO_POWER, id="a GPU is gone from the page"
        ),
        pytest.param(
            lambda t, page: {"enginebench_requests_running": 1.0}, None, "", id="ours, which leaves out what is unknown"
        ),
        pytest.param(lambda t, page: VLLM, "note", NO_CACHE, id="a name that is new"),
        pytest.param(lambda t, page: TGI, "note", NO_TOKENS, id="no cache is expected of TGI"),
    ],
)
def test_telemetry_that_is_missing_is_told(tmp_path: Path, page: Page, severity: str | None, words: str) -> None:
    told = [msgspec.structs.replace(one, server=page(one.t // SECOND, dict(one.server))) for one in samples()]
    found = [f for f in findings(tmp_path, every_100_ms(), samples=told) if f.kind == "telemetry_missing"]
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all(words in f.evidence for f in found)
