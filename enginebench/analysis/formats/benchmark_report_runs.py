"""Write llm-d's Benchmark Reports as runs. They have statistics and no requests, so a run is its summary.

Reports of one experiment (`run.eid`), tool and stack are the stages of one run; another report of a stage belongs to
the next repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.formats import benchmark_report as br
from enginebench.analysis.formats.benchmark_report_reader import ReportFile
from enginebench.analysis.formats.results import COMMON, imported_folder, write_imported
from enginebench.analysis.summary.findings import imported
from enginebench.analysis.summary.run_summary import FlowSeries, RunSummary, write_summary
from enginebench.records.findings.kinds import KIND_BY_NAME, findings_of
from enginebench.records.load import Rate
from enginebench.records.metrics import BY_NAME, ICL
from enginebench.records.run import Imported, RunFacts, RunMeta
from enginebench.records.stage import Extent, StagePlan
from enginebench.records.view import StageKey, StageView, keys_of

LACKS = ("single requests", "distributions", "confidence intervals", "when a request was due", *COMMON)


def runs_of(files: Iterable[ReportFile]) -> list[list[ReportFile]]:
    """Group the reports into runs, each in the order of its stages."""
    runs: dict[tuple[Any, ...], list[ReportFile]] = {}
    for file in files:
        key = (file.report.run.eid or file.report.run.uid, file.standardized.tool, msgspec.json.encode(file.stack))
        repeat = 0
        while any(earlier.stage == file.stage for earlier in runs.get((*key, repeat), ())):
            repeat += 1
        runs.setdefault((*key, repeat), []).append(file)
    return [sorted(run, key=lambda file: file.stage) for run in runs.values()]


def write_run(files: Sequence[ReportFile], folder: Path, label: str, repeat: int) -> tuple[Path, RunSummary, Imported]:
    """Write `folder`/<run id>. Raises `NotImportable`, `OSError`."""
    first, tool = files[0], files[0].standardized.tool
    plan = tuple(StagePlan(file.load, Extent(0.0), Extent(file.seconds)) for file in files)
    started = min((file.start for file in files if file.start is not None), default=None)
    views = tuple(_view(file, key, started) for file, key in zip(files, keys_of(plan).values(), strict=True))
    place = imported_folder(
        folder, label, first.path, started, repr([file.report.run.uid for file in files]) + repr(views)
    )
    facts = RunFacts(
        run_id=place.name,
        started_at=(started or datetime.now(UTC)).isoformat(),
        scenario=tool,
        url="",
        model=first.model,
        workload={},
        engine=first.engine,
        host={},
        versions={tool: first.standardized.tool_version} if first.standardized.tool_version else {},
        label=label,
        command=("enginebench", "import", first.path.name),
        repeat=repeat,
    )
    origin = Imported(tool, first.path.name, (*LACKS, *_missing(views)))
    summary = RunSummary(
        **facts.facts,
        folder=place,
        requests=sum(view.requests for view in views),
        objectives=(),
        stages=views,
        flow=FlowSeries(1.0, (), ()),
        findings=findings_of([(KIND_BY_NAME["imported"], imported(origin))], label),
        statistics_only=True,
    )
    write_imported(place, RunMeta(**facts.facts, plan=plan, imported=origin), first.path)
    write_summary(summary)
    return place, summary, origin


def _view(file: ReportFile, key: StageKey, started: datetime | None) -> StageView:
    start = (file.start - started).total_seconds() if file.start is not None and started is not None else 0.0
    return StageView(
        index=key.index,
        label=key.label,
        load=file.load.value,
        load_unit=file.load.unit,
        is_open=isinstance(file.load, Rate),
        start=start,
        end=start + file.seconds,
        outcomes=file.numbers.outcomes,
        metrics=file.numbers.metrics,
        quantities=file.numbers.quantities,
        gauges=file.numbers.gauges,
    )


def _missing(views: Sequence[StageView]) -> list[str]:
    """Return the titles of the latencies that no stage has."""
    metrics = [BY_NAME.get(slot.name, ICL) for slot in br.SLOTS if slot.part == "latency"]
    return [metric.title for metric in metrics if not any(metric.name in view.metrics for view in views)]
