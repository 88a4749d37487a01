"""Checks of a stage's load: was it what it was meant to be, and was the window steady under it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.data.load import RunData
from analysis.data.windows import keys_of
from analysis.stats.steadiness import LEAST, LOCK_STEP, steadiness
from records.formatting import (
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    in_words,
    join_labels,
    significant,
)
from records.stage import SECOND
from records.view import IN_CYCLES, Evidence, StageView

LITTLE_TOLERANCE = 0.10
GROWTH = (16 * 1024 * 1024, 0.05)  # bytes, and share, by which memory may grow
GROWTH_SECONDS = 600.0  # of a window in which growth is looked for
MEMORY = {"engine_memory_bytes": "engine", "process_memory_bytes": "process"}
BEHIND = (4.0, 0.05)  # standard deviations, and share of the requests: more arrivals than ends if a backlog grew
THROTTLED_SHARE = 0.01  # of the window


@dataclass(frozen=True, slots=True)
class Drift:
    """A series of the window: how much it may move, as a share of its level and in its unit, and how it is written."""

    title: str
    share: float
    least: float
    write: Callable[[float], str]


SERIES = {
    "throughput": Drift("output tokens/s", 0.1, 0.0, significant),
    "ttft": Drift("TTFT", 0.2, 0.0, format_seconds),
    "tpot": Drift("TPOT", 0.05, 0.0, format_seconds),
    "in_flight": Drift("requests in flight", 0.2, 1.0, significant),
}


def unserved_users(view: StageView) -> Evidence | None:
    if not view.count("unserved_users"):
        return None
    return Evidence(
        "warn",
        f"{format_count(view.count('unserved_users'))} of the users had no answer yet when the warm-up reached its "
        "longest duration: the window began before the load was complete",
    )


def unanswered(view: StageView) -> Evidence | None:
    if not view.count("unanswered"):
        return None
    return Evidence(
        "warn",
        f"{format_count(view.count('unanswered'))} of the window's requests had no answer when the stage reached its "
        "longest duration: they ended under the load of the next stage, or were cut off",
    )


def backlog_grew(view: StageView) -> Evidence | None:
    """An open loop does not wait for the server: what it does not answer piles up."""
    offered, achieved = view.value("offered_rate"), view.value("achieved_rate")
    concurrency = view.value("concurrency")
    if not view.is_open or view.varies or offered is None or achieved is None or concurrency is None:
        return None
    ended = achieved + (view.value("failure_rate") or 0.0)
    behind = (offered - ended) * view.seconds
    # In flight at either end of a stable window: about Poisson, so their difference has twice the mean as its variance.
    chance = math.sqrt(2 * concurrency)
    if behind <= max(BEHIND[0] * chance, BEHIND[1] * view.requests):
        return None
    return Evidence(
        "warn",
        f"{significant(offered)} requests arrived a second and {significant(ended)} ended: the backlog grew by "
        f"{format_count(behind)}, so latencies depend on how long the stage lasted",
    )


def never_steady(view: StageView) -> Evidence | None:
    if view.varies:
        return None
    moved = [words for name, drift in SERIES.items() if (words := _moved(view.series.get(name, ()), drift)) is not None]
    if not moved:
        return None
    words = f"inside the steady window {in_words(moved)}: the numbers depend on how long the test ran"
    return Evidence("warn", words)


def _moved(series: Sequence[float | None], drift: Drift) -> str | None:
    """A trend or an initial transient that is neither chance nor small.

    A series that wanders so slowly that its window holds too few independent parts to test must move twice as far.
    """
    values = np.array([value for value in series if value is not None])
    steady = steadiness(values)
    if steady or len(values) < LEAST:
        return None
    share = drift.share if steady is False else 2 * drift.share
    third, tenth = len(values) // 3, max(len(values) // 10, 1)
    for early, late, words in (
        (values[:third], values[-third:], ("went from", "to")),
        (values[:tenth], values[tenth:], ("began at", "and settled at")),
    ):
        before, after = float(early.mean()), float(late.mean())
        if abs(after - before) > max(share * max(abs(before), abs(after)), drift.least):
            return f"{drift.title} {words[0]} {drift.write(before)} {words[1]} {drift.write(after)}"
    return None


def memory_grew(view: StageView) -> Evidence | None:
    """A leak shows only over minutes: caches fill at first."""
    if view.seconds < GROWTH_SECONDS:
        return None
    grown = []
    for name, title in MEMORY.items():
        level = view.gauges.get(name)
        if level is None or level.first is None or level.last is None:
            continue
        growth = level.last - level.first
        if growth > max(GROWTH[0], GROWTH[1] * level.first):
            hourly = growth / (0.9 * view.seconds) * 3600  # from the middle of the first tenth to that of the last
            span = f"from {format_bytes(level.first)} to {format_bytes(level.last)}"
            grown.append(f"{title} {span} ({format_bytes(hourly)} an hour)")
    if not grown:
        return None
    return Evidence("warn", f"the server's memory grew within the window: {in_words(grown)}")


def gpu_throttled(view: StageView) -> Evidence | None:
    """Not by its power limit, at which a busy GPU may always be."""
    throttled = view.gauges.get("gpu_throttled")
    if throttled is None or throttled.mean <= THROTTLED_SHARE:
        return None
    share = format_share(throttled.mean)
    return Evidence("warn", f"a GPU was throttled, by heat or by its power supply, in {share} of the window")


def lock_step(view: StageView) -> Evidence | None:
    """Users who send together, or whose latencies repeat: equal lengths keep them in step either way."""
    dispersion = view.value("dispersion")
    if dispersion is not None and dispersion >= LOCK_STEP:
        return Evidence(
            "warn",
            "the users sent their requests in lock step (index of dispersion of arrivals "
            f"{significant(dispersion)}, 1 for independent arrivals): queues form that independent users would not see",
        )
    withheld = view.without(IN_CYCLES) if not view.is_open and view.load > 1 else []
    if withheld:  # of one user, or of evenly spaced arrivals, cycles are no lock step
        return Evidence(
            "warn",
            f"{IN_CYCLES}, as those of users in lock step do: one pattern, repeated, does not show how much "
            f"{in_words(withheld)} would vary, so they have no interval",
        )
    return None


def littles_law_off(view: StageView) -> Evidence | None:
    concurrency, by_law = view.value("concurrency"), view.value("littles_law")
    if not concurrency or by_law is None or abs(by_law / concurrency - 1) <= LITTLE_TOLERANCE:
        return None
    return Evidence(
        "warn",
        f"{significant(concurrency)} requests were in flight, but arrival rate × mean time in flight is "
        f"{significant(by_law)}: the window was not steady, or records are missing",
    )


def stopped_early(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """A search whose time is up leaves a probe planned that it never measured: that is its end."""
    measured = {view.index for view in stages}
    unreached = [key.label for key in keys_of(run).values() if key.index not in measured]
    if _search_time_was_up(run):
        unreached = []
    cut = [view.label for view in stages if not view.complete]
    parts = [f"nothing was measured at {join_labels(unreached)}"] if unreached else []
    parts += [f"the stage at {join_labels(cut)} was cut short"] if cut else []
    if parts:
        yield Evidence("warn", f"the run was stopped: {' and '.join(parts)}")


def _search_time_was_up(run: RunData) -> bool:
    search, limit = run.meta.search, run.meta.workload.get("search_seconds")
    ended = search is not None and search.state != "running"
    return ended and limit is not None and run.last >= float(limit) * SECOND
