"""Figures of plans as gauges for Prometheus, so that the page *Capacity planning* shows them beside what servers do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from analysis.plan.answer import Plan
from analysis.plan.money.prices import Prices
from analysis.plan.settings import PlanSettings, named
from records.run import RunMeta

PREFIX = "enginebench_plan_"
ANY_GPU = "any"  # where no class of GPU was given with --gpu


@dataclass(frozen=True, slots=True)
class Published:
    """A plan and the labels of its gauges: engine and model as servers export them, the GPU as in the price list."""

    plan: Plan
    engine: str
    model: str
    gpu: str

    @property
    def labels(self) -> dict[str, str]:
        return {"engine": self.engine, "model": self.model, "gpu": self.gpu}


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    about: str
    value: float | None
    label: tuple[str, str] | None = None  # beside those of the plan


def published(plan: Plan, meta: RunMeta, settings: PlanSettings, prices: Prices) -> Published:
    """`meta` is of one of the plan's runs. Raises `ValueError` for a GPU that the price list does not have."""
    gpu = named(settings.gpu, plan.label)
    engine, model = str((meta.engine or {}).get("name") or plan.label), meta.model or "unknown"
    return Published(plan, engine, model, ANY_GPU if gpu is None else prices.gpu_class(gpu))


def distinct(plans: Sequence[Published]) -> tuple[list[Published], list[Published]]:
    """The first with each set of labels, and the rest: a series has one value."""
    first: dict[tuple[str, ...], Published] = {}
    for one in plans:
        first.setdefault(tuple(one.labels.values()), one)
    kept = list(first.values())
    return kept, [one for one in plans if not any(one is other for other in kept)]


def registry_of(plans: Sequence[Published]) -> CollectorRegistry:
    """`plans` have distinct labels."""
    registry = CollectorRegistry()
    gauges: dict[str, Gauge] = {}
    for one in plans:
        for figure in _figures(one.plan):
            if figure.value is None or not math.isfinite(figure.value):
                continue
            more = dict([figure.label] if figure.label is not None else [])
            if figure.name not in gauges:
                gauges[figure.name] = Gauge(PREFIX + figure.name, figure.about, [*one.labels, *more], registry=registry)
            gauges[figure.name].labels(**one.labels, **more).set(figure.value)
    return registry


def _figures(plan: Plan) -> Iterator[Figure]:
    measured = plan.safe.load.value if plan.safe is not None else None
    if plan.safe is not None and measured is not None:
        safe, unit = measured, plan.safe.unit
    else:  # what each replica bears at the plan's peak
        safe, unit = plan.load.value / plan.replicas.count, plan.load.unit
    chosen = plan.replicas.chosen
    yield Figure("safe_load", "Load of one replica at which the objectives hold.", safe, ("unit", unit))
    yield Figure("replicas", "Replicas for the peak.", plan.replicas.count)
    yield Figure("replicas_with_spare", "Replicas for the peak, spare ones included.", plan.count)
    yield Figure("attainment_ratio", "Predicted share of requests that meet every objective.", chosen.share.median)
    ttft = chosen.ttft_p95.median
    yield Figure("ttft_seconds", "Predicted time to first token at the peak.", ttft, ("quantile", "0.95"))
    cost = plan.bill.per_million_output_tokens if plan.bill is not None else None
    yield Figure("cost_usd_per_million_tokens", "Cost of a million output tokens at the peak.", cost)
