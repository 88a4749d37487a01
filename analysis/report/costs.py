"""What the tokens of each engine cost, beside the baseline's: the business table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.compare.contrasts import Contrasts, inverse
from analysis.compare.engine_runs import Contender
from analysis.compare.measures import THROUGHPUT
from analysis.compare.tables import TextTable
from analysis.plan.prices import gpu_hours, price_source, read_prices
from analysis.plan.settings import PlanSettings
from analysis.summary.stage import FAILURES_BORNE
from records.formatting import MISSING, format_ratio, format_share, significant
from records.view import Estimate

MILLION, HOUR = 1e6, 3600.0


@dataclass(frozen=True, slots=True)
class EngineCost:
    """At one stage. `hours` are those of a replica for a million output tokens, `cost` their price in US dollars.

    `against` is the cost over the baseline's, below 1 where it is cheaper; without prices both replicas are assumed
    to cost the same. `joules` are those of an output token.
    """

    engine: str
    throughput: Estimate  # output tokens per second
    hours: Estimate
    price: float | None  # US dollars an hour, of a replica
    cost: Estimate
    against: Estimate
    joules: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    stage: str
    baseline: str
    engines: tuple[EngineCost, ...]
    sources: tuple[str, ...]  # of the prices


def costs_of(engines: Sequence[Contender], stage: str, contrasts: Contrasts | None, settings: PlanSettings) -> Costs:
    """At `stage`. Raises `UserMistake` for a GPU without a price."""
    prices = read_prices(settings.prices)
    hourly = {one.label: _hourly(*gpu_hours(settings, prices, one.label)) for one in engines}
    found = [price_source(settings, prices, one.label) for one in engines]
    baseline = contrasts.baseline if contrasts is not None else engines[0].label
    costs = [_cost(one, stage, hourly, baseline, contrasts) for one in engines]
    return Costs(stage, baseline, tuple(costs), tuple(dict.fromkeys(str(one) for one in found if one is not None)))


def _hourly(gpus: int, price: float | None) -> float | None:
    return None if price is None else gpus * price


def _cost(
    one: Contender, stage: str, hourly: dict[str, float | None], baseline: str, contrasts: Contrasts | None
) -> EngineCost:
    throughput = one.estimate(lambda at: at.throughput, stage)
    failed = one.mean(lambda at: at.failure_share.value, stage)
    if failed is None or failed > FAILURES_BORNE:
        throughput = Estimate(None, why="no request ended" if failed is None else f"{format_share(failed)} failed")
    if throughput.low is not None and throughput.low <= 0:
        throughput = replace(throughput, low=None, high=None, why="the interval reaches zero")
    hours = _times(inverse(throughput), MILLION / HOUR) if throughput.value else Estimate(None, why=throughput.why)
    price = hourly[one.label]
    cost = Estimate(None, why=hours.why or "no price") if price is None else _times(hours, price)
    joules = one.mean(lambda at: at.energy_per_token, stage)
    against = _against(one.label, stage, hourly, baseline, contrasts, throughput)
    return EngineCost(one.label, throughput, hours, price, cost, against, joules)


def _against(
    label: str,
    stage: str,
    hourly: dict[str, float | None],
    baseline: str,
    contrasts: Contrasts | None,
    throughput: Estimate,
) -> Estimate:
    if label == baseline:
        return Estimate(1.0)
    if contrasts is None or throughput.value is None:
        return Estimate(None, why=throughput.why or "these runs are not compared")
    if contrasts.blocked:
        return Estimate(None, why="the runs differ or are invalid")
    found = next((one.of(label, THROUGHPUT) for one in contrasts.stages if one.label == stage), None)
    if found is None:
        return Estimate(None, why="not measured in every run")
    ours, theirs = hourly[label], hourly[baseline]
    if (ours is None) != (theirs is None):
        return Estimate(None, why="one of the two has no price")
    return _times(inverse(found.ratio), ours / theirs if ours and theirs else 1.0)


def _times(estimate: Estimate, factor: float) -> Estimate:
    value, low, high = (None if one is None else one * factor for one in (estimate.value, estimate.low, estimate.high))
    return replace(estimate, value=value, low=low, high=high)


def saved(against: Estimate) -> str:
    """What is saved of the baseline's cost: only where the interval allows a claim."""
    if against.low is None or against.high is None:
        return f"{MISSING}, {against.why or 'too few runs'}"
    if against.low <= 1 <= against.high:
        return "no difference is shown"
    ends = sorted((abs(1 - against.low), abs(1 - against.high)))
    more = "more" if against.low > 1 else "less"
    return f"{format_share(abs(1 - (against.value or 1)))} {more} [{', '.join(map(format_share, ends))}]"


def table(costs: Costs) -> TextTable:
    """Without the columns of which nothing is known."""
    columns = {
        "engine": [one.engine for one in costs.engines],
        "tokens/s": [_written(one.throughput) for one in costs.engines],
        "replica hours per 1M tokens": [_written(one.hours) for one in costs.engines],
    }
    if any(one.price is not None for one in costs.engines):
        columns["price of an hour"] = [
            MISSING if one.price is None else f"${significant(one.price)}" for one in costs.engines
        ]
        columns["cost per 1M tokens"] = [_written(one.cost, "$") for one in costs.engines]
    if len(costs.engines) > 1:
        others = [(one, one.engine != costs.baseline) for one in costs.engines]
        columns[f"cost against {costs.baseline}"] = [_relative(one.against) if other else "1" for one, other in others]
        if any(other and one.against.low is not None for one, other in others):
            columns["in words"] = [saved(one.against) if other else "baseline" for one, other in others]
    if any(one.joules is not None for one in costs.engines):
        columns["J per token"] = [MISSING if one.joules is None else significant(one.joules) for one in costs.engines]
    text = f"Output tokens, at {costs.stage}, of one replica that is as busy as there. In brackets 95 % intervals."
    if "price of an hour" not in columns:
        text += " Without prices (--price, --gpu) an hour of every replica is assumed to cost the same."
    text += f" Prices: {'; '.join(costs.sources)}." if costs.sources else ""
    words = tuple(index for index, name in enumerate(columns) if name in {"engine", "in words"})
    return TextTable("Costs", tuple(columns), tuple(zip(*columns.values(), strict=True)), words, text)


def _relative(ratio: Estimate) -> str:
    return _written(ratio) if ratio.value is None else format_ratio(ratio.value, ratio.low, ratio.high)


def _written(estimate: Estimate, before: str = "") -> str:
    if estimate.value is None:
        return f"{MISSING}, {estimate.why}" if estimate.why else MISSING
    value, low, high = (
        "" if one is None else f"{before}{significant(one)}" for one in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} [{low}, {high}]" if low and high else value
