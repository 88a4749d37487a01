"""Checks of a stage's load: was it what it was meant to be, and did the server bear it?"""

from __future__ import annotations

import math

from enginebench.records.formatting import format_bytes, format_count, format_share, in_words, significant
from enginebench.records.metrics import titles_of
from enginebench.records.view import Evidence, Missing, StageView

LITTLE_TOLERANCE = 0.10
LITTLE_WINDOWS = 5  # Little's law compares only windows that are so many times longer than the mean request
GROWTH = (16 * 1024 * 1024, 0.05)  # bytes, and share, by which memory may grow
GROWTH_SECONDS = 600.0  # of a window in which growth is looked for
MEMORY = {"engine_memory_bytes": "engine", "process_memory_bytes": "process"}
BEHIND = (4.0, 0.05)  # standard deviations, and share of the requests: more arrivals than ends if a backlog grew
THROTTLED_SHARE = 0.01  # of the window
LOCK_STEP = 2.0  # index of dispersion: three standard deviations above Poisson arrivals counted over two cycles


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
            "the users sent their requests in lock step: queues form that independent users would not see",
        )
    withheld = view.without(Missing.CYCLIC) if not view.is_open and view.load > 1 else []
    if withheld:  # of one user, or of evenly spaced arrivals, cycles are no lock step
        return Evidence(
            "warn",
            "the users sent their requests in lock step, in one pattern that repeats: "
            f"{in_words(titles_of(withheld))} have no interval",
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
