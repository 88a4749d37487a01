"""Checks of the load generator in one stage: was it late, how exact are its times, was the load as planned?"""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.records.formatting import (
    counted,
    format_count,
    format_error,
    format_seconds,
    format_share,
    significant,
)
from enginebench.records.run import LostProcess, RunMeta
from enginebench.records.stage import SECOND
from enginebench.records.view import Evidence, Severity, StageView

# The allowed lateness is the larger of a duration and a share of the median TTFT.
LATE = ((0.005, 0.05), (0.020, 0.25))  # (seconds, share) for a warning, and for an invalid run
ERROR = (0.001, 0.05)  # calibrated error (seconds, share) for a warning
MIN_REQUESTS = 100  # with fewer, a p99 is a single request
READ_TOGETHER = 0.01  # share of first tokens read late and together with others that moves p99
CPU_BOUND = 0.9  # cores of a process that has one thread
CROWDED = 0.1  # share of the time in which the load generator was ready to run and had no core
USERS_RUNNING = (0.99, 0.90)  # share of the planned users, below which there is a warning, or the run is invalid
OWN_CORE = "give the load generator a core of its own (taskset, or fewer threads for the server) or another machine"


def late(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    """Report late requests, late reads and missing CPU time. The remedy depends on other programs on the cores."""
    for evidence in (*_late_requests(view), *_late_event_loop(view), *_busy(view)):
        yield evidence._replace(remedy=OWN_CORE) if crowded(view) else evidence


def _late_requests(view: StageView) -> Iterator[Evidence]:
    """Report late requests, which distort the load and users' latency. Late reads do not distort kernel stamps."""
    sent, read = view.value("send_lag", "p99"), view.value("client_lag", "p99")
    median = f"median TTFT was {format_seconds(_median_ttft(view))}"
    if severity := _lateness(sent, view):
        if view.metrics["send_lag"].n < MIN_REQUESTS:
            severity = "warn"
        yield Evidence(severity, f"requests were sent {format_seconds(sent)} late at p99; {median}")
    elif _lateness(read, view) and not _read_together(view):
        yield Evidence("note", f"answers were read {format_seconds(read)} late at p99, without effect on latencies")


def _late_event_loop(view: StageView) -> Iterator[Evidence]:
    """Report a late event loop. Chunks read together are not late if the server wrote them together."""
    lag = view.gauges.get("loop_lag")
    if lag is None or _lateness(lag.peak, view) is None:
        return
    severity: Severity = "warn" if _lateness(lag.mean, view) else "note"
    evidence = f"the load generator was up to {format_seconds(lag.peak)} late to send or read"
    if together := _read_together(view):
        severity, evidence = "warn", f"{evidence}: the TTFT of {together} of {view.ok} answers may be overstated"
    elif _lateness(view.value("client_lag", "p99"), view):
        return  # the only evidence is late reads, which have no effect
    yield Evidence(severity, evidence)


def _read_together(view: StageView) -> int:
    """Return how many first tokens were read late and with others; 0 if too few to move p99."""
    together = view.count("merged_first")
    return together if together >= READ_TOGETHER * max(1, view.ok) else 0


def _busy(view: StageView) -> Iterator[Evidence]:
    cpu, delay = view.gauges.get("client_cpu"), view.gauges.get("run_delay")
    if cpu is not None and cpu.mean >= CPU_BOUND:
        used = significant(cpu.mean)
        yield Evidence("warn", f"the load generator's busiest process used {used} cores, and can use one")
    if delay is not None and crowded(view):
        yield Evidence("warn", f"the load generator waited for a core {format_share(delay.mean)} of the time")


def crowded(view: StageView) -> bool:
    """Return whether other programs had the cores that the load generator needed."""
    delay = view.gauges.get("run_delay")
    return delay is not None and delay.mean >= CROWDED


def timing_error(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    """Report a calibrated error that is too large for the measured latencies."""
    ttft, error = _median_ttft(view), view.value("client_error")
    if ttft and error is not None and error > max(ERROR[0], ERROR[1] * ttft):
        yield Evidence(
            "warn",
            f"at {format_count(view.value('chunk_rate'))} chunks/s the error of TTFT is {format_error(error)} at p99, "
            f"and its median was {format_seconds(ttft)}",
        )


def load_missing(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    running = view.value("users_running")
    warn, invalid = (share * view.load for share in USERS_RUNNING)
    if running is not None and running < warn:
        yield Evidence(
            "invalid" if running < invalid else "warn",
            f"on average over the window {significant(running)} of the {format_count(view.load)} planned users were "
            "running",
            OWN_CORE if crowded(view) else "make the warm-up longer than users take to start",
        )


def process_lost(process: LostProcess) -> Evidence:
    after = format_seconds(process.t / SECOND)
    words = f"worker process {process.worker} ended {after} after the start, before the run did"
    return Evidence("warn", words + arrivals_missing(process.arrivals))


def arrivals_missing(count: int | None) -> str:
    return f"; {counted(count, 'arrival')} of its share were not sent" if count else ""


def _median_ttft(view: StageView) -> float | None:
    """Return the median of the answered requests, for any share of failures."""
    ttft = view.metrics.get("ttft")
    return ttft.answered["p50"] if ttft is not None and ttft.answered else view.value("ttft", "p50")


def _lateness(lag: float | None, view: StageView) -> Severity | None:
    warn, invalid = (max(seconds, share * (_median_ttft(view) or 0.0)) for seconds, share in LATE)
    if lag is None or lag <= warn:
        return None
    return "invalid" if lag > invalid else "warn"
