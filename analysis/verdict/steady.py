"""Was the load of a stage what it was meant to be, and was the window steady under it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.units import format_count, format_seconds, in_words, significant
from analysis.verdict.finding import Finding
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import LOCK_STEP, steadiness

LITTLE_TOLERANCE = 0.10
TRANSIENT_Z = 4.0  # standard errors between the initial transient and the rest, below which it may be chance


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


def _never_steady(stage: StageSummary) -> Finding | None:
    said = [text for name, drift in SERIES.items() if (text := _moved(stage.series[name], drift)) is not None]
    if not said:
        return None
    return Finding(
        "never_steady",
        "warn",
        f"inside the steady window {in_words(said)}: the numbers depend on how long the test ran",
        "make the stages and their warm-up longer; under an open load, the rate may be more than the server can take",
    )


def _moved(series: Sequence[float | None], drift: Drift) -> str | None:
    """A trend that is neither chance nor small, or an initial transient that moves the mean."""
    values = np.array([value for value in series if value is not None])
    found = steadiness(values)
    if found.steady is None:
        return None
    third = len(values) // 3
    first, last = float(values[:third].mean()), float(values[-third:].mean())
    if not found.steady and abs(last - first) > max(drift.share * max(abs(first), abs(last)), drift.least):
        return f"{drift.title} went from {drift.write(first)} to {drift.write(last)}"
    cut = round((found.truncation or 0.0) * len(values))
    if cut < 2:
        return None
    early, rest = values[:cut], values[cut:]
    apart = float(early.mean() - rest.mean())
    error = math.sqrt(early.var(ddof=1) / len(early) + rest.var(ddof=1) / len(rest))
    bias = abs(float(values.mean() - rest.mean()))
    if abs(apart) <= TRANSIENT_Z * error or bias <= drift.share / 2 * abs(float(rest.mean())) or bias < drift.least / 2:
        return None
    return f"{drift.title} began at {drift.write(float(early.mean()))} and settled at {drift.write(float(rest.mean()))}"


TITLES = tuple(drift.title for drift in SERIES.values())


def tested(stage: StageSummary) -> list[str]:
    """The titles of the series that were long enough to be tested."""
    return [drift.title for name, drift in SERIES.items() if steadiness(_known(stage.series[name])).steady is not None]


def _known(series: Sequence[float | None]) -> list[float]:
    return [value for value in series if value is not None]


def _lock_step(stage: StageSummary) -> Finding | None:
    if stage.dispersion is None or stage.dispersion < LOCK_STEP:
        return None
    return Finding(
        "lock_step",
        "warn",
        f"the users sent their requests in lock step (index of dispersion of arrivals {significant(stage.dispersion)}, "
        "1 for independent arrivals): queues form that independent users would not see",
        "vary the lengths of prompts and answers, or give users a random think time",
    )


def _unserved_users(stage: StageSummary) -> Finding | None:
    if not stage.unserved_users:
        return None
    return Finding(
        "unserved_users",
        "warn",
        f"{format_count(stage.unserved_users)} users had no answer yet when the warm-up reached its longest duration: "
        "the window began before the load was complete",
        "make the stages longer, or test fewer users: the server may not have the capacity for so many",
    )


def _unanswered(stage: StageSummary) -> Finding | None:
    if not stage.unanswered:
        return None
    return Finding(
        "unanswered",
        "warn",
        f"{format_count(stage.unanswered)} requests of the window had no answer when the stage reached its longest "
        "duration: they ended under the load of the next stage, or were cut off",
        "make the stages longer, or ask for shorter answers",
    )


def _littles_law_off(stage: StageSummary) -> Finding | None:
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


CHECKS: tuple[Callable[[StageSummary], Finding | None], ...] = (
    _unserved_users,
    _unanswered,
    _never_steady,
    _lock_step,
    _littles_law_off,
)
