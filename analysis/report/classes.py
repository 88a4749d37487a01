"""Classes of requests: each at every stage, and what it loses beside the others against being alone.

enginebench run mixed --engine transformers
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from analysis.compare.engine_runs import Contender, contenders_of, headline_ttft
from analysis.report.ends import has_ends, upper_end
from analysis.report.figures import Number, duration, rate
from analysis.report.rows import percentile_column
from analysis.summary.request_classes import ClassSummary
from analysis.summary.run_summary import RunSummary
from records.formatting import MISSING, format_ratio, format_seconds, format_share, in_words
from records.metrics import BY_NAME
from records.rules import Answer, overall
from records.view import Estimate, StageView


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class at one stage of one engine, all runs together. `cells` are numbers and what stands under each."""

    name: str
    stage: str
    engine: str
    requests: int
    failed: int
    cells: tuple[tuple[Number, str], ...]
    answer: Answer | None
    attainment: str


@dataclass(frozen=True, slots=True)
class Classes:
    """`headers` are (name, what stands under it) of the cells; `sentences` compare each class in the mix with itself
    alone."""

    headers: tuple[tuple[str, str], ...]
    rows: tuple[ClassRow, ...]
    sentences: tuple[str, ...]


def classes_of_runs(summaries: Sequence[RunSummary]) -> Classes | None:
    """`None` where requests have no classes. Rows stand by class, so that a class in the mix is beside itself alone."""
    names = dict.fromkeys(one.name for summary in summaries for stage in summary.stages for one in stage.classes)
    if not names:
        return None
    ttft = headline_ttft(summaries)
    shown = ((ttft, "p50"), (ttft, "p95"), ("tpot", "p95"))
    columns = [percentile_column(metric, p) for metric, p in shown]
    contenders = contenders_of(summaries)
    rows = [
        _row(name, label, contender, shown)
        for name in names
        for label in dict.fromkeys(stage.label for summary in summaries for stage in summary.stages)
        for contender in contenders
        if any(_class(stage, name) for stage in contender.at(label))
    ]
    sentences = [said for contender in contenders for said in _against_alone(contender, names, (ttft, "tpot"))]
    headers = [(column.name, column.clock) for column in columns]
    return Classes((*headers, ("goodput", "req/s")), tuple(rows), tuple(sentences))


def _class(stage: StageView, name: str) -> ClassSummary | None:
    return next((one for one in stage.classes if one.name == name), None)


def _row(name: str, label: str, contender: Contender, shown: Sequence[tuple[str, str]]) -> ClassRow:
    found = [one for stage in contender.at(label) if (one := _class(stage, name)) is not None]
    estimates = [contender.estimate(_percentile(name, metric, p), label) for metric, p in shown]
    goodput = contender.estimate(lambda stage: _goodput(stage, name), label)
    judged = [one.attainment for one in found if one.attainment is not None]
    said = []
    for verdicts in zip(*(one.verdicts for one in judged), strict=True):
        shares = [verdict.share.value for verdict in verdicts if verdict.share.value is not None]
        share = format_share(sum(shares) / len(shares)) if shares else MISSING
        said.append(f"{verdicts[0].objective}: {share}")
    return ClassRow(
        name=name,
        stage=label,
        engine=contender.label,
        requests=sum(one.requests for one in found),
        failed=sum(one.failed for one in found),
        cells=(*map(_duration_cell, estimates), _cell(rate(goodput.value), goodput, lambda value: rate(value).text)),
        answer=overall(one.answer for one in judged) if judged else None,
        attainment="\n".join(said),
    )


def _percentile(name: str, metric: str, p: str) -> Callable[[StageView], Estimate]:
    def of(stage: StageView) -> Estimate:
        one = _class(stage, name)
        return one.latencies[metric].percentile(p) if one is not None else Estimate(None, why="no requests")

    return of


def _goodput(stage: StageView, name: str) -> Estimate:
    one = _class(stage, name)
    return one.attainment.goodput if one is not None and one.attainment is not None else Estimate(None)


def _duration_cell(estimate: Estimate) -> tuple[Number, str]:
    return _cell(duration(estimate.value), estimate, format_seconds)


def _cell(number: Number, estimate: Estimate, write: Callable[[float | None], str]) -> tuple[Number, str]:
    if has_ends(estimate):
        return number, f"{write(estimate.low)} to {upper_end(estimate, write)}"
    return number, estimate.why or "" if estimate.value not in (None, math.inf) else ""


def _against_alone(contender: Contender, names: Iterable[str], metrics: Sequence[str]) -> Iterator[str]:
    """A sentence for each class of a stage of several, where the class was run alone afterwards too."""
    for label, alone in _isolated(contender.runs[0].stages):
        for name in (name for name in names if name in alone):
            parts = []
            for metric in metrics:
                of = _percentile(name, metric, "p95")
                mixed, by_itself = contender.estimate(of, label), contender.estimate(of, alone[name])
                if (ratio := _ratio(mixed, by_itself)) is not None:
                    values = f"{format_seconds(mixed.value)} against {format_seconds(by_itself.value)}"
                    parts.append(f"{BY_NAME[metric].title} p95 {ratio} ({values})")
            if parts:
                yield f"{contender.label}, {name} at {label}, compared with {alone[name]}: {in_words(parts)}."


def _isolated(stages: Sequence[StageView]) -> list[tuple[str, dict[str, str]]]:
    """The stages of several classes, each with the labels of the stages of one class that followed it, by class."""
    found: list[tuple[str, dict[str, str]]] = []
    for stage in stages:
        if len(stage.classes) > 1:
            found.append((stage.label, {}))
        elif stage.classes and found:
            found[-1][1].setdefault(stage.classes[0].name, stage.label)
    return found


def _ratio(mixed: Estimate, alone: Estimate) -> str | None:
    """With a range by the ends of both intervals, which is wider than an interval of the ratio would be."""
    if mixed.value is None or not alone.value or math.inf in (mixed.value, alone.value):
        return None
    if mixed.low is None or mixed.high is None or not alone.low or alone.high is None:
        return format_ratio(mixed.value / alone.value, None, None)
    return format_ratio(mixed.value / alone.value, mixed.low / alone.high, mixed.high / alone.low)
