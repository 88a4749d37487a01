"""The frame: all runs of one question, ranked and judged, and the tidy table of every number that is shown.

Engines are ranked and judged once, here; sections and answers only select. The table has one row for each number:
`load` is in `load_unit`, `value`, `low` and `high` in `unit`; durations are in seconds. Rows without a `repeat` cover
all repeats of an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from enginebench.analysis.data.graded import Graded, graded_by_load
from enginebench.analysis.data.requests_table import stored_table
from enginebench.analysis.engine_runs import EngineRuns, engine_runs_of, loads_make_axis, since_due, stages_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.tested import Tested, tested
from enginebench.analysis.verdict import comparison
from enginebench.analysis.verdict.capacity import Capacity, capacities_of
from enginebench.analysis.verdict.comparison import Comparison
from enginebench.analysis.verdict.differences import Difference, differences
from enginebench.analysis.verdict.gate import Check
from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status, judge, status_of_class
from enginebench.records.metrics import (
    BY_NAME,
    CORRECT,
    ICL,
    OUTPUT_RATE,
    PERCENTILES,
    QUANTITY_BY_NAME,
    STARTS,
    Column,
    columns,
)
from enginebench.records.slo import Objective
from enginebench.records.telemetry import GAUGES
from enginebench.records.view import ClassView, Distribution, Estimate, Finding, StageView
from enginebench.settings.schema import UserMistake, choose_from

SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("study", "part", "model", "engine"), pl.String()),
        "repeat": pl.Int64(),
        "stage": pl.String(),
        "load": pl.Float64(),
        **dict.fromkeys(("load_unit", "metric", "statistic", "unit"), pl.String()),
        **dict.fromkeys(("value", "low", "high"), pl.Float64()),
        "n": pl.Int64(),
        "missing": pl.String(),
    }
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Frame:
    """`engines` are the candidates, the best first. `stage` is the load of the comparison: the highest at which every
    engine was measured and at least one meets the SLO. `capacities` are within all objectives, by engine. `speed` ranks
    the engines of equal capacity."""

    engines: tuple[EngineRuns, ...]
    objectives: tuple[Objective, ...]
    capacities: Mapping[str, Capacity]
    stage: str | None
    baseline: str | None
    comparisons: tuple[Comparison, ...]
    differences: tuple[Difference, ...]
    speed: Column = OUTPUT_RATE
    study: str = ""
    part: str = ""

    @property
    def runs(self) -> tuple[RunSummary, ...]:
        return tuple(run for engine in self.engines for run in engine.runs)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(engine.label for engine in self.engines)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of all runs, under the labels that the runs have here."""
        return tuple(replace(finding, label=run.label) for run in self.runs for finding in run.findings)

    @cached_property
    def tested(self) -> Tested:
        return tested(self.engines)

    @cached_property
    def since_due(self) -> bool:
        """Return whether latencies count from the instant a request was due: in an open loop, or if that makes a
        difference."""
        return since_due(self.runs)

    @property
    def one_token(self) -> bool:
        """Return whether no answer has a second token, so that only TTFT can be compared."""
        return self.speed != OUTPUT_RATE

    @cached_property
    def loads_make_axis(self) -> bool:
        return loads_make_axis(self.runs)

    @cached_property
    def stages(self) -> tuple[StageView, ...]:
        """Return one stage of each label, the lightest load first."""
        return tuple(stages_of(self.runs))

    @cached_property
    def graded(self) -> dict[str, tuple[Graded, ...]]:
        """Return the grades of each engine at each load, if questions had exact answers."""
        by_engine = {}
        for engine in self.engines:
            if any(stage.estimate(CORRECT).n for stage in engine.stages):
                runs = [(stored_table(run.folder), run.stages) for run in engine.runs]
                by_engine[engine.label] = graded_by_load(runs)
        return by_engine

    def engine(self, name: str) -> EngineRuns:
        return next(engine for engine in self.engines if engine.label == name)

    def verdict(self, name: str, stage: str | None) -> SloVerdict | None:
        """Return the verdict at a stage; `None` if there is no SLO, or the engine was not measured at the stage."""
        if stage is None or not self.objectives:
            return None
        capacity = self.capacities.get(name)
        if capacity is not None:
            return next((verdict.slo for verdict in capacity.verdicts if stage in verdict.stages), None)
        stages, objectives = self.engine(name).at(stage), self.objectives
        return judge(stages, objectives) if stages and all(s.judgement(o) for s in stages for o in objectives) else None

    def classes(self, name: str, stage: str) -> dict[str, list[ClassView]]:
        """Return the classes of an engine's requests at a stage, in each of its repeats."""
        views: dict[str, list[ClassView]] = {}
        for view in (view for run in self.engine(name).at(stage) for view in run.classes):
            views.setdefault(view.name, []).append(view)
        return views

    @property
    def statuses(self) -> set[Status]:
        pairs = [(engine.label, stage.label) for engine in self.engines for stage in self.stages]
        of_classes = {status_of_class(views) for pair in pairs for views in self.classes(*pair).values()}
        verdicts = [self.verdict(*pair) for pair in pairs]
        known = {verdict.status for verdict in verdicts if verdict is not None}
        return known | {status for status in of_classes if status is not None}

    def compared(self, name: str, over: str | None) -> Comparison | None:
        """Return the comparison of `speed` at the common stage."""
        pair = (name, over, self.speed)
        return next((c for c in self.comparisons if (c.engine, c.over, c.column) == pair), None)

    @cached_property
    def table(self) -> pl.DataFrame:
        return pl.DataFrame(list(self._rows()), schema=SCHEMA)

    def _rows(self) -> Iterator[Row]:
        for run in self.runs:
            place = self._place(run.label, run.model) | {"repeat": run.repeat}
            for stage in run.stages:
                at = place | {"stage": stage.label, "load": stage.load, "load_unit": stage.load_unit}
                yield from (at | row for row in stage_rows(stage))
            yield from (place | _finding_row(finding) for finding in run.findings)
        for engine in self.engines:
            yield from self._engine_rows(engine)
        for compared in self.comparisons:
            place = self._place(compared.engine, None) | {"stage": compared.stage}
            kind = "ratio" if compared.column.relative else "difference"
            statistic = f"{compared.column.statistic} {kind} to {compared.over}"
            yield place | cells(compared.column.name, statistic, "", compared.ratio)
            if compared.p is not None:
                yield place | cells(compared.column.name, f"{statistic}: p", "", Estimate(compared.p))
            if compared.significant is not None:
                significant = Estimate(float(compared.significant))
                yield place | cells(compared.column.name, f"{statistic}: significant", "", significant)

    def _engine_rows(self, engine: EngineRuns) -> Iterator[Row]:
        """Yield the numbers over all repeats of an engine."""
        place = self._place(engine.label, engine.runs[0].model)
        shown = dict.fromkeys(
            column for surface in ("table", "compared", "chart") for column in columns(surface, self.since_due)
        )
        shown |= dict.fromkeys(column for objective in self.objectives if (column := column_of(objective)) is not None)
        for stage in self.stages:
            if engine.at(stage.label):
                at = place | {"stage": stage.label, "load": stage.load, "load_unit": stage.load_unit}
                for column in shown:
                    estimate = engine.column(stage.label, column)
                    yield at | cells(column.name, column.statistic, column.unit, estimate)
        for quantity in STARTS:
            start = engine.start(quantity.name)
            if start.value is not None:
                yield place | cells(quantity.name, "value", quantity.unit, start)
        for load in self.graded.get(engine.label, ()):
            for statistic in ("alone", "lost", "gained"):
                counted = Estimate(getattr(load, statistic), n=load.pairs)
                yield place | {"stage": load.stage} | cells(CORRECT, f"{statistic}: count", "", counted)
            yield place | {"stage": load.stage} | cells(CORRECT, "lost: p", "", Estimate(load.p, n=load.pairs))
        capacity = self.capacities.get(engine.label)
        if capacity is not None:
            yield from (place | row for row in _capacity_rows(capacity))

    def _place(self, engine: str, model: str | None) -> Row:
        return {"study": self.study or None, "part": self.part or None, "model": model, "engine": engine}


def column_of(objective: Objective) -> Column | None:
    """Return the percentile that an objective limits; `None` if it is not computed, or if a fault is limited."""
    if objective.judged is None or objective.statistic not in PERCENTILES:
        return None
    return Column(objective.judged, objective.statistic)


def frame_of(
    summaries: Sequence[RunSummary],
    baseline: str | None = None,
    study: str = "",
    part: str = "",
    stage: str | None = None,
) -> Frame:
    """Rank, judge and compare runs of one question. `stage` names the load of the comparison, if not the common one.

    Raises `UserMistake` if runs of one label were judged by different objectives.
    """
    engines = engine_runs_of(summaries)
    objectives = engines[0].runs[0].objectives
    capacities = {capacity.engine: capacity for capacity in capacities_of(engines)}
    common = stage or comparison.common_stage(engines, capacities)
    due = since_due(summaries)
    speed = comparison.speed_of(engines, due)
    ranked = comparison.ranking(engines, common, capacities, speed)
    base = comparison.baseline_of(ranked, baseline)
    several = len(ranked) > 1 and common is not None
    return Frame(
        engines=ranked,
        objectives=objectives,
        capacities=capacities,
        stage=common,
        baseline=base,
        comparisons=comparison.compare(ranked, common, base, due) if several and common else (),
        differences=differences(ranked),
        speed=speed,
        study=study,
        part=part,
    )


def comparison_frame(summaries: Sequence[RunSummary], baseline: str | None = None, stage: str | None = None) -> Frame:
    """Raise `UserMistake` if no run has this label or stage."""
    labels = {summary.label for summary in summaries}
    stages = {view.label for summary in summaries for view in summary.stages}
    for name, choices in ((baseline, labels), (stage, stages)):
        if name is not None and name not in choices:
            raise UserMistake(f"there are no runs of `{name}`; {choose_from(name, sorted(choices))}")
    return frame_of(summaries, baseline, stage=stage)


def _capacity_rows(capacity: Capacity) -> Iterator[Row]:
    unit = {"load_unit": capacity.unit}
    for name, load in (("capacity", capacity.load), ("capacity beyond", capacity.beyond)):
        yield unit | cells(name, "value", capacity.unit, Estimate(load))
    yield unit | cells("capacity", "confirmed", "", Estimate(float(capacity.confirmed)))
    for verdict in capacity.verdicts:
        at = unit | {"stage": verdict.stage, "load": verdict.load}
        slo = verdict.slo
        met = None if slo.status is Status.NOT_MEASURED else float(slo.status is Status.MET)
        yield at | cells("slo", "met", "", Estimate(met, n=slo.n, missing=slo.missing))
        yield at | cells("slo", "share", "share", Estimate(slo.share, n=slo.n))
        yield at | cells("slo", "confirmed", "", Estimate(float(slo.confirmed)))
        yield at | cells("slo", "agreeing runs", "", Estimate(float(slo.agreeing), n=slo.runs))
        for objective in slo.objectives:
            share = objective.judgement.share
            yield at | cells(f"slo {objective.objective}", "share", "share", share)


def cells(metric: str, statistic: str, unit: str, estimate: Estimate) -> Row:
    finite = estimate.finite
    numbers = {"value": finite.value, "low": finite.low, "high": finite.high, "n": finite.n}
    missing = None if estimate.missing is None else estimate.missing.value
    return {"metric": metric, "statistic": statistic, "unit": unit, "missing": missing} | numbers


def check_rows(check: Check) -> Iterator[Row]:
    name = "runs" if check.column is None else check.column.name
    statistic = "count" if check.column is None else check.column.statistic
    unit = "" if check.column is None else check.column.unit
    at: Row = {"engine": check.engine, "stage": check.stage or None}
    yield at | cells(name, f"{statistic} of the baseline", unit, check.baseline)
    yield at | cells(name, statistic, unit, check.now)
    yield at | cells(name, f"{statistic} change: {check.result.value}", "", check.change)
    if check.p is not None:
        yield at | cells(name, f"{statistic} change: p", "", Estimate(check.p))


def _finding_row(finding: Finding) -> Row:
    """Put the kind of a finding into the statistic, and its severity into the unit."""
    where = {} if finding.stage is None else {"stage": finding.stage.label}
    return where | {"metric": "finding", "statistic": finding.kind, "unit": finding.severity, "value": 1.0}


def stage_rows(stage: StageView) -> Iterator[Row]:
    for outcome, count in stage.outcomes.items():
        yield cells(outcome, "count", "requests", Estimate(float(count), n=stage.requests))
    for name, count in stage.counts.items():
        yield cells(name, "count", "", Estimate(float(count), n=stage.requests))
    for name, estimate in stage.quantities.items():
        yield cells(name, "value", QUANTITY_BY_NAME[name].unit, estimate)
    for judgement in stage.judgements:
        yield cells(f"slo {judgement.objective}", "share", "share", judgement.share)
    for name, distribution in stage.metrics.items():
        unit = ICL.unit if name == ICL.name else BY_NAME[name].unit
        yield from (cells(name, statistic, unit, estimate) for statistic, estimate in _statistics(distribution))
    for name, level in stage.gauges.items():
        gauge_unit = GAUGES[name].unit if name in GAUGES else ""
        yield cells(name, "mean", gauge_unit, Estimate(level.mean))
        yield cells(name, "peak", gauge_unit, Estimate(level.peak))
    for view in stage.classes:
        for name, distribution in view.metrics.items():
            rows = _statistics(distribution)
            yield from (cells(f"{name} of {view.name}", s, BY_NAME[name].unit, estimate) for s, estimate in rows)


def _statistics(distribution: Distribution) -> Iterator[tuple[str, Estimate]]:
    answered = distribution.n - distribution.failed
    for name in ("mean", "deviation", "least", "largest"):
        if (value := getattr(distribution, name)) is not None:
            yield name, Estimate(value, n=answered)
    yield from distribution.percentiles.items()
    for p, value in (distribution.answered or {}).items():
        yield f"{p} of the answered", Estimate(value, n=answered)
