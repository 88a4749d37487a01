"""Checks of a stage's load: was it as planned, was it steady, and did the server sustain it?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from enginebench.records.formatting import counted, format_bytes, format_count, format_share, in_words, significant
from enginebench.records.run import RunMeta
from enginebench.records.view import Evidence, Missing, StageView

CUT_OFF_SHARE = 0.01  # p99 leaves out the same share
LITTLE_TOLERANCE = 0.10
LITTLE_WINDOWS = 5  # Little's law needs a window this many times longer than the mean request
MEMORY_GROWTH = (16 * 1024 * 1024, 0.05)  # (bytes, share) that caches may add
MEMORY_SECONDS = 600.0  # in shorter windows, caches still fill
MEMORY = {"engine_memory_bytes": "engine", "process_memory_bytes": "process"}
BACKLOG = (4.0, 0.05)  # (standard deviations, share of the requests): more arrivals than ends if a backlog grew
THROTTLED_SHARE = 0.01  # share of the window
LOCK_STEP = 2.0  # index of dispersion: three standard deviations above Poisson arrivals counted over two cycles


def unfinished(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    if users := view.count("unserved_users"):
        yield Evidence(
            "warn",
            f"{users:,} of {counted(round(view.load), 'user')} still waited for the first answer when measuring began",
            "make the warm-up longer, or ask for shorter answers",
        )
    if unanswered := view.count("unanswered"):
        yield Evidence(
            "warn",
            f"{format_count(unanswered)} of the window's requests had no answer when the stage reached its longest "
            "duration: they ended under the load of the next stage, or were cut off",
        )
    if view.cut_off:
        share = view.cut_off / view.requests
        yield Evidence(
            "warn" if share > CUT_OFF_SHARE else "note",
            f"{format_share(share)} of the requests were cut off before their answer was complete, so some "
            "percentiles are unknown",
        )


def unsteady(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    """Report a backlog and a violation of Little's law; series are tested when the run is over."""
    yield from _backlog(view)
    concurrency, by_law = view.value("concurrency"), view.value("littles_law")
    if not concurrency or by_law is None or not view.requests:
        return
    edges = by_law / view.requests  # share of the requests that the end of the window cuts
    if abs(by_law / concurrency - 1) > LITTLE_TOLERANCE + edges:
        yield Evidence(
            "warn",
            f"{significant(concurrency)} requests were in flight, but Little's law (arrival rate × mean time in "
            f"flight) gives {significant(by_law)}: the window was not steady, or records are missing",
            "make the stages longer, and see whether a worker was lost",
        )


def _backlog(view: StageView) -> Iterator[Evidence]:
    """Report unanswered requests that pile up, because an open loop does not wait for the server."""
    offered, achieved = view.value("offered_rate"), view.value("achieved_rate")
    concurrency = view.value("concurrency")
    if not view.is_open or view.varies or offered is None or achieved is None or concurrency is None:
        return
    ended = achieved + (view.value("failure_rate") or 0.0)
    behind = (offered - ended) * view.seconds
    # Requests in flight at each end of a stable window are about Poisson: the variance of their difference is 2 · mean.
    deviation = math.sqrt(2 * concurrency)
    if behind > max(BACKLOG[0] * deviation, BACKLOG[1] * view.requests):
        yield Evidence(
            "warn",
            f"{significant(offered)} requests arrived a second and {significant(ended)} ended: the backlog grew by "
            f"{format_count(behind)}, so latencies depend on how long the stage lasted",
            "test lower rates: this one exceeds the server's capacity",
        )


def lock_step(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    """Report users who send together, or whose latencies repeat. Causes are equal lengths, or a full queue in which the
    users keep their order."""
    dispersion = view.value("dispersion")
    varied = not str(run.workload.get("output_tokens") or 1).isdigit()
    remedy = "`enginebench run rate` sends requests independently of each other" if varied else ""
    if dispersion is not None and dispersion >= LOCK_STEP:
        words = "the users sent their requests at the same moments, so queues are longer than with independent users"
        yield Evidence("warn", words, remedy)
        return
    # A single user, or evenly spaced arrivals, may repeat.
    if view.missing_for(Missing.CYCLIC) and not view.is_open and view.load > 1:
        words = "the users sent their requests in a fixed order, so latencies repeat"
        yield Evidence("note" if varied else "warn", words, remedy)


def memory_grew(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    if view.seconds < MEMORY_SECONDS:
        return
    grown = []
    for name, title in MEMORY.items():
        level = view.gauges.get(name)
        if level is None or level.first is None or level.last is None:
            continue
        growth = level.last - level.first
        if growth > max(MEMORY_GROWTH[0], MEMORY_GROWTH[1] * level.first):
            hourly = growth / (0.9 * view.seconds) * 3600  # 0.9: between the middles of the first and last tenths
            span = f"from {format_bytes(level.first)} to {format_bytes(level.last)}"
            grown.append(f"{title} {span} ({format_bytes(hourly)} an hour)")
    if grown:
        yield Evidence("warn", f"the server's memory grew within the window: {in_words(grown)}")


def gpu_throttled(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    """Report throttling, except by the power limit: a busy GPU may always be at it."""
    throttled = view.gauges.get("gpu_throttled")
    if throttled is not None and throttled.mean > THROTTLED_SHARE:
        share = format_share(throttled.mean)
        yield Evidence("warn", f"a GPU was throttled, by heat or by its power supply, in {share} of the window")
