"""What the tokens of each engine cost: the price of an hour ÷ the tokens of an hour, at a load that is named.

With objectives the load is each engine's highest within them, else the one at which the engines are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from enginebench.analysis.compare.comparison import Comparison
from enginebench.analysis.compare.engine_runs import DECIDING, GPUS, EngineRuns, paired
from enginebench.analysis.console import TextTable
from enginebench.analysis.plan.prices import HOUR, MILLION, replica_price
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.stats.differences import compare_runs
from enginebench.records.formatting import MISSING, format_estimate, format_ratio, format_share, in_words, significant
from enginebench.records.rules import FAILURES_BORNE
from enginebench.records.view import Estimate

NO_DIFFERENCE = "no difference is shown"


@dataclass(frozen=True, slots=True)
class EngineCost:
    """At `stage`, which is `None` where no load is known to meet the objectives. `hours` are those of a replica for a
    million output tokens, `cost` their price in US dollars.

    `against` is the cost over the baseline's, below 1 where it is cheaper; without prices an hour of either replica is
    assumed to cost the same. `claimed`: it is shown to be cheaper or dearer. `joules` are those of an output token.
    `differs` says in what the runs are unlike the baseline's.
    """

    engine: str
    stage: str | None
    throughput: Estimate  # output tokens per second
    hours: Estimate
    price: float | None  # US dollars an hour, of a replica
    cost: Estimate
    against: Estimate
    joules: float | None
    requests: Estimate  # answered in an hour by a replica
    gpus: float | None  # of a replica, where its server says
    differs: str = ""
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class Costs:
    baseline: str
    engines: tuple[EngineCost, ...]
    sources: tuple[str, ...]  # of the prices

    def of(self, engine: str) -> EngineCost:
        return next(cost for cost in self.engines if cost.engine == engine)


@dataclass(frozen=True, slots=True)
class _Offer:
    """An engine at the stage that stands for it, and the price of an hour of a replica."""

    engine: EngineRuns
    stage: str | None
    hourly: float | None  # US dollars

    @property
    def throughput(self) -> Estimate:
        if self.stage is None:
            return Estimate(None, why="no load is known to meet the objectives")
        failed = self.engine.mean(lambda at: at.value("failure_share"), self.stage)
        if failed is None or failed > FAILURES_BORNE:
            return Estimate(None, why="no request ended" if failed is None else f"{format_share(failed)} failed")
        throughput = self.engine.estimate(self.stage, DECIDING)
        if throughput.low is not None and throughput.low <= 0:
            return replace(throughput, low=None, high=None, why="the interval reaches zero")
        return throughput

    @property
    def values(self) -> list[float | None]:
        """Output tokens per second of each run; `None` where it lacks the stage."""
        views = [run.at(self.stage or "") for run in self.engine.runs]
        return [None if view is None else view.value(DECIDING) for view in views]


def costs_of(engines: Sequence[EngineRuns], comparison: Comparison, settings: PlanSettings) -> Costs | None:
    """`None` where there is no stage to give costs for. Raises `UserMistake` for a GPU without a price."""
    prices = {engine.label: replica_price(settings, engine.label) for engine in engines}
    hourly = {label: None if price is None else price.per_hour for label, price in prices.items()}
    sources = [price.listed.page for price in prices.values() if price is not None and price.listed is not None]
    offers = [_Offer(engine, stage_of(engine, comparison), hourly[engine.label]) for engine in engines]
    if not any(offer.stage for offer in offers):
        return None
    base = next(offer for offer in offers if offer.engine.label == comparison.baseline)
    costs = [_cost(offer, base, comparison) for offer in offers]
    return Costs(comparison.baseline, tuple(costs), tuple(dict.fromkeys(sources)))


def stage_of(engine: EngineRuns, comparison: Comparison) -> str | None:
    """The stage whose numbers stand for the engine: its highest load within the objectives; without objectives that of
    the comparison."""
    capacity = comparison.capacity(engine.label)
    if capacity is None:  # no probe of a search stands for the whole run
        return None if any(run.search is not None for run in engine.runs) else comparison.stage
    return capacity.stage


def _cost(offer: _Offer, base: _Offer, comparison: Comparison) -> EngineCost:
    engine, stage, price, throughput = offer.engine, offer.stage, offer.hourly, offer.throughput
    hours = throughput.inverse.scaled(MILLION / HOUR)
    cost = replace(hours, value=None, low=None, high=None, why="no price") if price is None else hours.scaled(price)
    against = _against(offer, base, comparison)
    return EngineCost(
        engine=engine.label,
        stage=stage,
        throughput=throughput,
        hours=hours,
        price=price,
        cost=cost,
        against=against,
        joules=None if stage is None else engine.mean(lambda at: at.value("energy_per_token"), stage),
        requests=Estimate(None, why=throughput.why)
        if stage is None or throughput.value is None
        else engine.estimate(stage, "achieved_rate").scaled(HOUR),
        gpus=None if stage is None else engine.gauge(stage, GPUS),
        differs=comparison.differs.get(engine.label, ""),
        claimed=_claimed(against, offer, base, comparison),
    )


def _claimed(against: Estimate, offer: _Offer, base: _Offer, comparison: Comparison) -> bool:
    """As the comparison claims of the tokens, where they alone tell the costs apart; else by the interval and the
    practical margin."""
    compared = comparison.of(offer.stage, offer.engine.label, DECIDING)
    if compared is not None and (offer.stage, offer.hourly) == (base.stage, base.hourly):
        return compared.verdict in {"better", "worse"}
    if against.value is None or against.low is None or against.high is None or against.low <= 1 <= against.high:
        return False
    return max(against.value, 1 / against.value) >= comparison.margin


def _against(offer: _Offer, base: _Offer, comparison: Comparison) -> Estimate:
    if offer is base:
        return Estimate(1.0)
    label = offer.engine.label
    if label in comparison.unlike:
        return Estimate(None, why=comparison.unlike[label])
    for side in (offer, base):
        if (throughput := side.throughput).value is None:
            return Estimate(None, why=throughput.why if side is offer else f"{base.engine.label}: {throughput.why}")
    if (offer.hourly is None) != (base.hourly is None):
        return Estimate(None, why="one of the two has no price")
    price_ratio = offer.hourly / base.hourly if offer.hourly and base.hourly else 1.0
    return _tokens_ratio(offer, base, comparison).inverse.scaled(price_ratio)


def _tokens_ratio(offer: _Offer, base: _Offer, comparison: Comparison) -> Estimate:
    """The comparison's own where both are at one stage."""
    compared = comparison.of(offer.stage, offer.engine.label, DECIDING)
    if offer.stage == base.stage and compared is not None:
        return compared.ratio
    pairs = paired([offer.engine, base.engine])
    if pairs:  # the i-th runs are of one repeat, which counts where both have their stage in it
        known = [(a, b) for a, b in zip(offer.values, base.values, strict=True) if a is not None and b is not None]
        ours, theirs = [a for a, _ in known], [b for _, b in known]
    else:
        ours, theirs = ([value for value in side.values if value is not None] for side in (offer, base))
    return compare_runs(ours, theirs, pairs, relative=True).ratio


def saved(cost: EngineCost) -> str:
    """What is saved of the baseline's cost, where that may be claimed."""
    against = cost.against
    if against.low is None or against.high is None:
        return MISSING
    if not cost.claimed:
        return NO_DIFFERENCE
    ends = sorted((abs(1 - against.low), abs(1 - against.high)))
    more = "more" if against.low > 1 else "less"
    return f"{format_share(abs(1 - (against.value or 1)))} {more} [{', '.join(map(format_share, ends))}]"


def cost_table(costs: Costs) -> TextTable:
    """Without the columns of which nothing is known; below it, why numbers are missing."""
    priced = any(cost.price is not None for cost in costs.engines)
    columns = {
        "engine": [cost.engine for cost in costs.engines],
        "at load": [cost.stage or MISSING for cost in costs.engines],
        "tokens/s": [_text(cost.throughput) for cost in costs.engines],
        "replica hours per 1M tokens": [_text(cost.hours) for cost in costs.engines],
    }
    if priced:
        hours = [MISSING if cost.price is None else dollars(cost.price) for cost in costs.engines]
        columns |= {"price of an hour": hours, "cost per 1M tokens": [_text(cost.cost, "$") for cost in costs.engines]}
    columns["requests per replica-hour"] = [_text(cost.requests) for cost in costs.engines]
    if any(cost.gpus for cost in costs.engines):
        per_gpu = [cost.requests.scaled(1 / cost.gpus) if cost.gpus else Estimate(None) for cost in costs.engines]
        columns["requests per GPU-hour"] = [_text(requests) for requests in per_gpu]
    if len(costs.engines) > 1:
        others = [(cost, cost.engine != costs.baseline) for cost in costs.engines]
        columns[f"cost against {costs.baseline}"] = [_ratio(cost.against) if other else "1" for cost, other in others]
        if any(other and cost.against.low is not None for cost, other in others):
            columns["saving"] = [saved(cost) if other else "baseline" for cost, other in others]
    if any(cost.differs for cost in costs.engines):
        columns["differs in"] = [cost.differs for cost in costs.engines]
    if any(cost.joules is not None for cost in costs.engines):
        columns["J per token"] = [
            MISSING if cost.joules is None else significant(cost.joules) for cost in costs.engines
        ]
    words = tuple(index for index, name in enumerate(columns) if name in {"engine", "at load", "saving", "differs in"})
    rows = tuple(zip(*columns.values(), strict=True))
    return TextTable("Cost of the tokens", tuple(columns), rows, words, _caption(costs, priced))


def _caption(costs: Costs, priced: bool) -> str:
    text = "Price of an hour ÷ output tokens of an hour, of one replica that is as busy as at that load."
    text += "" if priced else " Without prices an hour of every replica is assumed to cost the same."
    text += f" Prices: {'; '.join(costs.sources)}." if costs.sources else ""
    reasons: dict[str, list[str]] = {}
    for cost in costs.engines:
        if cost.throughput.value is None or cost.against.value is None:
            why = cost.throughput.why if cost.throughput.value is None else cost.against.why
            reasons.setdefault(why or "not measured", []).append(cost.engine)
    missing = "; ".join(f"{in_words(engines)} ({why})" for why, engines in reasons.items())
    return f"{text} {MISSING}: {missing}." if missing else text


def _ratio(ratio: Estimate) -> str:
    return MISSING if ratio.value is None else format_ratio(ratio.value, ratio.low, ratio.high)


def _text(estimate: Estimate, before: str = "") -> str:
    known = estimate.finite
    return format_estimate(known.value, known.low, known.high, before)


def dollars(amount: float) -> str:
    return f"${significant(amount)}"
