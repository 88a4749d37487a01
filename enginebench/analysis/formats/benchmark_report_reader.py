"""Read llm-d's Benchmark Reports 0.2 and 0.2.1 as runs. A report has statistics of a stage and no requests, so a run is
written as its summary, without records.

Reports of one experiment (`run.eid`), tool and stack are the stages of one run; a stage that is there again begins the
next repeat. Percentiles of other tools are of the requests that ended well, so if some failed they stand as those of
the answered, and the percentiles of all attempted requests are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.formats.benchmark_report import (
    FACTORS,
    OTHER_MEANINGS,
    READ_VERSIONS,
    SLOTS,
    STATISTICS,
    BenchmarkReport,
    Load,
    Metadata,
    Requests,
    Row,
    RunTime,
    Slot,
    Statistics,
)
from enginebench.analysis.formats.results import COMMON, NotImportable, imported_folder, load_of, write_imported
from enginebench.analysis.summary.findings import imported
from enginebench.analysis.summary.run_summary import FlowSeries, RunSummary, write_summary
from enginebench.records.findings.kinds import KIND_BY_NAME, findings_of
from enginebench.records.load import Load as AppliedLoad
from enginebench.records.load import Rate
from enginebench.records.load import load_of as load_of_unit
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
from enginebench.records.run import Imported, RunFacts, RunMeta
from enginebench.records.slo import parse_objectives
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from enginebench.records.telemetry import GAUGES, LOAD_GENERATOR_GAUGES
from enginebench.records.view import (
    EMPTY,
    SEVERITIES,
    Distribution,
    Estimate,
    Finding,
    Judgement,
    Level,
    Missing,
    StageKey,
    StageView,
    keys_of,
)

LACKS = ("single requests", "distributions")
LACKS_OF_OTHERS = ("confidence intervals", "when a request was due", *COMMON)


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report, with its numbers as rows of the frame. `metadata` and `facts` are those that enginebench has written
    into it."""

    path: Path
    report: BenchmarkReport
    load: Load
    applied: AppliedLoad
    rows: tuple[Row, ...]
    metadata: Metadata | None
    facts: RunFacts | None

    @property
    def name(self) -> str:
        """What reports call the run, unless a user says."""
        label = None if self.facts is None else self.facts.label
        return label or (self.model or self.load.standardized.tool or self.path.stem).rpartition("/")[2]

    @property
    def stage(self) -> int:
        return self.load.standardized.stage or 0

    @property
    def time(self) -> RunTime:
        return self.report.run.time or RunTime()

    @property
    def start(self) -> datetime | None:
        start, end, duration = self.time.start, self.time.end, self.time.duration
        start = end - (duration or timedelta()) if start is None and end is not None else start
        return start if start is None or start.tzinfo is not None else start.replace(tzinfo=UTC)

    @property
    def seconds(self) -> float:
        """How long the stage lasted, or 0 if the report does not say."""
        start, end, duration = self.time.start, self.time.end, self.time.duration
        if duration is None and start is not None and end is not None:
            duration = end - start
        if duration is not None:
            return max(duration.total_seconds(), 0.0)
        values = {row.metric: row.value or 0.0 for row in self.rows if row.statistic in {"value", "count"}}
        return values["ok"] / values[ACHIEVED_RATE] if values.get(ACHIEVED_RATE) else 0.0

    @property
    def model(self) -> str | None:
        models = [component.standardized.get("model") for component in self._stack]
        return next((str(model["name"]) for model in models if isinstance(model, dict) and model.get("name")), None)

    @property
    def engine(self) -> dict[str, Any] | None:
        """The first inference engine of the stack, under the names that our servers use."""
        engines = (part.standardized for part in self._stack if part.standardized.get("kind") == "inference_engine")
        engine = next(engines, None)
        if engine is None:
            return None
        accelerator = engine.get("accelerator") or {}
        facts = {"name": engine.get("tool"), "version": engine.get("tool_version"), "device": accelerator.get("model")}
        return {name: value for name, value in facts.items() if value} or None

    @property
    def _stack(self) -> list[Any]:
        scenario = self.report.scenario
        return [] if scenario is None else scenario.stack or []


def is_report(document: dict[str, Any]) -> bool:
    return {"run", "results"} <= document.keys()


def read(document: dict[str, Any], path: Path) -> ReportFile:
    """Raises `NotImportable`, and `ValueError` for what is not of its type."""
    version = str(document.get("version", READ_VERSIONS[-1]))
    if version not in READ_VERSIONS:
        raise NotImportable(f"is a Benchmark Report {version}; those that are read are {' and '.join(READ_VERSIONS)}.")
    report = msgspec.convert(plain_json(document), BenchmarkReport, strict=False)
    load = None if report.scenario is None else report.scenario.load
    if load is None or report.results.request_performance is None:
        raise NotImportable("has no scenario.load or no results.request_performance: a run needs both.")
    seen = report.results.observability
    metadata = None if seen is None or not _has(seen.metadata, "rows") else msgspec.convert(seen.metadata, Metadata)
    config = load.native.config
    facts = msgspec.convert(config, RunFacts) if metadata is not None and _has(config, "run_id") else None
    applied = (
        _applied(report, load) if metadata is None else load_of_unit(metadata.stage.load, metadata.stage.load_unit)
    )
    rows = tuple(_rows_of(report)) if metadata is None else metadata.rows
    return ReportFile(path, report, load, applied, rows, metadata, facts)


def _has(part: object, name: str) -> bool:
    return isinstance(part, dict) and name in part


def runs_of(files: Iterable[ReportFile]) -> list[list[ReportFile]]:
    """Group the reports into runs, each in the order of its stages."""
    runs: dict[tuple[Any, ...], list[ReportFile]] = {}
    for file in files:
        scenario, run = file.report.scenario, file.report.run
        stack = msgspec.json.encode(None if scenario is None else scenario.stack)
        key = (run.eid or run.uid, file.load.standardized.tool, stack)
        repeat = next(n for n in range(len(runs) + 1) if all(f.stage != file.stage for f in runs.get((*key, n), ())))
        runs.setdefault((*key, repeat), []).append(file)
    return [sorted(run, key=lambda file: file.stage) for run in runs.values()]


def write_run(files: Sequence[ReportFile], folder: Path, label: str, repeat: int) -> tuple[Path, RunSummary, Imported]:
    """Write `folder`/<run id>, which has a summary and no records. Raises `NotImportable`, `OSError`."""
    first, own = files[0], files[0].metadata is not None
    tool = first.load.standardized.tool
    plan = tuple(StagePlan(file.applied, Extent(0.0), Extent(file.seconds)) for file in files)
    keys = keys_of(plan)
    started = min((file.start for file in files if file.start is not None), default=None)
    views = tuple(_view(file, keys[index], plan[index], started) for index, file in enumerate(files))
    contents = "".join(file.report.run.uid for file in files) + repr(views)
    place = imported_folder(folder, label, first.path, started, contents)
    facts = first.facts or RunFacts(
        run_id=place.name,
        started_at=(started or datetime.now(UTC)).isoformat(),
        scenario=tool,
        url="",
        model=first.model,
        workload={},
        engine=first.engine,
        host={},
        versions={tool: version} if (version := first.load.standardized.tool_version) else {},
        label=label,
        command=("enginebench", "import", first.path.name),
    )
    facts = replace(facts, run_id=place.name, label=label, repeat=repeat)
    lacks = LACKS if own else (*LACKS, *LACKS_OF_OTHERS, *_missing_metrics(views))
    origin = Imported(tool, first.path.name, lacks)
    findings = [*_findings(files, views, label), *findings_of([(KIND_BY_NAME["imported"], imported(origin))], label)]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    summary = RunSummary(
        **facts.facts,
        folder=place,
        requests=sum(view.requests for view in views),
        objectives=tuple(judgement.objective for judgement in views[0].judgements),
        stages=tuple(replace(view, findings=tuple(f for f in findings if f.stage == view.key)) for view in views),
        flow=FlowSeries(1.0, (), ()),
        findings=tuple(findings),
        statistics_only=True,
    )
    stages = tuple(
        Stage(index, plan[index], start, start, end, end)
        for index, view in enumerate(views)
        for start, end in ((round(view.start * SECOND), round(view.end * SECOND)),)
    )
    write_imported(place, RunMeta(**facts.facts, plan=plan, stages=stages, imported=origin), first.path)
    write_summary(summary)
    return place, summary, origin


def _applied(report: BenchmarkReport, load: Load) -> AppliedLoad:
    """Return the load. Without a rate and a limit, all requests were sent at once. Raises `NotImportable`."""
    rate, users = load.standardized.rate_qps, load.standardized.concurrency
    if rate == math.inf and users in {None, math.inf}:
        users = float(_requests(report).total)
    applied = load_of(None if users == math.inf else users, rate)
    if applied is None:
        raise NotImportable("has neither rate_qps nor concurrency: its load is not known.")
    return applied


def _view(file: ReportFile, key: StageKey, plan: StagePlan, started: datetime | None) -> StageView:
    by_metric: dict[str, dict[str, Row]] = {}
    for row in file.rows:
        by_metric.setdefault(row.metric, {})[row.statistic] = row
    counts = {metric: part["count"] for metric, part in by_metric.items() if "count" in part}
    estimates = {name: _estimate(part["value"]) for name, part in by_metric.items() if "value" in part}
    start = (file.start - started).total_seconds() if file.start is not None and started is not None else 0.0
    view = StageView(
        index=key.index,
        label=key.label,
        load=plan.load.value,
        load_unit=plan.load.unit,
        is_open=isinstance(plan.load, Rate),
        start=start,
        end=start + file.seconds,
        outcomes={name: int(row.value or 0) for name, row in counts.items() if row.unit == "requests"},
        counts={name: int(row.value or 0) for name, row in counts.items() if row.unit != "requests"},
        metrics={name: _distribution(by_metric[name]) for name in (*BY_NAME, ICL.name) if name in by_metric},
        quantities={name: value for name, value in estimates.items() if name in QUANTITY_BY_NAME},
        gauges={
            name: Level(part["mean"].value, part["peak"].value)
            for name, part in by_metric.items()
            if name in {*GAUGES, *LOAD_GENERATOR_GAUGES} and {"mean", "peak"} <= part.keys()
            if part["mean"].value is not None and part["peak"].value is not None
        },
    )
    if file.metadata is None:
        return view
    view = replace(view, **{name: getattr(file.metadata.stage, name) for name in file.metadata.stage.__struct_fields__})
    judgements = (
        Judgement(parse_objectives([part.objective])[0], _estimate(part.share), part.answer, part.unknown)
        for part in file.metadata.judgements
    )
    attained = {tier: _estimate(row) for tier, row in file.metadata.attained.items()}
    return replace(view, judgements=tuple(judgements), attained=attained)


def _rows_of(report: BenchmarkReport) -> Iterator[Row]:
    """Yield rows as the frame has them, from the fields of the format. Raises `NotImportable`."""
    requests = _requests(report)
    total, failed, incomplete = requests.total, requests.failures, requests.incomplete
    ok = total - (failed or 0) - (incomplete or 0)
    if ok < 0:
        raise NotImportable(f"counts {total} requests, and more of them as failed or incomplete.")
    for outcome, count in (("ok", ok), ("http_error", failed), (CUT_OFF, incomplete)):
        if count or outcome == "ok":
            yield Row(outcome, "count", "requests", float(count or 0))
    if failed is not None and total > (incomplete or 0):
        yield _mean_row(FAILURE_SHARE, failed / (total - (incomplete or 0)))
    for slot, name, field in _fields(report):
        factor = FACTORS[slot.units].get(field.units)
        if factor is None:
            raise NotImportable(f"has its {slot.field} in `{field.units}`, which is no unit of it.")
        values = {
            ours: value * factor
            for ours, theirs in STATISTICS.items()
            if (value := getattr(field, theirs)) is not None and math.isfinite(value)
        }
        if slot.part is None:
            if "mean" in values and "largest" in values:
                yield Row(name, "mean", value=values["mean"])
                yield Row(name, "peak", value=values["largest"])
        elif name in QUANTITY_BY_NAME:
            if "mean" in values:
                yield _mean_row(name, values["mean"])
        elif ok:
            n = 0 if name == ICL.name else total  # of the gaps the number is not known
            yield from _metric_rows(name, values, n, min(ok, n), failed or 0)
        if name == TPOT and values.get("p50"):
            yield _mean_row(USER_THROUGHPUT, 1 / values["p50"])


def _metric_rows(name: str, values: Mapping[str, float], n: int, ok: int, failed: int) -> Iterator[Row]:
    """`ok` of `n` attempted requests ended well, and have these values; `failed` ones count as +∞."""
    for statistic, value in values.items():
        q = PERCENTILES.get(statistic)
        if q is None:
            yield Row(name, statistic, value=value, n=ok)
        elif ok == n:
            yield Row(name, statistic, value=value, n=n, missing=Missing.NOT_OBSERVED)
        else:
            among_failed = nearest_rank(n, q) > n - failed
            yield Row(name, statistic, n=n, missing=Missing.FAILED if among_failed else Missing.NOT_OBSERVED)
            yield Row(name, f"{statistic} of the answered", value=value, n=ok)


def _mean_row(name: str, value: float) -> Row:
    return Row(name, "value", value=value, missing=Missing.NOT_OBSERVED)


def _requests(report: BenchmarkReport) -> Requests:
    """Raises `NotImportable`."""
    performance = report.results.request_performance
    aggregate = None if performance is None else performance.aggregate
    if aggregate is None or aggregate.requests is None:
        raise NotImportable("does not say how many requests there were.")
    return aggregate.requests


def _fields(report: BenchmarkReport) -> Iterator[tuple[Slot, str, Statistics]]:
    """Yield the slots that the report fills, what they are by our names, and their statistics. The resources are those
    of the first component."""
    load = None if report.scenario is None else report.scenario.load
    tool = "" if load is None else load.standardized.tool
    performance, seen = report.results.request_performance, report.results.observability
    components = [part.aggregate for part in (seen.components if seen is not None else None) or () if part.aggregate]
    for slot in SLOTS:
        if slot.part is None:
            part: Any = components[0] if components else None
        else:
            part = None if performance is None else getattr(performance.aggregate, slot.part)
        field = getattr(part, slot.field, None)
        if field is not None:
            yield slot, OTHER_MEANINGS.get((tool, slot.field), slot.name), field


def _distribution(part: Mapping[str, Row]) -> Distribution:
    missing = Row("", "")
    mean, deviation, least, largest = (part.get(name, missing) for name in ("mean", "deviation", "least", "largest"))
    n = max(row.n for row in part.values())
    answered = {p: part.get(f"{p} of the answered", missing).value for p in PERCENTILES}
    return Distribution(
        n=n,
        failed=n - mean.n,
        mean=mean.value,
        deviation=deviation.value,
        least=least.value,
        largest=largest.value,
        percentiles={p: _estimate(part[p]) for p in PERCENTILES if p in part},
        answered={p: value for p, value in answered.items() if value is not None} or None,
    )


def _estimate(row: Row) -> Estimate:
    value = math.inf if row.value is None and row.missing is Missing.FAILED else row.value
    high = math.inf if row.high is None and row.low is not None else row.high
    return Estimate(value, row.low, high, row.n, row.missing, row.effective)


def _findings(files: Sequence[ReportFile], views: Sequence[StageView], label: str) -> Iterator[Finding]:
    """Yield the warnings that enginebench has written, those of the whole run once."""
    seen: set[Any] = set()
    for file, view in zip(files, views, strict=True):
        for warned in file.metadata.warnings if file.metadata is not None else ():
            stage = None if warned.of_run else view.key
            finding = Finding(warned.kind, warned.severity, warned.evidence, warned.remedy, stage, label)
            if warned.kind in KIND_BY_NAME and finding not in seen:
                seen.add(finding)
                yield finding


def _missing_metrics(views: Sequence[StageView]) -> list[str]:
    names = [slot.name for slot in SLOTS if slot.part == "latency"]
    titles = {name: (ICL if name == ICL.name else BY_NAME[name]).title for name in names}
    return [titles[name] for name in names if all(view.metrics.get(name, EMPTY) == EMPTY for view in views)]
