"""A study's report as a value: page, Markdown and files each show all of it.

Each part with each model is one `Report` of the analysis, whose comparison is the only one: what is better, by how
much, and whether it may be claimed is read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginebench.analysis.compare.comparison import Comparison, compare
from enginebench.analysis.compare.engine_runs import EngineRuns, by_load, engine_runs_of
from enginebench.analysis.report.axis import axis_of
from enginebench.analysis.report.charts import Styles
from enginebench.analysis.report.contents import Report, report_of
from enginebench.analysis.report.decision import decide, replicas_of
from enginebench.analysis.report.figure import FigureSource
from enginebench.analysis.report.palette import styles_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_bytes
from enginebench.studies.report.source import PartBench, PartRuns, StudySource


@dataclass(frozen=True, slots=True)
class OwnServer:
    """An engine behind the common server, compared with the same engine behind its own (the baseline)."""

    engine: str
    server: str
    comparison: Comparison


@dataclass(frozen=True)
class MeasuredPart:
    """One part with one model."""

    part: str
    title: str
    model: str
    report: Report
    styles: Styles  # of its engines, as in all of the study
    own: tuple[OwnServer, ...]

    @property
    def runs(self) -> tuple[RunSummary, ...]:
        return self.report.runs

    @property
    def comparison(self) -> Comparison:
        return self.report.comparison

    @property
    def engines(self) -> tuple[EngineRuns, ...]:
        return engine_runs_of(self.runs)

    @property
    def scenario(self) -> str:
        return self.runs[0].scenario

    @property
    def over_loads(self) -> bool:
        """Its stages differ in nothing but their load, and there are several."""
        return by_load(self.runs) and len(self.figures.axis.places) > 1

    @property
    def alone(self) -> bool:
        """One request at a time, at every stage."""
        return all(stage.load == 1 and stage.load_unit == "users" for run in self.runs for stage in run.stages)

    @property
    def figures(self) -> FigureSource:
        axis, loads = axis_of(self.runs), by_load(self.runs)
        return FigureSource(self.engines, self.styles, axis, loads, self.comparison.capacities if loads else ())


@dataclass(frozen=True, slots=True)
class StudyReport:
    """`head` is the part that the decision is of: over several loads where there is one, with the first model."""

    source: StudySource
    measured: tuple[MeasuredPart, ...]
    benches: tuple[PartBench, ...]
    styles: Styles
    head: MeasuredPart | None

    @property
    def over_loads(self) -> list[MeasuredPart]:
        """Of each model the part with the most loads; the decision's first."""
        most: dict[str, MeasuredPart] = {}
        for each in (each for each in self.measured if each.over_loads):
            known = most.get(each.model)
            if known is None or len(each.figures.axis.places) > len(known.figures.axis.places):
                most[each.model] = each
        return sorted(most.values(), key=lambda each: each is not self.head)

    @property
    def runs(self) -> list[RunSummary]:
        """All, those behind engines' own servers too."""
        own = [run for part in self.source.parts for runs in part.own.values() for run in runs]
        return [run for each in self.measured for run in each.runs] + own

    @property
    def machine(self) -> str:
        """`AMD EPYC, 2 cores, 25.3 GB, no GPU`; of several machines all. From the sittings, or else from the runs."""
        hosts = [(sitting.host, sitting.gpus) for sitting in self.source.sittings]
        measured = [run.host for run in self.runs] + [bench.result.host for bench in self.benches]
        named = distinct(_machine(host, gpus) for host, gpus in hosts or [(host, ()) for host in measured])
        return "; ".join(named) or "an unknown machine"


def distinct(values: Iterable[object]) -> list[str]:
    return [str(value) for value in dict.fromkeys(values) if value]


def _machine(host: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> str:
    memory = host.get("memory")
    parts = [str(host.get("cpu") or "an unknown CPU")]
    parts += [f"{host['cores']} cores"] if host.get("cores") else []
    parts += [format_bytes(memory)] if isinstance(memory, int) else []
    names = [str(gpu.get("name")) for gpu in gpus]
    counts = [f"{names.count(name)} × {name}" if names.count(name) > 1 else name for name in distinct(names)]
    return ", ".join([*parts, *(counts or ["no GPU"])])


def study_report(source: StudySource, says: Callable[[str], None] = lambda _: None) -> StudyReport:
    labels = [run.label for part in source.parts for run in part.runs]
    labels += [result.label for bench in source.benches for result in bench.result.results]
    styles = styles_of(labels)
    head = _head(source)
    measured = []
    for part in source.parts:
        says(f"Comparing the engines: {part.title}, {part.model} …")
        measured.append(_measured(part, source, styles, decides=part is head))
    found = next((each for each, part in zip(measured, source.parts, strict=True) if part is head), None)
    return StudyReport(source, tuple(measured), source.benches, styles, found)


def _head(source: StudySource) -> PartRuns | None:
    """Of the first model that was measured: the part with the most loads, else the first."""
    if not source.parts:
        return None
    of_model = [part for part in source.parts if part.model == source.parts[0].model]
    return max(
        of_model, key=lambda part: len({stage.load for run in part.runs for stage in run.stages}) * by_load(part.runs)
    )


def _measured(part: PartRuns, source: StudySource, styles: Styles, decides: bool) -> MeasuredPart:
    labels = {run.label for run in part.runs}
    comparison = compare(part.runs, source.baseline if source.baseline in labels else None)
    planned = decides and source.plan.peak is not None and bool(source.plan.slo)
    replicas, answer = replicas_of(part.runs, source.plan) if planned else ([], "")
    decision = decide(part.runs, comparison, source.plan, replicas, answer)
    own = tuple(
        OwnServer(engine, runs[0].label, compare([*runs, *_of(part.runs, engine)], runs[0].label))
        for engine, runs in part.own.items()
        if engine in labels
    )
    of_part = {label: style for label, style in styles.items() if label in labels}
    return MeasuredPart(part.part, part.title, part.model, report_of(part.runs, comparison, decision), of_part, own)


def _of(runs: tuple[RunSummary, ...], engine: str) -> list[RunSummary]:
    return [run for run in runs if run.label == engine]
