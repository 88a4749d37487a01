"""Judge stages by service-level objectives (`records.slo`).

The answer has three values, because a share that was measured on few requests may be above or below the wanted one by
chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from analysis.data.formulas import lower_bound
from analysis.data.load import users_of
from analysis.stats.estimate import Estimate
from analysis.stats.intervals import (
    Answer,
    bin_by_user,
    bin_events,
    objective_answer,
    rate_interval,
    share_interval,
)
from records.formatting import format_seconds, format_share
from records.metrics import OBJECTIVES
from records.slo import Objective
from records.stage import SECOND
from settings.schema import UserMistake


@dataclass(frozen=True, slots=True)
class Verdict:
    """One stage judged by one objective: `share` of the attempted requests were within the limit."""

    objective: Objective
    share: Estimate
    answer: Answer


@dataclass(frozen=True, slots=True)
class Attainment:
    """One stage judged by all objectives together. `goodput` is good requests per second of the steady window."""

    share: Estimate
    goodput: Estimate
    verdicts: tuple[Verdict, ...]

    @property
    def answer(self) -> Answer:
        return overall(verdict.answer for verdict in self.verdicts)


def overall(answers: Iterable[Answer]) -> Answer:
    """Missed where one is missed, met where all are met."""
    found = set(answers)
    if "missed" in found:
        return "missed"
    return "met" if found <= {"met"} else "not enough evidence"


def agreed(answers: Iterable[Answer]) -> Answer:
    """Of several judgements of one question: the answer that all of them give."""
    found = set(answers)
    return found.pop() if len(found) == 1 else "not enough evidence"


def objective_text(objective: Objective) -> str:
    """`TTFT p99 ≤ 1 s`"""
    if objective.column is None:
        return f"failures ≤ {format_share(1 - objective.q)}"
    return f"{objective.metric.upper()} p{100 * objective.q:g} ≤ {format_seconds(objective.limit)}"


def good(objective: Objective) -> pl.Expr:
    """Whether a request met the objective; null where it was cut off before that was known.

    What failed or was never sent did not. An answer of one chunk has no time per token, and so none that is long.
    """
    ok, cut_off = pl.col("outcome") == "ok", pl.col("outcome") == "cut_off"
    if objective.column is None:
        return pl.when(cut_off).then(None).otherwise(ok)
    within = pl.col(objective.column) <= objective.limit
    if objective.metric == "tpot":
        within = within | (pl.col("tpot").is_null() & pl.col("output_tokens").is_not_null())
    value, censored = lower_bound(OBJECTIVES[objective.metric].formula)
    stopped = pl.when(value > objective.limit).then(False).when(~censored).then(True)
    return pl.when(cut_off).then(stopped).otherwise(ok & within.fill_null(False))


def latency(objective: Objective) -> pl.Expr:
    """What decides whether a request met the objective, as a share of its limit: +∞ for what failed, the lower bound
    for what was cut off."""
    ok, cut_off = pl.col("outcome") == "ok", pl.col("outcome") == "cut_off"
    if objective.column is None:
        return pl.when(ok | cut_off).then(0.0).otherwise(math.inf)
    stopped, _ = lower_bound(OBJECTIVES[objective.metric].formula)
    ended = pl.when(ok).then(pl.col(objective.column).fill_null(0.0)).otherwise(math.inf)
    return pl.when(cut_off).then(stopped.fill_null(0.0)).otherwise(ended) / objective.limit


def judge(
    scheduled: pl.DataFrame, objectives: Sequence[Objective], window: tuple[int, int], withheld: str | None
) -> Attainment | None:
    """`scheduled` are the requests scheduled in `window`, in order; `None` where there were none.

    `withheld` says why the share of good requests is not shown. Raises `UserMistake` when an objective cannot be
    judged, because its metric was not measured.
    """
    if not objectives or scheduled.is_empty():
        return None
    for objective in objectives:
        _check_measured(scheduled.filter(pl.col("outcome") == "ok"), objective)
    verdicts = []
    for objective in objectives:
        judged = scheduled.select("user", good=good(objective), latency=latency(objective))
        least, most = (_share(judged.with_columns(pl.col("good").fill_null(value))) for value in (False, True))
        answer = agreed(objective_answer(share, objective.q) for share in (least, most))
        verdicts.append(Verdict(objective, _share(judged.drop_nulls("good")), answer))
    all_good = pl.all_horizontal(good(objective) for objective in objectives)
    longest = pl.max_horizontal(latency(objective) for objective in objectives)
    together = scheduled.select("user", "t_sched", good=all_good, latency=longest).drop_nulls("good")
    share = _share(together) if withheld is None else Estimate(None, n=len(together), why=withheld)
    return Attainment(share, _goodput(together.filter("good"), window), tuple(verdicts))


def _check_measured(answered: pl.DataFrame, objective: Objective) -> None:
    if objective.column is None:
        return
    unmeasured = len(answered) and answered[objective.column].null_count() == len(answered)
    if unmeasured and (answered["output_tokens"].fill_null(2) > 1).any():
        raise UserMistake(
            f"no request has a {objective.metric}, so {objective.name} cannot be judged: it needs streamed answers"
            " and their token counts."
        )


def _share(judged: pl.DataFrame) -> Estimate:
    return share_interval(judged["good"].to_numpy(), users_of(judged), judged["latency"].to_numpy())


def _goodput(good: pl.DataFrame, window: tuple[int, int]) -> Estimate:
    start, end = window
    times, users = good["t_sched"].to_numpy(), users_of(good)
    by_user = bin_by_user(times, users, start, end) if users is not None and len(good) else None
    return rate_interval(bin_events(times, start, end), (end - start) / SECOND, by_user)
