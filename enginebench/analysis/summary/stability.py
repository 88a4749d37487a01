"""Was the window steady, and did the run reach its end? `findings.py` has the table of these checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from enginebench.analysis.data.load import RunData
from enginebench.analysis.stats.steadiness import LEAST, steadiness
from enginebench.records.formatting import format_seconds, in_words, join_labels, significant
from enginebench.records.metrics import THROUGHPUT, TPOT, TTFT, TTFT_SINCE_DUE
from enginebench.records.stage import SECOND
from enginebench.records.view import Evidence, StageView, keys_of


@dataclass(frozen=True, slots=True)
class Drift:
    """A series of the window: how much it may move, as a share of its level and in its unit, and how it is written."""

    title: str
    share: float
    least: float
    write: Callable[[float], str]


SERIES = {
    THROUGHPUT: Drift("output tokens/s", 0.1, 0.0, significant),
    TTFT: Drift("TTFT", 0.2, 0.0, format_seconds),
    TTFT_SINCE_DUE: Drift("TTFT (user)", 0.2, 0.0, format_seconds),
    TPOT: Drift("TPOT", 0.05, 0.0, format_seconds),
    "in_flight": Drift("requests in flight", 0.2, 1.0, significant),
}


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


def stopped_early(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """A search whose time is up leaves a probe planned that it never measured: that is its end."""
    measured = {view.label for view in stages}
    labels = dict.fromkeys(key.label for key in keys_of(run.meta.plan).values())
    unreached = [label for label in labels if label not in measured]
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
