"""Checks of the load generator over a whole run: not calibrated, or partly gone. `findings.py` has their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from enginebench.analysis.data.load import RunData
from enginebench.analysis.data.telemetry import PLANNER
from enginebench.analysis.data.windows import windows_of
from enginebench.records.formatting import counted, format_count, format_seconds, format_share, in_words
from enginebench.records.metrics import CLIENT_ERROR
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import COUNTERS, GAUGES, SERVERS
from enginebench.records.view import Evidence, StageView

SILENT = 10 * SECOND  # without a sample of the server at the end of a window


def imported(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """What the file of another tool does not have; these numbers are missing and never guessed."""
    if (origin := run.meta.imported) is not None:
        lacks = in_words(origin.lacks)
        yield Evidence("note", f"the run was made by {origin.tool} and imported from {origin.file}; it has no {lacks}")


def unsent(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """The server is not judged by them, and the load was not what was planned."""
    details = run.requests.filter(pl.col("outcome") == "unsent")["detail"]
    if len(details):
        why = details.drop_nulls().mode().sort()
        reason = f" ({why[0]})" if len(why) else ""
        requests = counted(len(details), "request")
        yield Evidence(
            "invalid", f"{requests} could not be sent, for want of the load generator's own resources{reason}"
        )


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


def series_missing(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Name what a known server did not publish under any of the names that its versions have for it."""
    sources = {**GAUGES, **COUNTERS}
    for server in sorted({server for process in run.telemetry.processes.values() for server in process.servers}):
        missing = {
            sources[name].title: [
                one.name for one in sources[name].published if one.name.startswith(SERVERS[server][0])
            ]
            for name in sources
            if not len(run.telemetry.series(name)[0])
        }
        words = [f"{title} ({' or '.join(names)})" for title, names in missing.items() if names]
        if words:
            yield Evidence("note", f"the /metrics of {server} had no series for {in_words(words)}")


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
            f"the load generator's own error{processes} is not known on this machine",
        )


def past_calibration(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """More chunks than ever calibrated, or another program's work on its cores; then TTFT has no ±."""
    calibrated = max((chunks for chunks, _, _ in run.meta.client_error), default=None)
    for view in stages:
        rate, delay = view.value("chunk_rate"), view.gauges.get("run_delay")
        if calibrated is None or rate is None or view.value(CLIENT_ERROR) is not None:
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
        yield Evidence("invalid", f"the folder has records of {seen} of the {run.meta.workers} worker processes")


def process_lost(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    missing = {process.worker: process.arrivals for process in run.meta.lost}
    for name, trace in sorted(run.killed.items()):
        users = run.telemetry.killed[name].users
        process = "the load generator" if name == PLANNER else f"worker process {name}"
        yield Evidence(
            "warn",
            f"{process}{f' with {users} users' if users else ''} wrote its last record "
            f"{format_seconds(trace / SECOND)} after the start and did not shut down: it was killed, or its machine "
            f"was lost. Its requests in flight count as cut off, and the window ends there{_unsent(missing.get(name))}",
        )
    for lost in run.meta.lost:
        if lost.worker not in run.killed:
            yield Evidence(
                "warn",
                f"worker process {lost.worker} ended {format_seconds(lost.t / SECOND)} after the start, before the run "
                f"did{_unsent(lost.arrivals)}",
            )


def _unsent(arrivals: int | None) -> str:
    return f"; {counted(arrivals, 'arrival')} of its share were sent by nobody" if arrivals else ""


def malformed_lines(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.malformed_lines:
        count = format_count(run.malformed_lines)
        yield Evidence("warn", f"{count} lines of requests*.jsonl are not records and were left out")


def records_lost(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.telemetry.lost:
        count = format_count(run.telemetry.lost)
        yield Evidence("invalid", f"{count} requests could not be recorded: counts and tokens/s are too low")
