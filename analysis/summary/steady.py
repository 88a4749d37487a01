"""Was the load of a stage what it was meant to be, and was the window steady under it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.stats.steadiness import LEAST, LOCK_STEP, steadiness
from records.formatting import format_bytes, format_count, format_seconds, in_words, significant
from records.view import Finding, StageView

LITTLE_TOLERANCE = 0.10
GROWTH = (16 * 1024 * 1024, 0.05)  # bytes, and share, by which memory may grow
LEAST_SECONDS = 600.0  # of a window in which growth is looked for
# Standard deviations, and share of the requests: by how many more arrived than ended if a backlog grew.
BEHIND = (4.0, 0.05)


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


def _never_steady(stage: StageView) -> Finding | None:
    if stage.varies:
        return None
    said = [text for name, drift in SERIES.items() if (text := _moved(stage.series[name], drift)) is not None]
    if not said:
        return None
    return Finding(
        "never_steady",
        "warn",
        f"inside the steady window {in_words(said)}: the numbers depend on how long the test ran",
        "make the stages and their warm-up longer" + (", or the rate lower" if stage.is_open else ""),
    )


def _moved(series: Sequence[float | None], drift: Drift) -> str | None:
    """A trend or an initial transient that is neither chance nor small.

    A series that wanders so slowly that its window holds too few independent parts to test must move twice as far.
    """
    values = np.array(_known(series))
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


def _known(series: Sequence[float | None]) -> list[float]:
    return [value for value in series if value is not None]


def _backlog_grew(stage: StageView) -> Finding | None:
    """An open loop does not wait for the server: what it does not answer piles up."""
    if not stage.is_open or stage.varies:
        return None
    ended = stage.achieved_rate + stage.failure_rate
    behind = (stage.offered_rate - ended) * stage.seconds
    # In flight at either end of a stable window: about Poisson, so their difference has twice the mean as its variance.
    chance = math.sqrt(2 * stage.concurrency.average)
    if behind <= max(BEHIND[0] * chance, BEHIND[1] * stage.requests):
        return None
    return Finding(
        "backlog_grew",
        "warn",
        f"{significant(stage.offered_rate)} requests arrived a second and {significant(ended)} ended: the backlog grew "
        f"by {format_count(behind)}, so latencies depend on how long the stage lasted",
        "test lower rates: this one exceeds the server's capacity",
    )


def _memory_grew(stage: StageView) -> Finding | None:
    """A leak shows only over minutes: caches fill at first."""
    said = [
        f"{name.replace('_memory_bytes', '')} from {format_bytes(first)} to {format_bytes(last)} "
        f"({format_bytes((last - first) / (0.9 * stage.seconds) * 3600)} an hour)"
        for name, (first, last) in stage.memory.items()
        if last - first > max(GROWTH[0], GROWTH[1] * first)
    ]
    if not said or stage.seconds < LEAST_SECONDS:
        return None
    return Finding(
        "memory_grew",
        "warn",
        f"the server's memory grew within the window: {in_words(said)}",
        "run for longer and see whether it levels off; a leak does not",
    )


def _lock_step(stage: StageView) -> Finding | None:
    if stage.dispersion is None or stage.dispersion < LOCK_STEP:
        return None
    return Finding(
        "lock_step",
        "warn",
        f"the users sent their requests in lock step (index of dispersion of arrivals {significant(stage.dispersion)}, "
        "1 for independent arrivals): queues form that independent users would not see",
        "vary the lengths of prompts and answers, or give users a random think time",
    )


def _unserved_users(stage: StageView) -> Finding | None:
    if not stage.unserved_users:
        return None
    return Finding(
        "unserved_users",
        "warn",
        f"{format_count(stage.unserved_users)} of the users had no answer yet when the warm-up reached its longest "
        "duration: the window began before the load was complete",
        "make the stages longer, or test fewer users: the server may not have the capacity for so many",
    )


def _unanswered(stage: StageView) -> Finding | None:
    if not stage.unanswered:
        return None
    return Finding(
        "unanswered",
        "warn",
        f"{format_count(stage.unanswered)} of the window's requests had no answer when the stage reached its longest "
        "duration: they ended under the load of the next stage, or were cut off",
        "make the stages longer, or ask for shorter answers",
    )


def _littles_law_off(stage: StageView) -> Finding | None:
    concurrency = stage.concurrency
    if concurrency.little is None or concurrency.average == 0:
        return None
    if abs(concurrency.little / concurrency.average - 1) <= LITTLE_TOLERANCE:
        return None
    return Finding(
        "littles_law_off",
        "warn",
        f"{significant(concurrency.average)} requests were in flight, but arrival rate × mean time in flight is "
        f"{significant(concurrency.little)}: the window was not steady, or records are missing",
        "make the stages longer, and see whether a worker was lost",
    )


CHECKS: tuple[Callable[[StageView], Finding | None], ...] = (
    _unserved_users,
    _unanswered,
    _backlog_grew,
    _never_steady,
    _memory_grew,
    _lock_step,
    _littles_law_off,
)
