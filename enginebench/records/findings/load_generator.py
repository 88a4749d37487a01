"""Checks of the load generator in one stage: late, overloaded, or with an error too large for what it measures."""

from __future__ import annotations

from enginebench.records.formatting import (
    counted,
    format_count,
    format_error,
    format_seconds,
    format_share,
    significant,
)
from enginebench.records.view import Evidence, Severity, StageView

# How late the load generator may be: the larger of some milliseconds and a share of the median TTFT it measures.
LATE = ((0.005, 0.05), (0.020, 0.25))  # (seconds, share) for a warning, and beyond that for an invalid run
ERROR = (0.001, 0.05)  # (seconds, share) likewise, of its calibrated error
FEW_SAMPLES = 100  # requests: with fewer, a p99 is one of them
MERGED = 0.01  # share of first tokens that were read late and with others: from here on it moves p99
CPU_BOUND = 0.9  # cores of a process that has one thread
CROWDED = 0.1  # share of the time in which it was ready to run and had no core
USERS_RUNNING = (0.99, 0.90)  # share of the planned users: fewer is a warning, and then an invalid run


def process_lost(view: StageView) -> Evidence | None:
    """Of a run that goes on; afterwards the records of each process say more."""
    if not (lost := view.counts.get("processes_lost", 0)):
        return None
    arrivals = view.counts["arrivals_missing"]
    missing = f"; {counted(arrivals, 'arrival')} that it would have sent are missing" if arrivals else ""
    return Evidence("warn", f"{lost} worker process{'' if lost == 1 else 'es'} ended before the run{missing}")


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
        f"the load generator was up to {format_seconds(lag.peak)} late",
    )


def read_together(view: StageView) -> Evidence | None:
    """A server may write several chunks at once, and then their stamp is right; it is not where the reader was late."""
    merged = view.count("merged_first")
    if event_loop_late(view) is None or merged < MERGED * max(1, view.ok):
        return None
    return Evidence(
        "warn",
        f"the load generator read the first token of {merged} of {view.ok} answers together with later ones, so that "
        "their TTFT may be too long",
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
