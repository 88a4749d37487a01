"""Write llm-d's Benchmark Report: a YAML file for each stage of each run, with the numbers of the frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.formats.benchmark_report import (
    SLOTS,
    STATISTICS,
    TOOL,
    VERSION,
    Aggregate,
    BenchmarkReport,
    Component,
    ComponentMetadata,
    ComponentObservability,
    Judged,
    Latency,
    Length,
    Load,
    LoadMetadata,
    LoadStandardized,
    Metadata,
    Native,
    Observability,
    RequestPerformance,
    Requests,
    Resources,
    Results,
    Row,
    Run,
    RunTime,
    Scenario,
    StageFacts,
    Statistics,
    Throughput,
    Verdict,
    Warned,
)
from enginebench.analysis.frame import Frame, cells, stage_rows
from enginebench.analysis.summary.as_document import as_document
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.files import write_inside
from enginebench.records.load import Users
from enginebench.records.metrics import OUTPUT_TOKENS, PROMPT_TOKENS
from enginebench.records.run import instant
from enginebench.records.view import Estimate, StageView

FILE = "benchmark_report_v0.2.1,_stage_{}.yaml"  # llm-d-benchmark's scripts look for benchmark_report_v0.2*.yaml


def write_reports(frame: Frame) -> list[Path]:
    """Write the reports of each run into its folder. Raises `OSError`."""
    paths = []
    for run in frame.runs:
        for stage in run.stages:
            name = FILE.format(stage.index)
            document = msgspec.to_builtins(
                report_of(frame, run, stage)
            )  # with instants as texts, as the schema has them
            write_inside(run.folder, name, msgspec.yaml.encode(document))
            paths.append(run.folder / name)
    return paths


def report_of(frame: Frame, run: RunSummary, stage: StageView) -> BenchmarkReport:
    rows = tuple(stage_rows(stage))
    values = {(row["metric"], row["statistic"]): row["value"] for row in rows}
    start, seconds = instant(run.started_at) + timedelta(seconds=stage.start), timedelta(seconds=stage.seconds)
    component = _component(run)
    resources = _statistics(values, None)
    return BenchmarkReport(
        version=VERSION,
        run=Run(
            uid=f"{run.run_id}-stage-{stage.index}",
            eid=run.run_id,
            time=RunTime(start, start + seconds, seconds),
            description=run.label,
        ),
        scenario=Scenario([component], _load(run, stage)),
        results=Results(
            RequestPerformance(
                Aggregate(
                    Requests(stage.requests, stage.failed, stage.cut_off, **_statistics(values, "requests")),
                    Latency(**_statistics(values, "latency")),
                    Throughput(**_statistics(values, "throughput")),
                )
            ),
            Observability(
                [ComponentObservability(component.metadata.label, Resources(**resources))] if resources else None,
                Metadata(
                    stage=StageFacts(**{name: getattr(stage, name) for name in StageFacts.__struct_fields__}),
                    rows=tuple(msgspec.convert(row, Row) for row in rows),
                    judgements=tuple(
                        Judged(str(part.objective), _share(part.share), part.answer, part.unknown)
                        for part in stage.judgements
                    ),
                    attained={tier: _share(share) for tier, share in stage.attained.items()},
                    verdicts=tuple(_verdicts(frame, run.label, stage.label)),
                    warnings=tuple(_warnings(run, stage)),
                ),
            ),
        ),
    )


def _share(estimate: Estimate) -> Row:
    return msgspec.convert(cells("slo", "share", "share", estimate) | {"effective": estimate.effective}, Row)


def _statistics(values: Mapping[tuple[str, str], float | None], part: str | None) -> dict[str, Statistics]:
    """Return the statistics of a part of the report. Those without a mean are left out, because the schema wants one.

    As for the mean, percentiles are of the requests that ended well: other tools compute all of them over these.
    """
    statistics = {}
    for slot in (slot for slot in SLOTS if slot.part == part):
        mean = values.get((slot.name, "value"), values.get((slot.name, "mean")))
        own = {
            theirs: values.get((slot.name, f"{ours} of the answered"), values.get((slot.name, ours)))
            for ours, theirs in STATISTICS.items()
        }
        if part is None:
            own["max"] = values.get((slot.name, "peak"))
        if mean is not None:
            statistics[slot.field] = Statistics(units=slot.units, **own | {"mean": mean})
    return statistics


def _load(run: RunSummary, stage: StageView) -> Load:
    users = stage.load_unit == Users.unit
    lengths = {
        name: None if value is None else Length("other", value)
        for name in (PROMPT_TOKENS, OUTPUT_TOKENS)
        for value in (stage.value(name),)
    }
    tool = run.scenario if run.command[:2] == (TOOL, "import") else TOOL
    return Load(
        LoadMetadata(description=f"{run.scenario}: {stage.label}"),
        LoadStandardized(
            tool=tool,
            tool_version=run.versions.get(tool, ""),
            source="sampled" if run.workload.get("dataset") or run.workload.get("trace") else "unknown",
            input_seq_len=lengths[PROMPT_TOKENS] or Length("other", 0.0),  # as llm-d's converters write an unknown one
            output_seq_len=lengths[OUTPUT_TOKENS],
            parallelism=max(run.workers, 1),
            stage=stage.index,
            rate_qps=None if users or not stage.load else stage.load,
            concurrency=int(stage.load) if users and stage.load >= 1 else None,
        ),
        Native(_without_none(as_document(run.facts))),
    )


def _component(run: RunSummary) -> Component:
    engine = run.engine or {}
    standardized: dict[str, Any] = {
        "kind": "generic",
        "tool": str(engine.get("name") or run.label),
        "tool_version": str(engine.get("version") or ""),
        "model": {"name": run.model or ""},
    }
    if engine.get("device"):
        replicas = int(engine.get("replicas") or 1)
        gpus = [stage.gauges["gpus"].peak for stage in run.stages if "gpus" in stage.gauges]
        accelerator = {"model": str(engine["device"]), "count": int(max(gpus, default=0.0)), "parallelism": {}}
        standardized |= {
            "kind": "inference_engine", "role": "replica", "replicas": replicas, "accelerator": accelerator
        }  # fmt: skip
    config = _without_none(as_document(engine))
    return Component(
        ComponentMetadata(run.label, sha256(msgspec.json.encode(config, order="sorted")).hexdigest()[:32]),
        standardized,
        Native(config),
    )


def _verdicts(frame: Frame, label: str, stage: str) -> Iterator[Verdict]:
    """Yield the verdict within each tier, or within the first one where loads are no axis."""
    of_tiers = [capacities[label] for capacities in frame.tiers.values() if label in capacities]
    slos = [verdict.slo for capacity in of_tiers for verdict in capacity.verdicts if stage in verdict.stages]
    for slo in slos or filter(None, [frame.verdict(label, stage)]):
        objectives = tuple(str(verdict.objective) for verdict in slo.objectives)
        yield Verdict(objectives, slo.status.value, slo.confirmed, slo.share, slo.n, slo.runs)


def _warnings(run: RunSummary, stage: StageView) -> Iterator[Warned]:
    for finding in run.findings:
        if finding.stage in {None, stage.key}:
            of_run = finding.stage is None
            yield Warned(finding.kind, finding.severity, finding.evidence, finding.remedy, of_run)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value
