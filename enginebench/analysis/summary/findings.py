"""The findings of a run: findings of its stages, and findings that need the whole run or statistics.

`enginebench/records/findings/kinds.py` has their kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import polars as pl

from enginebench.analysis.data.run_data import RunData
from enginebench.analysis.data.windows import windows_of
from enginebench.analysis.summary.answers_under_load import answers_under_load, graded_under_load
from enginebench.analysis.summary.stability import changes
from enginebench.records.files import PLANNER, REQUEST_FILES, requests_file
from enginebench.records.findings.kinds import KIND_BY_NAME, Kind, evidence_of_view, findings_of
from enginebench.records.findings.load_generator import arrivals_missing, process_lost
from enginebench.records.formatting import counted, format_count, format_seconds, format_share, in_words, join_labels
from enginebench.records.metrics import CHUNK_RATE, CLIENT_ERROR
from enginebench.records.request import UNSENT
from enginebench.records.run import Imported
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import COUNTERS, GAUGES, SERVERS
from enginebench.records.view import Evidence, Finding, StageView, keys_of

SILENT = 10 * SECOND  # time without a sample of the server at the end of a window
SOURCES = {**GAUGES, **COUNTERS}


def imported(origin: Imported) -> Evidence:
    lacks = in_words(origin.lacks)
    return Evidence("note", f"the run was made by {origin.tool} and imported from {origin.file}; it has no {lacks}")


def _imported(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.meta.imported is not None:
        yield imported(run.meta.imported)


def _unsent(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Report requests that the load generator could not send: the server is not judged by them."""
    details = run.requests.filter(pl.col("outcome") == UNSENT)["detail"]
    if len(details):
        causes = details.drop_nulls().mode().sort()
        cause = f" ({causes[0]})" if len(causes) else ""
        yield Evidence(
            "invalid",
            f"{counted(len(details), 'request')} could not be sent, because the load generator's own resources were "
            f"exhausted{cause}",
            "raise the limits of its machine (ulimit -n for files, net.ipv4.ip_local_port_range for ports), or use "
            "more processes (--processes), more machines or fewer users",
        )


def _process_lost(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    arrivals = {process.worker: process.arrivals for process in run.meta.lost}
    for name, trace in sorted(run.killed.items()):
        users = run.telemetry.killed[name].users
        process = "the load generator" if name == PLANNER else f"worker process {name}"
        yield Evidence(
            "warn",
            f"{process}{f' with {users} users' if users else ''} wrote its last record "
            f"{format_seconds(trace / SECOND)} after the start and did not shut down: it was killed, or its machine "
            "was lost. Its requests in flight count as cut off, and the window ends there"
            f"{arrivals_missing(arrivals.get(name))}",
        )
    yield from (process_lost(process) for process in run.meta.lost if process.worker not in run.killed)


def _timing_error(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Report that no calibration covers the timing error, so TTFT has no ±."""
    if run.meta.hosts > 1:
        yield Evidence(
            "note",
            f"{run.meta.hosts} hosts made the load: each counts time from when the plan reached it, so their stages "
            "differ by milliseconds, and they were not calibrated together",
            "measure the error of each with `enginebench calibrate`; no duration mixes their clocks",
        )
    elif not run.meta.client_error and any(view.value(CHUNK_RATE) for view in stages):
        processes = f" with --processes {run.meta.workers}" if run.meta.workers > 1 else ""
        yield Evidence("note", f"the load generator's timing error{processes} was never measured on this machine")
    calibrated = max((chunks for chunks, _, _ in run.meta.client_error), default=None)
    for view in stages:
        rate, delay = view.value(CHUNK_RATE), view.gauges.get("run_delay")
        if calibrated is None or rate is None or view.value(CLIENT_ERROR) is not None:
            continue
        if rate > calibrated:
            work = f"received up to {format_count(rate)} chunks/s and is calibrated up to {format_count(calibrated)}"
        else:
            waited = format_share(0.0 if delay is None else delay.mean)
            work = f"waited for a core {waited} of the time, more than in its calibration at such a load"
        yield Evidence(
            "warn",
            f"the load generator {work}: its error is unknown",
            "calibrate it under such a load (enginebench calibrate --loads), give it more --processes, or keep "
            "the server off the load generator's cores",
            view.key,
        )


def _unfinished(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Report stages that are missing or cut short, except a search's last probe when its time was up."""
    measured = {view.label for view in stages}
    unreached = [key.label for key in keys_of(run.meta.plan).values() if key.label not in measured]
    search, limit = run.meta.search, run.meta.workload.get("search_seconds")
    ended = search is not None and search.state != "running"
    if ended and limit is not None and run.last >= float(limit) * SECOND:
        unreached = []
    cut = [view.label for view in stages if not view.complete]
    parts = [f"before it reached {join_labels(list(dict.fromkeys(unreached)))}"] if unreached else []
    parts += [f"during {join_labels(cut)}"] if cut else []
    if parts:
        remedy = "let it run to its end; in a study, raise the `limit` of this load"
        yield Evidence("warn", f"a run was stopped {' and '.join(parts)}", remedy)
    if stages and not any(view.ok or view.failed for view in stages):
        yield Evidence("invalid", "no request ended before the run did")


def _all_failed(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if not any(view.ok for view in stages) and any(view.failed for view in stages):
        yield Evidence("invalid", "no request succeeded")


def _unknown_text(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    unknown = run.requests.filter(pl.col("unknown_text").is_not_null())
    names = sorted({name for names in unknown["unknown_text"].unique() for name in names.split(", ")})
    if names:
        yield Evidence(
            "warn",
            f"{len(unknown)} of {counted(len(run.requests), 'request')} had text in fields that are not known here "
            f"({', '.join(names)}): it counts as content, not as the answer",
        )


def _telemetry_stopped(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Report quantities that the server stopped publishing before the end of a window."""
    for window in windows_of(run):
        last = {name: run.telemetry.last_sample(name, window.end) for name in SOURCES}
        observed = {name: instant for name, instant in last.items() if instant is not None}
        silent = {name: instant for name, instant in observed.items() if window.end - instant > SILENT}
        if silent:
            seconds = format_seconds((window.end - max(silent.values())) / SECOND)
            titles = in_words([SOURCES[name].title for name in silent])
            what = "no longer answered" if silent == observed else f"no longer had {titles}"
            words = f"the server's /metrics {what} in the last {seconds} of the window"
            yield Evidence("warn", words, stage=window.key)


def _series_missing(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Report quantities that a known server did not publish under the names of any of its versions."""
    for server in sorted({server for process in run.telemetry.processes.values() for server in process.servers}):
        words = []
        for name, source in SOURCES.items():
            names = [series.name for series in source.published if series.name.startswith(SERVERS[server][0])]
            if names and not len(run.telemetry.series(name)[0]):
                words.append(f"{source.title} ({' or '.join(names)})")
        if words:
            yield Evidence("note", f"the /metrics of {server} had no series for {in_words(words)}")


def _records_missing(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if run.malformed_lines:
        lines = counted(run.malformed_lines, "malformed line")
        yield Evidence("warn", f"{REQUEST_FILES} has {lines}, left out here")
    if run.telemetry.lost:
        lost = counted(run.telemetry.lost, "request")
        yield Evidence("invalid", f"{lost} could not be recorded: counts and tokens/s are too low")
    recorded = {str(worker) for worker in run.requests["worker"].unique()}
    present = len(recorded | run.telemetry.load_workers)  # more workers than users: some have nothing to record
    if present < run.meta.workers:
        yield Evidence(
            "invalid",
            f"the folder has records of {present} of the {run.meta.workers} worker processes",
            f"copy {requests_file('*')} of every worker into the run's folder",
        )


def _unsteady(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    for view in stages:
        series = []
        for change in changes(view):
            before, after = change.series.write(change.before), change.series.write(change.after)
            series.append(f"{change.series.title} went from {before} to {after}")
        if series:
            words = f"{in_words(series)} while it was measured: a longer test would give other numbers"
            yield Evidence("warn", words, stage=view.key)


RUN_CHECKS: tuple[tuple[str, Callable[[RunData, Sequence[StageView]], Iterable[Evidence]]], ...] = (
    ("timing_error", _timing_error),
    ("load_missing", _unsent),
    ("load_missing", _process_lost),
    ("unfinished", _unfinished),
    ("unsteady", _unsteady),
    ("failures", _all_failed),
    ("unknown_text", _unknown_text),
    ("answers_under_load", answers_under_load),
    ("graded_under_load", graded_under_load),
    ("telemetry_missing", _telemetry_stopped),
    ("telemetry_missing", _series_missing),
    ("records_missing", _records_missing),
    ("imported", _imported),
)
"""Checks of a whole run and the views of its stages, each with the kind of its findings."""


def findings_of_run(run: RunData, stages: Sequence[StageView]) -> tuple[Finding, ...]:
    """Return all findings of a run and its stages, the most severe first."""
    evidence: list[tuple[Kind, Evidence]] = []
    for view in stages:
        evidence += evidence_of_view(view, run.meta)
    for name, check in RUN_CHECKS:
        evidence += ((KIND_BY_NAME[name], part) for part in check(run, stages))
    return findings_of(evidence, run.meta.label)
