"""Read llm-d's Benchmark Reports 0.2 and 0.2.1: the load of a stage, and its numbers in the form of a view.

Other tools compute percentiles over the successful requests. If some failed, these are kept as percentiles of the
answered requests, and percentiles of all attempted requests are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.formats import benchmark_report as br
from enginebench.analysis.formats.results import NotImportable, load_of
from enginebench.records import load as loads
from enginebench.records.metrics import (
    ACHIEVED_RATE,
    BY_NAME,
    FAILURE_SHARE,
    ICL,
    PERCENTILES,
    QUANTITY_BY_NAME,
    TPOT,
    USER_THROUGHPUT,
)
from enginebench.records.plain_text import plain_json
from enginebench.records.request import CUT_OFF
from enginebench.records.rules import nearest_rank
from enginebench.records.view import Distribution, Estimate, Level, Missing


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a stage, under the names of `StageView`."""

    outcomes: Mapping[str, int]
    metrics: Mapping[str, Distribution]
    quantities: Mapping[str, Estimate]
    gauges: Mapping[str, Level]


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report of one stage."""

    path: Path
    report: br.BenchmarkReport
    standardized: br.LoadStandardized
    load: loads.Load
    numbers: Numbers

    @property
    def name(self) -> str:
        """Return the label of the run if its user gives none."""
        return (self.model or self.standardized.tool or self.path.stem).rpartition("/")[2]

    @property
    def stage(self) -> int:
        return self.standardized.stage or 0

    @property
    def start(self) -> datetime | None:
        time = self.report.run.time or br.RunTime()
        start = time.end - (time.duration or timedelta()) if time.start is None and time.end is not None else time.start
        return start.replace(tzinfo=UTC) if start is not None and start.tzinfo is None else start

    @property
    def seconds(self) -> float:
        """Return the duration of the stage; 0 if the report does not have it."""
        time = self.report.run.time or br.RunTime()
        if time.duration is not None:
            return max(time.duration.total_seconds(), 0.0)
        if time.start is not None and time.end is not None:
            return max((time.end - time.start).total_seconds(), 0.0)
        rate = self.numbers.quantities.get(ACHIEVED_RATE, Estimate(None)).value
        return self.numbers.outcomes["ok"] / rate if rate else 0.0

    @property
    def model(self) -> str | None:
        models = [component.standardized.get("model") for component in self.stack]
        return next((str(model["name"]) for model in models if isinstance(model, dict) and model.get("name")), None)

    @property
    def engine(self) -> dict[str, Any] | None:
        """Return the facts of the stack's first inference engine, under the names that our servers use."""
        for part in (component.standardized for component in self.stack):
            if part.get("kind") == "inference_engine":
                device = (part.get("accelerator") or {}).get("model")
                facts = {"name": part.get("tool"), "version": part.get("tool_version"), "device": device}
                return {name: value for name, value in facts.items() if value} or None
        return None

    @property
    def stack(self) -> list[br.Component]:
        return (self.report.scenario or br.Scenario()).stack or []


def is_report(document: dict[str, Any]) -> bool:
    return {"run", "results"} <= document.keys()


def read(document: dict[str, Any], path: Path) -> ReportFile:
    """Read a report. Raises `NotImportable`, and `ValueError` for a value of a wrong type."""
    version = str(document.get("version", br.VERSION))
    if version not in br.READ_VERSIONS:
        raise NotImportable(f"is a Benchmark Report {version}; {' and '.join(br.READ_VERSIONS)} are read.")
    report = msgspec.convert(plain_json(document), br.BenchmarkReport, strict=False)
    load = (report.scenario or br.Scenario()).load
    performance, seen = report.results.request_performance, report.results.observability or br.Observability()
    if load is None or performance is None or performance.aggregate.requests is None:
        raise NotImportable("has no scenario.load or no numbers of requests: a run needs both.")
    aggregate = performance.aggregate
    resources = next((part.aggregate for part in seen.components or () if part.aggregate), None)
    numbers = _numbers(load.standardized.tool, performance.aggregate.requests, aggregate, resources or {})
    applied = _applied(load.standardized, performance.aggregate.requests.total)
    return ReportFile(path, report, load.standardized, applied, numbers)


def _applied(load: br.LoadStandardized, total: int) -> loads.Load:
    """Return the load. Without a rate and a limit, all requests were sent at once. Raises `NotImportable`."""
    users = load.concurrency if load.concurrency != math.inf else None
    applied = load_of(total if load.rate_qps == math.inf and users is None else users, load.rate_qps)
    if applied is None:
        raise NotImportable("has neither rate_qps nor concurrency: its load is not known.")
    return applied


def _numbers(tool: str, requests: br.Requests, aggregate: br.Aggregate, resources: br.Fields) -> Numbers:
    """Convert the fields of the format. Raises `NotImportable`."""
    total, failed, cut_off = requests.total, requests.failures or 0, requests.incomplete or 0
    ok = total - failed - cut_off
    if ok < 0:
        raise NotImportable(f"counts {total} requests, and more of them as failed or incomplete.")
    lengths = {"input_length": requests.input_length, "output_length": requests.output_length}
    parts = {"requests": lengths, "latency": aggregate.latency, "throughput": aggregate.throughput, None: resources}
    quantities: dict[str, float] = {}
    gauges: dict[str, Level] = {}
    latencies: dict[str, dict[str, float]] = {}
    if requests.failures is not None and total > cut_off:
        quantities[FAILURE_SHARE] = failed / (total - cut_off)
    for slot in br.SLOTS:
        field = (parts[slot.part] or {}).get(slot.field)
        if field is None:
            continue
        name = br.OTHER_MEANINGS.get((tool, slot.field), slot.name)
        values = _values(slot, field)
        if slot.part is None:
            if {"mean", "largest"} <= values.keys():
                gauges[name] = Level(values["mean"], values["largest"])
        elif name in QUANTITY_BY_NAME:
            if "mean" in values:
                quantities[name] = values["mean"]
        elif ok and values:
            latencies.setdefault(name, {}).update(values)
        if name == TPOT and values.get("p50"):
            quantities[USER_THROUGHPUT] = 1 / values["p50"]
    attempted, gaps = (total, ok, failed), (0, 0, 0)  # the number of gaps between chunks is unknown
    return Numbers(
        {"ok": ok} | {outcome: n for outcome, n in (("http_error", failed), (CUT_OFF, cut_off)) if n},
        {
            name: _distribution(latencies[name], *(gaps if name == ICL.name else attempted))
            for name in (*BY_NAME, ICL.name)
            if name in latencies
        },
        {name: Estimate(value, missing=Missing.NOT_OBSERVED) for name, value in quantities.items()},
        gauges,
    )


def _values(slot: br.Slot, field: br.Statistics) -> dict[str, float]:
    """Return the known statistics in our units. Raises `NotImportable`."""
    factor = br.FACTORS[slot.units].get(field.units)
    if factor is None:
        raise NotImportable(f"has its {slot.field} in `{field.units}`, which is no unit of it.")
    values = {ours: getattr(field, theirs) for ours, theirs in br.STATISTICS.items()}
    return {name: value * factor for name, value in values.items() if value is not None and math.isfinite(value)}


def _distribution(values: Mapping[str, float], n: int, ok: int, failed: int) -> Distribution:
    """Return a metric. `ok` of `n` attempted requests have these values; `failed` ones count as +∞."""
    answered = {p: values[p] for p in PERCENTILES if p in values}
    percentiles: dict[str, Estimate] = {}
    for p, value in answered.items():
        if ok == n:
            percentiles[p] = Estimate(value, n=n, missing=Missing.NOT_OBSERVED)
        elif nearest_rank(n, PERCENTILES[p]) > n - failed:
            percentiles[p] = Estimate(math.inf, n=n, missing=Missing.FAILED)
        else:
            percentiles[p] = Estimate(None, n=n, missing=Missing.NOT_OBSERVED)
    return Distribution(
        n=n,
        failed=n - ok,
        mean=values.get("mean"),
        deviation=values.get("deviation"),
        least=values.get("least"),
        largest=values.get("largest"),
        percentiles=percentiles,
        answered=answered if ok < n and answered else None,
    )
