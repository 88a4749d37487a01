"""A stage of several classes of requests, class by class. A class measured alone shows what the others do to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analysis.data.windows import Window
from analysis.summary.distributions import Distribution, distributions
from analysis.summary.slo import Attainment, judge
from records.slo import parse_objectives

SHOWN = ("ttft", "ttft_user", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """One class of a stage; seconds. `attainment` is by the class's own objectives, `None` where it has none."""

    name: str
    requests: int  # scheduled in the window
    failed: int
    latencies: Mapping[str, Distribution]
    attainment: Attainment | None


def classes_of(scheduled: pl.DataFrame, objectives: Mapping[str, str], window: Window) -> tuple[ClassSummary, ...]:
    """Nothing where requests have no class. `objectives` are texts by class.

    Raises `UserMistake` when an objective cannot be judged by what was measured.
    """
    found = []
    for name in scheduled["request_class"].drop_nulls().unique().sort():
        requests = scheduled.filter(pl.col("request_class") == name)
        own = parse_objectives([objectives.get(name, "")])
        found.append(
            ClassSummary(
                name,
                len(requests),
                len(requests.filter(~pl.col("outcome").is_in(["ok", "cut_off"]))),
                {metric: latency for metric, latency in distributions(requests).items() if metric in SHOWN},
                judge(requests, own, (window.start, window.end), None),
            )
        )
    return tuple(found)
