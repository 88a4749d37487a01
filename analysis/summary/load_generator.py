"""Checks of the load generator: late, overloaded, not calibrated, or partly gone. `findings.py` has their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from analysis.data.load import RunData
from analysis.data.telemetry import PLANNER
from analysis.data.windows import windows_of
from records.formatting import counted, format_count, format_error, format_seconds, format_share, in_words, significant
from records.stage import SECOND
from records.telemetry import COUNTERS, GAUGES
from records.view import Evidence, Severity, StageView

# How late the load generator may be: the larger of some milliseconds and a share of the median TTFT it measures.
LATE = ((0.005, 0.05), (0.020, 0.25))  # (seconds, share) for a warning, and beyond that for an invalid run
ERROR = (0.001, 0.05)  # (seconds, share) likewise, of its calibrated error
FEW_SAMPLES = 100  # requests: with fewer, a p99 is one of them
MERGED = 0.01  # share of first tokens that were read late and with others: from here on it moves p99
CPU_BOUND = 0.9  # cores of a process that has one thread
CROWDED = 0.1  # share of the time in which it was ready to run and had no core
SILENT = 10 * SECOND  # without a sample of the server at the end of a window
USERS_RUNNING = (0.99, 0.90)  # share of the planned users: fewer is a warning, and then an invalid run

# Of a stage.


def users_missing(view: StageView) -> Evidence | None:
    running = view.value("users_running")
    warn, invalid = (share * view.load for share in USERS_RUNNING)
    if running is None or running >= warn:
        return None
    return Evidence(
        "invalid" if running < invalid else "warn",
        f"on average over the window {significant(running)} of the {format_count(view.load)} planned users were "
        "running",
    )


def client_late(view: StageView) -> Evidence | None:
    """Late requests distort the load and what users feel; late reads only with user-space stamps, which have no lag."""
    sent, read = view.value("send_lag", "p99"), view.value("client_lag", "p99")
    if severity := _lateness(sent, view):
        lag = f"requests were sent {format_seconds(sent)} late at p99"
        if view.metrics["send_lag"].n < FEW_SAMPLES:
            severity = "warn"  # its p99 is one request
    elif _lateness(read, view):
        severity = "warn"
        lag = f"answers were read {format_seconds(read)} late at p99 (the kernel's stamps are not late)"
    else:
        return None
    words = f"the load generator was late: {lag}; median TTFT was {format_seconds(_median_ttft(view))}"
    return Evidence(severity, words)


def client_error(view: StageView) -> Evidence | None:
    """Within its calibration, but too coarse for what it measures."""
    ttft, error = _median_ttft(view), view.value("client_error")
    if not ttft or error is None or error <= max(ERROR[0], ERROR[1] * ttft):
        return None
    return Evidence(
        "warn",
        f"at {format_count(view.value('chunk_rate'))} chunks/s the error of TTFT is {format_error(error)} at p99, and "
        f"its median was {format_seconds(ttft)}",
    )


def event_loop_late(view: StageView) -> Evidence | None:
    lag = view.gauges.get("loop_lag")
    if lag is None or _lateness(lag.peak, view) is None:
        return None
    return Evidence(
        "warn" if _lateness(lag.mean, view) else "note",
        f"the load generator's event loop was up to {format_seconds(lag.peak)} late",
    )


def read_together(view: StageView) -> Evidence | None:
    """A server may write several chunks at once, and then their stamp is right; it is not where the reader was late."""
    merged = view.count("merged_first")
    if event_loop_late(view) is None or merged < MERGED * max(1, view.ok):
        return None
    return Evidence(
        "warn",
        f"in {merged} of {view.ok} answers the first token was read together with later ones while the load generator "
        "was late: the kernel's one stamp for them is that of the last, so their TTFT may be too long",
    )


def client_cpu_bound(view: StageView) -> Evidence | None:
    cpu = view.gauges.get("client_cpu")
    if cpu is None or cpu.mean < CPU_BOUND:
        return None
    words = f"the load generator's busiest process used {significant(cpu.mean)} cores, and can use one"
    return Evidence("warn", words)


def crowded(view: StageView) -> bool:
    """Whether other programs had the cores that the load generator needed."""
    delay = view.gauges.get("run_delay")
    return delay is not None and delay.mean >= CROWDED


def waited_for_cpu(view: StageView) -> Evidence | None:
    delay = view.gauges.get("run_delay")
    if delay is None or not crowded(view):
        return None
    words = f"the load generator was ready to run and waited for a CPU {format_share(delay.mean)} of the time"
    if view.cpu_holder is not None:
        name, cores = view.cpu_holder
        words += f"; meanwhile `{name}` used {significant(cores)} cores, the most of all other processes"
    return Evidence("warn", words)


def _median_ttft(view: StageView) -> float | None:
    """Of the answered requests."""
    ttft = view.metrics.get("ttft")
    return ttft.answered["p50"] if ttft is not None and ttft.answered else view.value("ttft", "p50")


def _lateness(lag: float | None, view: StageView) -> Severity | None:
    warn, invalid = (max(seconds, share * (_median_ttft(view) or 0.0)) for seconds, share in LATE)
    if lag is None or lag <= warn:
        return None
    return "invalid" if lag > invalid else "warn"


# Of the run.


def imported(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """What the file of another tool does not have; these numbers are n/a and never guessed."""
    if (origin := run.meta.imported) is not None:
        lacks = in_words(origin.lacks)
        yield Evidence("note", f"the run was made by {origin.tool} and imported from {origin.file}; it has no {lacks}")


def unsent(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """The server is not judged by them, and the load was not what was planned."""
    details = run.requests.filter(pl.col("outcome") == "unsent")["detail"]
    if len(details):
        why = details.drop_nulls().mode().sort()
        said = f" ({why[0]})" if len(why) else ""
        requests = counted(len(details), "request")
        yield Evidence("invalid", f"{requests} could not be sent, for want of the load generator's own resources{said}")


def telemetry_stopped(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """What the server reported earlier in the run, and no longer in the last seconds of a window."""
    sources = {**GAUGES, **COUNTERS}
    for window in windows_of(run):
        last = {name: run.telemetry.last_sample(name, window.end) for name in sources}
        known = {name: instant for name, instant in last.items() if instant is not None}
        silent = {name: instant for name, instant in known.items() if window.end - instant > SILENT}
        if silent:
            seconds = format_seconds((window.end - max(silent.values())) / SECOND)
            titles = in_words([sources[name].title for name in silent])
            what = "no longer answered" if silent == known else f"no longer had {titles}"
            yield Evidence("warn", f"the server's /metrics {what} in the last {seconds} of the window", window.key)


def several_hosts(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.meta.hosts > 1:
        yield Evidence(
            "note",
            f"{run.meta.hosts} hosts made the load: each counts time from when the plan reached it, so their stages "
            "are milliseconds apart, and they were not calibrated together",
        )


def not_calibrated(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.meta.hosts == 1 and not run.meta.client_error and any(view.value("chunk_rate") for view in stages):
        processes = f" with --processes {run.meta.workers}" if run.meta.workers > 1 else ""
        yield Evidence(
            "note",
            f"the error of this load generator{processes} has not been measured on its machine, so TTFT has no ±",
        )


def past_calibration(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """More chunks than ever calibrated, or another program's work on its cores; then TTFT has no ±."""
    calibrated = max((chunks for chunks, _, _ in run.meta.client_error), default=None)
    for view in stages:
        rate, delay = view.value("chunk_rate"), view.gauges.get("run_delay")
        if calibrated is None or rate is None or view.value("client_error") is not None:
            continue
        if rate > calibrated:
            work = f"received up to {format_count(rate)} chunks/s and is calibrated up to {format_count(calibrated)}"
        else:
            waited = format_share(0.0 if delay is None else delay.mean)
            work = f"waited for a core {waited} of the time, more than in its calibration at such a load"
        yield Evidence("warn", f"the load generator {work}: its error is unknown", view.key)


def workers_missing(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    recorded = {str(worker) for worker in run.requests["worker"].unique()}
    seen = len(recorded | run.telemetry.load_workers)  # more workers than users: some have nothing to record
    if seen < run.meta.workers:
        yield Evidence("warn", f"the folder has records of {seen} of the {run.meta.workers} worker processes")


def process_lost(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    for name, trace in sorted(run.killed.items()):
        users = run.telemetry.killed[name].users
        process = "the load generator" if name == PLANNER else f"worker process {name}"
        yield Evidence(
            "warn",
            f"{process}{f' with {users} users' if users else ''} wrote its last record "
            f"{format_seconds(trace / SECOND)} after the start and did not shut down: it was killed, or its machine "
            "was lost. Its requests in flight count as cut off, and the window ends there",
        )


def malformed_lines(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.malformed_lines:
        count = format_count(run.malformed_lines)
        yield Evidence("warn", f"{count} lines of requests*.jsonl are not records and were left out")


def records_lost(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.telemetry.lost:
        count = format_count(run.telemetry.lost)
        yield Evidence("invalid", f"{count} requests could not be recorded: counts and tokens/s are too low")
