"""Judge requests by service-level objectives (`records.slo`): the share that met each objective, and goodput.

The answer has three values, because a share measured on few requests may be above or below the required one by chance.
A load is judged over all repeats together: `enginebench/analysis/verdict/pooling.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import polars as pl

from enginebench.analysis.data.formulas import expression
from enginebench.analysis.data.run_data import users_of
from enginebench.analysis.stats.intervals import bin_by_user, bin_events, rate_interval, share_bounds, share_intervals
from enginebench.records.metrics import OUTPUT_TOKENS
from enginebench.records.rules import UNDECIDED, SloAnswer, answer_of, attempted, within
from enginebench.records.slo import Objective, RunObjectives
from enginebench.records.stage import SECOND
from enginebench.records.view import Estimate, Judgement, Missing
from enginebench.settings.schema import UserMistake


def judge(scheduled: pl.DataFrame, objectives: Sequence[Objective]) -> tuple[Judgement, ...]:
    """Judge the requests scheduled in a window, in order, by each objective.

    Raises `UserMistake` if an objective cannot be judged, because its metric was not measured.
    """
    for objective in objectives:
        _check_measured(scheduled.filter(outcome="ok"), objective)
    if scheduled.is_empty():
        return tuple(Judgement.not_measured(objective) for objective in objectives)
    by_metric: dict[str, list[Objective]] = {}
    for objective in objectives:
        by_metric.setdefault(objective.metric, []).append(objective)
    judgements = {
        judgement.objective: judgement
        for same_metric in by_metric.values()
        for judgement in _judge_by_metric(scheduled, same_metric)
    }
    return tuple(judgements[objective] for objective in objectives)


def _judge_by_metric(scheduled: pl.DataFrame, objectives: Sequence[Objective]) -> Iterator[Judgement]:
    """Give an answer only if no request that was cut off, or whose tokens are unknown, could change it."""
    goods = {f"good {index}": expression(objective.within) for index, objective in enumerate(objectives)}
    requests = scheduled.select("user", "outcome", latency=_value(objectives[0]), **goods)
    uncertain = [name for name in goods if requests[name].null_count()]
    cases = [requests.with_columns(pl.col(uncertain).fill_null(met)) for met in ((0.0, 1.0) if uncertain else (0.0,))]
    of_cases = [_shares(case, goods) for case in cases]
    for index, (name, objective) in enumerate(zip(goods, objectives, strict=True)):
        answers = set()
        for case, of_case in zip(cases, of_cases, strict=True):  # bounds hold if an interval is withheld
            bounds = share_bounds(of_case[index], case["latency"].to_numpy(), users_of(case))
            answers.add(answer_of(*bounds, objective.q))
        share = _shares(requests.drop_nulls(name), [name])[0] if name in uncertain else of_cases[0][index]
        unknown = requests[name].null_count()
        answer: SloAnswer = answers.pop() if len(answers) == 1 else UNDECIDED
        if answer == UNDECIDED and (requests["outcome"].filter(requests[name].is_null()) == "ok").any():
            share = replace(share, missing=Missing.UNCOUNTED)
        elif answers:
            share = replace(share, missing=Missing.CUT_OFF)
        yield Judgement(objective, share, answer, unknown=unknown)


def attainment(scheduled: pl.DataFrame, objectives: RunObjectives) -> Estimate | None:
    """Return the share of attempted requests that met every objective, including those of their class; failed requests
    did not. `None` if that is unknown for every request."""
    if scheduled.is_empty() or not objectives:
        return None
    requests = _together(scheduled, objectives)
    return None if requests.is_empty() else _shares(requests, ["good"])[0]


def goodput(scheduled: pl.DataFrame, objectives: RunObjectives, window: tuple[int, int]) -> Estimate | None:
    """Return the requests scheduled in `window` that met every objective, per second."""
    if scheduled.is_empty() or not objectives:
        return None
    start, end = window
    requests = _together(scheduled, objectives)
    if requests.is_empty():
        return None
    good = requests.filter(pl.col("good") == 1)
    times, users = good["t_sched"].to_numpy(), users_of(good)
    by_user = bin_by_user(times, users, start, end) if users is not None and len(good) else None
    return rate_interval(bin_events(times, start, end), (end - start) / SECOND, by_user)


def _together(scheduled: pl.DataFrame, objectives: RunObjectives) -> pl.DataFrame:
    """Judge each request by the objectives of all requests and of its class."""
    limited = [(expression(objective.within), _latency(objective)) for objective in objectives.for_all]
    for name, own in objectives.by_class.items():
        in_class = pl.col("request_class").eq_missing(name)
        limited += [
            (
                pl.when(in_class).then(expression(objective.within)).otherwise(expression(within(None, 0.0))),
                pl.when(in_class).then(_latency(objective)).otherwise(0.0),
            )
            for objective in own
        ]
    good = pl.min_horizontal(met for met, _ in limited)
    unknown = pl.any_horizontal(met.is_null() for met, _ in limited)
    # A request that missed one objective is bad, even if the others are unknown.
    verdict = pl.when(good == 0).then(0.0).when(~unknown).then(good)
    longest = pl.max_horizontal(latency for _, latency in limited)
    return scheduled.select("user", "t_sched", good=verdict, latency=longest).drop_nulls("good")


def _latency(objective: Objective) -> pl.Expr:
    """Return the limited value divided by its limit; +∞ if the request failed."""
    return _value(objective) / (objective.limit or 1.0)


def _value(objective: Objective) -> pl.Expr:
    if objective.judged is None:
        return pl.when(expression(objective.within) == 0).then(float("inf")).otherwise(0.0)
    return expression(attempted(objective.judged.formula)).fill_null(0.0)


def _check_measured(answered: pl.DataFrame, objective: Objective) -> None:
    metric = objective.judged
    if metric is None or not len(answered) or answered[metric.name].null_count() < len(answered):
        return
    if metric.needs is not None:
        answered = answered.drop_nulls(metric.needs)  # whether the others met the objective is unknown
    single = metric.absent_is_good and answered[OUTPUT_TOKENS].max() == 1  # no answer has a second token
    if len(answered) and not single:
        raise UserMistake(
            f"no request has a {objective.metric}, so {objective.name} cannot be judged: it needs streamed answers."
        )


def _shares(requests: pl.DataFrame, goods: Iterable[str]) -> list[Estimate]:
    hits = [(requests[name] == 1).to_numpy() for name in goods]
    return share_intervals(hits, users_of(requests), requests["latency"].to_numpy())
