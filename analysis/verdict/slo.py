"""Service-level objectives: "99 % of the requests get their first token within half a second" is `ttft_p99=0.5`.

An objective is a share of requests and a limit, so it can be judged request by request: failures count as bad, and
latencies run from the instant the schedule planned the request, as its user feels them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from analysis.verdict.statistics import Estimate, share_interval
from records.metrics import OBJECTIVES

GRAMMAR = f"METRIC_pN=SECONDS, such as ttft_p99=0.5, with METRIC one of {', '.join(OBJECTIVES)}"


@dataclass(frozen=True, slots=True)
class Objective:
    """At least a share `q` of the requests have `metric` at or below `limit` seconds."""

    metric: str
    q: float
    limit: float

    @property
    def name(self) -> str:
        return f"{self.metric}_p{100 * self.q:g}"

    def good(self) -> pl.Expr:
        """Whether a request met the limit. What failed or never began did not; one lone token has no time per token."""
        within = pl.col(OBJECTIVES[self.metric].name) <= self.limit
        if self.metric == "tpot":
            within = within | (pl.col("tpot").is_null() & pl.col("output_tokens").is_not_null())
        return (pl.col("outcome") == "ok") & within.fill_null(False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one step did by one objective: `share` of the attempted requests were within the limit."""

    objective: Objective
    share: Estimate
    met: bool


@dataclass(frozen=True, slots=True)
class Attainment:
    """How one step did by all objectives together. `goodput` is good requests per second of the steady window."""

    share: Estimate
    goodput: float
    verdicts: tuple[Verdict, ...]

    @property
    def met(self) -> bool:
        return all(verdict.met for verdict in self.verdicts)


def parse_objectives(texts: Iterable[str]) -> tuple[Objective, ...]:
    """Raises `ValueError` with a sentence."""
    objectives = []
    for text in texts:
        match = re.fullmatch(r"([a-z0-9]+)_p(\d+(?:\.\d+)?)=([0-9.eE+-]+)", text.strip())
        try:
            if match is None or match[1] not in OBJECTIVES:
                raise ValueError
            objective = Objective(match[1], float(match[2]) / 100, float(match[3]))
            if not (0 < objective.q < 1 and 0 < objective.limit < float("inf")):
                raise ValueError
        except ValueError:
            raise ValueError(f"an objective is {GRAMMAR}, not `{text}`.") from None
        objectives.append(objective)
    return tuple(objectives)


def judge(attempted: pl.DataFrame, objectives: tuple[Objective, ...], window: float) -> Attainment | None:
    """`attempted` are the requests scheduled in the window that were not cut off; `None` where there were none.

    Raises `ValueError` when an objective cannot be judged, because its metric was not measured.
    """
    if not objectives or attempted.is_empty():
        return None
    answered = attempted.filter(pl.col("outcome") == "ok")
    for objective in objectives:
        column = answered[OBJECTIVES[objective.metric].name]
        if (
            len(answered)
            and column.null_count() == len(answered)
            and (answered["output_tokens"].fill_null(2) > 1).any()
        ):
            raise ValueError(
                f"no request has a {objective.metric}, so {objective.name} cannot be judged: it needs streamed answers"
                " and their token counts."
            )
    n = len(attempted)
    verdicts = []
    for objective in objectives:
        hits = int(attempted.select(objective.good().sum()).item())
        verdicts.append(Verdict(objective, share_interval(hits, n), hits >= round(objective.q * n, 9)))
    good = int(attempted.select(pl.all_horizontal(o.good() for o in objectives).sum()).item())
    return Attainment(share_interval(good, n), good / window, tuple(verdicts))
