"""Write llm-d's Benchmark Report: a YAML file for each stage of each run, with the numbers of the frame."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.formats import benchmark_report as br
from enginebench.analysis.frame import Frame, stage_rows
from enginebench.analysis.summary.as_document import as_document
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.write.export import plain
from enginebench.records.files import write_inside
from enginebench.records.load import Users
from enginebench.records.metrics import OUTPUT_TOKENS, PROMPT_TOKENS
from enginebench.records.run import instant
from enginebench.records.view import StageView

FILE = "benchmark_report_v0.2.1,_stage_{}.yaml"  # llm-d-benchmark's scripts look for benchmark_report_v0.2*.yaml


def write_reports(frame: Frame) -> list[Path]:
    """Write the reports of each run into its folder. Raises `OSError`."""
    paths = []
    for run in frame.runs:
        for stage in run.stages:
            name = FILE.format(stage.index)
            document = msgspec.to_builtins(report_of(frame, run, stage))  # in the schema, instants are texts
            write_inside(run.folder, name, msgspec.yaml.encode(document))
            paths.append(run.folder / name)
    return paths


def report_of(frame: Frame, run: RunSummary, stage: StageView) -> br.BenchmarkReport:
    rows = tuple(stage_rows(stage))
    values = {(row["metric"], row["statistic"]): row["value"] for row in rows}
    start, seconds = instant(run.started_at) + timedelta(seconds=stage.start), timedelta(seconds=stage.seconds)
    resources, slo = _statistics(values, None), frame.verdict(run.label, stage.label)
    objectives = [] if slo is None else [str(verdict.objective) for verdict in slo.objectives]
    return br.BenchmarkReport(
        version=br.VERSION,
        run=br.Run(
            uid=f"{run.run_id}-stage-{stage.index}",
            eid=run.run_id,
            time=br.RunTime(start, start + seconds, seconds),
            description=run.label,
        ),
        scenario=br.Scenario([_component(run)], _load(run, stage)),
        results=br.Results(
            br.RequestPerformance(
                br.Aggregate(
                    br.Requests(stage.requests, stage.failed, stage.cut_off, **_statistics(values, "requests")),
                    _statistics(values, "latency"),
                    _statistics(values, "throughput"),
                )
            ),
            br.Observability(
                [br.ComponentObservability(run.label, resources)] if resources else None,
                _without_none(
                    {
                        "rows": list(rows),
                        "verdicts": [] if slo is None else [{"objectives": objectives} | plain(slo)],
                        "warnings": plain([finding for finding in run.findings if finding.stage in {None, stage.key}]),
                    }
                ),
            ),
        ),
    )


def _statistics(values: Mapping[tuple[str, str], float | None], part: str | None) -> dict[str, br.Statistics]:
    """Return the statistics of a part of the report, except metrics without a mean, which the schema requires.

    Percentiles, like the mean, cover only successful requests, as those of other tools do.
    """
    statistics = {}
    for slot in (slot for slot in br.SLOTS if slot.part == part):
        mean = values.get((slot.name, "value"), values.get((slot.name, "mean")))
        own = {
            theirs: values.get((slot.name, f"{ours} of the answered"), values.get((slot.name, ours)))
            for ours, theirs in br.STATISTICS.items()
        }
        if part is None:
            own["max"] = values.get((slot.name, "peak"))
        if mean is not None:
            statistics[slot.field] = br.Statistics(units=slot.units, **own | {"mean": mean})
    return statistics


def _load(run: RunSummary, stage: StageView) -> br.Load:
    users = stage.load_unit == Users.unit
    tool = run.scenario if run.command[:2] == (br.TOOL, "import") else br.TOOL
    return br.Load(
        {"description": f"{run.scenario}: {stage.label}"},
        br.LoadStandardized(
            tool=tool,
            tool_version=run.versions.get(tool, ""),
            source="sampled" if run.workload.get("dataset") or run.workload.get("trace") else "unknown",
            input_seq_len=_length(stage.value(PROMPT_TOKENS)) or br.Length("other", 0.0),  # as llm-d's converters do
            output_seq_len=_length(stage.value(OUTPUT_TOKENS)),
            parallelism=max(run.workers, 1),
            stage=stage.index,
            rate_qps=None if users or not stage.load else stage.load,
            concurrency=int(stage.load) if users and stage.load >= 1 else None,
        ),
        br.Native(_without_none(as_document(run.facts))),
    )


def _length(tokens: float | None) -> br.Length | None:
    return None if tokens is None else br.Length("other", tokens)


def _component(run: RunSummary) -> br.Component:
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
    cfg_id = sha256(msgspec.json.encode(config, order="sorted")).hexdigest()[:32]
    return br.Component({"label": run.label, "cfg_id": cfg_id}, standardized, br.Native(config))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value
