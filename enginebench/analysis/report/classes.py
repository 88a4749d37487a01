"""Classes of requests: each at every stage, and what it loses beside the others against being alone.

enginebench run mixed --engine transformers
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from enginebench.analysis.compare.engine_runs import EngineRuns, engine_runs_of, over_runs, since_due
from enginebench.analysis.compare.tables import estimate_text
from enginebench.analysis.console import TextTable
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.verdict.pooling import pooled
from enginebench.records.formatting import (
    MISSING,
    format_ratio,
    format_seconds,
    format_share,
    format_value,
    in_words,
)
from enginebench.records.metrics import Column, Metric, columns
from enginebench.records.rules import overall
from enginebench.records.slo import Objective
from enginebench.records.view import ClassView, Estimate, Judgement, StageView

NO_REQUESTS = Estimate(None)


def class_table(summaries: Sequence[RunSummary], spreads: bool = True) -> TextTable | None:
    """`None` where requests have no classes. Rows stand by class, so that a class in the mix is beside itself alone.
    `spreads`: with intervals."""
    names = class_names(summaries)
    if not names:
        return None
    shown = _columns(summaries)
    engines = engine_runs_of(summaries)
    rows = [
        _row(name, label, engine, shown, spreads)
        for name in names
        for label in dict.fromkeys(stage.label for summary in summaries for stage in summary.stages)
        for engine in engines
        if any(class_of(stage, name) for stage in engine.at(label))
    ]
    headers = ("class", "stage", "engine", "requests", "failed", *(c.title for c in shown), "goodput", "objectives", "")
    caption = (
        "Percentiles over the attempted requests of the class. A class alone has as much load as it has in the mix; "
        "the ranges of the ratios are by the ends of both intervals. Goodput: requests per second that met every "
        "objective of their class."
    )
    texts = (0, 1, 2, len(headers) - 2, len(headers) - 1)
    return TextTable("Classes of requests", headers, tuple(rows), texts, caption)


def _columns(summaries: Sequence[RunSummary]) -> list[Column]:
    """What engines are compared by, of the metrics in the table of stages."""
    compared = columns("compared", since_due(summaries))
    return [column for column in compared if isinstance(column.of, Metric) and _tabled(column.of)]


def _tabled(metric: Metric) -> bool:
    return any(metric.name in {column.name, getattr(column.of, "since_due", None)} for column in columns("table"))


def class_names(summaries: Sequence[RunSummary]) -> list[str]:
    views = (view for summary in summaries for stage in summary.stages for view in stage.classes)
    return list(dict.fromkeys(view.name for view in views))


def class_of(stage: StageView, name: str) -> ClassView | None:
    return next((view for view in stage.classes if view.name == name), None)


def _row(name: str, label: str, engine: EngineRuns, shown: Sequence[Column], spreads: bool) -> tuple[str, ...]:
    views = [view for stage in engine.at(label) if (view := class_of(stage, name)) is not None]
    text = estimate_text if spreads else _number
    goodput = over_runs([view.goodput or Estimate(None) for view in views])
    judgements = judge_class(engine, label, name)
    return (
        name,
        label,
        engine.label,
        f"{sum(view.requests for view in views):,}",
        f"{sum(view.failed for view in views):,}",
        *(text(_percentile(engine, label, name, column), column.unit) for column in shown),
        text(goodput, "req/s"),
        overall([judgement.answer for judgement in judgements]) if judgements else MISSING,
        ", ".join(f"{each.objective.text}: {format_share(each.share.value)}" for each in judgements),
    )


def judge_class(engine: EngineRuns, label: str, name: str) -> tuple[Judgement, ...]:
    """One class at one stage by each of its own objectives, all repeats together."""
    views = [class_of(stage, name) for stage in engine.at(label)]
    objectives = dict.fromkeys(each.objective for view in views if view is not None for each in view.judgements)
    return tuple(pooled([_judgement(view, objective) for view in views]) for objective in objectives)


def _judgement(view: ClassView | None, objective: Objective) -> Judgement:
    judgements = () if view is None else view.judgements
    return next((each for each in judgements if each.objective == objective), Judgement.without(objective))


def judge_classes(engine: EngineRuns) -> list[Judgement]:
    """Every class at every stage."""
    labels = dict.fromkeys(stage.label for stage in engine.stages)
    names = class_names(engine.runs)
    return [judgement for label in labels for name in names for judgement in judge_class(engine, label, name)]


def _number(estimate: Estimate, unit: str) -> str:
    return format_value(estimate.value, unit)


def _percentile(engine: EngineRuns, label: str, name: str, column: Column) -> Estimate:
    views = [class_of(stage, name) for stage in engine.at(label)]
    return over_runs(
        [NO_REQUESTS if view is None else view.metrics[column.name].percentile(column.statistic) for view in views]
    )


def class_sentences(summaries: Sequence[RunSummary]) -> list[str]:
    """What each class loses in the mix, where it was run alone afterwards too."""
    names, tails = class_names(summaries), [column for column in _columns(summaries) if column.statistic == "p95"]
    return [sentence for engine in engine_runs_of(summaries) for sentence in _against_alone(engine, names, tails)]


def _against_alone(engine: EngineRuns, names: Iterable[str], shown: Sequence[Column]) -> Iterator[str]:
    for label, alone in _isolated(engine.runs[0].stages):
        for name in (name for name in names if name in alone):
            parts = []
            for column in shown:
                mixed, by_itself = (_percentile(engine, at, name, column) for at in (label, alone[name]))
                if (ratio := _ratio(mixed, by_itself)) is not None:
                    values = f"{format_seconds(mixed.value)} against {format_seconds(by_itself.value)}"
                    parts.append(f"{column.full_title} {ratio} ({values})")
            if parts:
                yield f"{engine.label}, {name} at {label}, compared with {alone[name]}: {in_words(parts)}."


def _isolated(stages: Sequence[StageView]) -> list[tuple[str, dict[str, str]]]:
    """The stages of several classes, each with the labels of the stages of one class that followed it, by class."""
    mixed: list[tuple[str, dict[str, str]]] = []
    for stage in stages:
        if len(stage.classes) > 1:
            mixed.append((stage.label, {}))
        elif stage.classes and mixed:
            mixed[-1][1].setdefault(stage.classes[0].name, stage.label)
    return mixed


def _ratio(mixed: Estimate, alone: Estimate) -> str | None:
    """With a range by the ends of both intervals, which is wider than an interval of the ratio would be."""
    if mixed.value is None or not alone.value or math.inf in (mixed.value, alone.value):
        return None
    if mixed.low is None or mixed.high is None or not alone.low or alone.high is None:
        return format_ratio(mixed.value / alone.value, None, None)
    return format_ratio(mixed.value / alone.value, mixed.low / alone.high, mixed.high / alone.low)
