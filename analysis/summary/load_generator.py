"""Problems of the load generator rather than the server: late, not calibrated, or partly gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from analysis.data.load import RunData
from analysis.data.telemetry import PLANNER
from analysis.summary.finding import FEW_SAMPLES
from records.formatting import format_count, format_error, format_seconds, format_share, significant
from records.stage import SECOND
from records.view import Finding, Severity, StageView

# How late the load generator may be: the larger of some milliseconds and a share of the median TTFT it measures.
LATE = ((0.005, 0.05), (0.020, 0.25))  # (seconds, share) for a warning, and beyond that for an invalid run
ERROR = (0.001, 0.05)  # (seconds, share) likewise, of its calibrated error
MERGED = 0.01  # share of first tokens that were read late and with others: from here on it moves p99
CPU_BOUND = 0.9  # cores of a process that has one thread
USERS_THERE = (0.99, 0.90)  # share of the planned users: fewer is a warning, and then an invalid run


def of_the_run(run: RunData, stages: tuple[StageView, ...]) -> Iterator[Finding]:
    """What concerns the load generator for the whole run."""
    yield from _missing_workers(run)
    yield from _lost_processes(run)
    if run.meta.hosts > 1:
        yield Finding(
            "several_hosts",
            "note",
            f"{run.meta.hosts} hosts made the load: each counts time from when the plan reached it, so their stages "
            "are milliseconds apart, and they were not calibrated together",
            "nothing to do: no duration mixes their clocks; `enginebench calibrate` measures the error of each of them",
        )
    elif not run.meta.client_error and any(stage.client.chunk_rate for stage in stages):
        many = f" --processes {run.meta.workers}" if run.meta.workers > 1 else ""
        yield Finding(
            "not_calibrated",
            "note",
            "the error of this load generator has not been measured on its machine, so TTFT has no ±",
            f"run `enginebench calibrate{many}` there once; later runs will show it",
        )
    for stage in stages:
        if run.meta.client_error and stage.client.chunk_rate and stage.client.error is None:
            yield _past_calibration(stage, run.meta.client_error)


def _past_calibration(stage: StageView, calibrated: Sequence[tuple[float, float, float]]) -> Finding:
    """More chunks than ever calibrated, or another program's work on its cores; then TTFT has no ±."""
    most = max(chunks for chunks, _, _ in calibrated)
    if (rate := stage.client.chunk_rate or 0.0) > most:
        said = f"received up to {format_count(rate)} chunks/s and is calibrated up to {format_count(most)}"
        remedy = "calibrate it at such a load (enginebench calibrate --loads), or give it more --processes"
    else:
        delay = stage.client.run_delay.mean if stage.client.run_delay else 0.0
        said = f"waited for a core {format_share(delay)} of the time, more than in its calibration at such a load"
        remedy = "run the engine on other cores or another machine, or calibrate with an engine's load on these cores"
    return Finding("past_calibration", "warn", f"the load generator {said}: its error is unknown", remedy, stage.key)


def _missing_workers(run: RunData) -> Iterator[Finding]:
    recorded = {str(worker) for worker in run.requests["worker"].unique()}
    seen = len(recorded | run.telemetry.load_workers)  # more workers than users: some have nothing to record
    if seen < run.meta.workers:
        yield Finding(
            "workers_missing",
            "warn",
            f"the folder has records of {seen} of the {run.meta.workers} worker processes",
            "copy the files of every worker into the run's folder (enginebench collect)",
        )


def _lost_processes(run: RunData) -> Iterator[Finding]:
    for name, trace in sorted(run.killed.items()):
        users = run.telemetry.killed[name].users
        who = "the load generator" if name == PLANNER else f"worker process {name}"
        yield Finding(
            "process_lost",
            "warn",
            f"{who}{f' with {users} users' if users else ''} wrote its last record {format_seconds(trace / SECOND)} "
            "after the start and did not shut down: it was killed, or its machine was lost. Its requests in flight "
            "count as cut off, and the window ends there",
            "find out what ended it (locust.log, out of memory), and run again",
        )


def _users_missing(stage: StageView) -> Finding | None:
    if stage.users_there is None:
        return None
    warn, invalid = (share * stage.load for share in USERS_THERE)
    if stage.users_there >= warn:
        return None
    return Finding(
        "users_missing",
        "invalid" if stage.users_there < invalid else "warn",
        f"on average over the window {significant(stage.users_there)} of the {format_count(stage.load)} planned users "
        "were running",
        "make the warm-up longer than users take to start; if a worker process was lost, run again",
    )


def _client_error(stage: StageView) -> Finding | None:
    """Within its calibration, but too coarse for what it measures."""
    ttft, error = _median_ttft(stage), stage.client.error
    if not ttft or error is None or error <= max(ERROR[0], ERROR[1] * ttft):
        return None
    return Finding(
        "client_error",
        "warn",
        f"at {format_count(stage.client.chunk_rate)} chunks/s the error of TTFT is {format_error(error)} at p99, and "
        f"its median was {format_seconds(ttft)}",
        "give the load generator more processes (--processes), then `enginebench calibrate` with as many",
    )


def _client_late(stage: StageView) -> Finding | None:
    """Late requests distort the load and what users feel; late reads only with user-space stamps, which have no lag."""
    sent, noticed = (stage.latencies[name] for name in ("send_lag", "client_lag"))
    severity: Severity | None = None
    if sent.p99.value is not None and (severity := _lateness(sent.p99.value, stage)):
        said = f"requests were sent {format_seconds(sent.p99.value)} late at p99"
        if sent.n < FEW_SAMPLES:
            severity = "warn"  # its p99 is one request
    elif noticed.p99.value is not None and _lateness(noticed.p99.value, stage):
        severity = "warn"
        said = f"answers were read {format_seconds(noticed.p99.value)} late at p99 (the kernel's stamps are not late)"
    if severity is None:
        return None
    return Finding(
        "client_late",
        severity,
        f"the load generator was late: {said}; median TTFT was {format_seconds(_median_ttft(stage))}",
        "give the load generator more processes (--processes) or a machine of its own",
    )


def _median_ttft(stage: StageView) -> float | None:
    """Of the answered requests."""
    ttft = stage.latencies["ttft"]
    return ttft.answered["p50"] if ttft.answered else ttft.p50.value


def _lateness(lag: float, stage: StageView) -> Severity | None:
    warn, invalid = (max(seconds, share * (_median_ttft(stage) or 0.0)) for seconds, share in LATE)
    return "invalid" if lag > invalid else "warn" if lag > warn else None


def _event_loop_late(stage: StageView) -> Finding | None:
    if stage.client.loop_lag is None or _lateness(stage.client.loop_lag.peak, stage) is None:
        return None
    return Finding(
        "event_loop_late",
        "warn" if _lateness(stage.client.loop_lag.mean, stage) else "note",
        f"the load generator's event loop was up to {format_seconds(stage.client.loop_lag.peak)} late",
        "stop other programs on that machine, or use a separate machine for the load generator",
    )


def _read_together(stage: StageView) -> Finding | None:
    """A server may write several chunks at once, and then their stamp is right; it is not where the reader was late."""
    if _event_loop_late(stage) is None or stage.merged_first < MERGED * max(1, stage.ok):
        return None
    return Finding(
        "read_together",
        "warn",
        f"in {stage.merged_first} of {stage.ok} answers the first token was read together with later ones while the "
        "load generator was late: the kernel's one stamp for them is that of the last, so their TTFT may be too long",
        "give the load generator more processes (--processes) or a machine of its own",
    )


def _client_cpu_bound(stage: StageView) -> Finding | None:
    if stage.client.cpu is None or stage.client.cpu.mean < CPU_BOUND:
        return None
    return Finding(
        "client_cpu_bound",
        "warn",
        f"the load generator's busiest process used {significant(stage.client.cpu.mean)} cores, and can use one",
        "give it more processes: --processes",
    )


CHECKS: tuple[Callable[[StageView], Finding | None], ...] = (
    _users_missing,
    _client_late,
    _client_error,
    _event_loop_late,
    _read_together,
    _client_cpu_bound,
)
