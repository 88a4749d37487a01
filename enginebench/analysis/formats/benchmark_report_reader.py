"""Read llm-d's Benchmark Reports 0.2 and 0.2.1: the load of a stage, and its numbers as rows of the frame.

Other tools compute percentiles over the successful requests. If some failed, these are kept as percentiles of the
answered requests, and percentiles of all attempted requests are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
from enginebench.records.view import Missing


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report of one stage."""

    path: Path
    report: br.BenchmarkReport
    standardized: br.LoadStandardized
    load: loads.Load
    rows: tuple[br.Row, ...]

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
        values = {row.metric: row.value or 0.0 for row in self.rows if row.statistic in {"value", "count"}}
        return values["ok"] / values[ACHIEVED_RATE] if values.get(ACHIEVED_RATE) else 0.0

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
    rows = tuple(_rows_of(load.standardized.tool, performance.aggregate.requests, aggregate, resources or {}))
    applied = _applied(load.standardized, performance.aggregate.requests.total)
    return ReportFile(path, report, load.standardized, applied, rows)


def _applied(load: br.LoadStandardized, total: int) -> loads.Load:
    """Return the load. Without a rate and a limit, all requests were sent at once. Raises `NotImportable`."""
    users = load.concurrency if load.concurrency != math.inf else None
    applied = load_of(total if load.rate_qps == math.inf and users is None else users, load.rate_qps)
    if applied is None:
        raise NotImportable("has neither rate_qps nor concurrency: its load is not known.")
    return applied


def _rows_of(tool: str, requests: br.Requests, aggregate: br.Aggregate, resources: br.Fields) -> Iterator[br.Row]:
    """Yield rows as the frame has them, from the fields of the format. Raises `NotImportable`."""
    total, failed, cut_off = requests.total, requests.failures, requests.incomplete or 0
    ok = total - (failed or 0) - cut_off
    if ok < 0:
        raise NotImportable(f"counts {total} requests, and more of them as failed or incomplete.")
    for outcome, count in (("ok", ok), ("http_error", failed or 0), (CUT_OFF, cut_off)):
        if count or outcome == "ok":
            yield br.Row(outcome, "count", float(count))
    if failed is not None and total > cut_off:
        yield _quantity_row(FAILURE_SHARE, failed / (total - cut_off))
    lengths = {"input_length": requests.input_length, "output_length": requests.output_length}
    parts = {"requests": lengths, "latency": aggregate.latency, "throughput": aggregate.throughput, None: resources}
    for slot in br.SLOTS:
        field = (parts[slot.part] or {}).get(slot.field)
        if field is None:
            continue
        name = br.OTHER_MEANINGS.get((tool, slot.field), slot.name)
        values = _values(slot, field)
        if slot.part is None:
            if {"mean", "largest"} <= values.keys():
                yield br.Row(name, "mean", value=values["mean"])
                yield br.Row(name, "peak", value=values["largest"])
        elif name in QUANTITY_BY_NAME:
            if "mean" in values:
                yield _quantity_row(name, values["mean"])
        elif ok:
            n = 0 if name == ICL.name else total  # the number of gaps is unknown
            yield from _metric_rows(name, values, n, min(ok, n), failed or 0)
        if name == TPOT and values.get("p50"):
            yield _quantity_row(USER_THROUGHPUT, 1 / values["p50"])


def _values(slot: br.Slot, field: br.Statistics) -> dict[str, float]:
    """Return the known statistics in our units. Raises `NotImportable`."""
    factor = br.FACTORS[slot.units].get(field.units)
    if factor is None:
        raise NotImportable(f"has its {slot.field} in `{field.units}`, which is no unit of it.")
    values = {ours: getattr(field, theirs) for ours, theirs in br.STATISTICS.items()}
    return {name: value * factor for name, value in values.items() if value is not None and math.isfinite(value)}


def _metric_rows(name: str, values: Mapping[str, float], n: int, ok: int, failed: int) -> Iterator[br.Row]:
    """Yield the rows of a metric. `ok` of `n` attempted requests have these values; `failed` ones count as +∞."""
    for statistic, value in values.items():
        q = PERCENTILES.get(statistic)
        if q is None:
            yield br.Row(name, statistic, value=value, n=ok)
        elif ok == n:
            yield br.Row(name, statistic, value=value, n=n, missing=Missing.NOT_OBSERVED)
        else:
            among_failed = nearest_rank(n, q) > n - failed
            yield br.Row(name, statistic, n=n, missing=Missing.FAILED if among_failed else Missing.NOT_OBSERVED)
            yield br.Row(name, f"{statistic} of the answered", value=value, n=ok)


def _quantity_row(name: str, value: float) -> br.Row:
    return br.Row(name, "value", value=value, missing=Missing.NOT_OBSERVED)
