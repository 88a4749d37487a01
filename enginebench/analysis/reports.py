"""Make documents from frames: the first screen, then the sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from enginebench.analysis.answer import (
    Answer,
    BestAnswer,
    CapacityAnswer,
    Contender,
    NoAnswer,
    Replicas,
    ReplicasAnswer,
    SpeedAnswer,
)
from enginebench.analysis.document import Document, Section, Warning
from enginebench.analysis.frame import Frame, column_of
from enginebench.analysis.next_step import (
    next_step,
    next_step_after_disruption,
    next_step_after_growth,
    next_step_for_peak,
)
from enginebench.analysis.plan.replicas import replicas_answer
from enginebench.analysis.sections import disruptions
from enginebench.analysis.sections.answers import answers
from enginebench.analysis.sections.candidates import candidates
from enginebench.analysis.sections.comparison import comparison
from enginebench.analysis.sections.figures import figures, first_figure
from enginebench.analysis.sections.loads import bottleneck, loads
from enginebench.analysis.sections.setup import numbers, setup
from enginebench.analysis.sections.slo import slo
from enginebench.analysis.sections.start import SCENARIO, answer_of_start, start, starts
from enginebench.analysis.sections.warnings import warnings
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.records.exit_codes import GOOD, INVALID, MISSED, NOT_ENOUGH
from enginebench.records.load import Load
from enginebench.records.metrics import THROUGHPUT, USER_THROUGHPUT, columns
from enginebench.records.view import Estimate, is_invalid

SECTIONS: tuple[Callable[[Frame], Section], ...] = (
    loads,
    comparison,
    slo,
    answers,
    start,
    disruptions.disruptions,
    lambda frame: Section("charts", "Charts", tuple(figures(frame))),
    setup,
    numbers,
)


def report_document(
    frame: Frame, replicas: Sequence[Replicas] = (), peak: Load | None = None, allow_invalid: bool = False
) -> Document:
    """Report on one run, or on several engines. With a `peak`, `replicas` become columns of the candidates."""
    warned = warnings(frame)
    disrupted = disruptions.worst_disruption(frame) if len(frame.engines) == 1 else ()
    answer, step, shown = answer_of(frame, replicas, peak), next_step(frame), SECTIONS
    if isinstance(answer, ReplicasAnswer):
        replicas = answer.candidates
        step = next_step_for_peak(frame, replicas[0], answer.peak)
    table, figure = candidates(frame, replicas, peak), first_figure(frame)
    if disrupted:
        name = frame.names[0]
        answer, step = disruptions.answer(name, disrupted), next_step_after_disruption(frame)
        table, figure = disruptions.worst_periods(disrupted), disruptions.figure(frame, name, disrupted)
    if frame.tested.scenario == SCENARIO and (phases := starts(frame)) is not None:
        answer, table, figure, step, shown = answer_of_start(frame), phases, None, None, (setup, numbers)
    sections = [section(frame) for section in shown]
    return Document(
        tested=frame.tested,
        objectives=frame.objectives,
        answer=answer,
        candidates=table,
        figure=figure,
        next=step,
        warnings=warned,
        sections=tuple(section for section in sections if section.blocks),
        frame=frame.table,
        exit_code=exit_code(frame, warned, allow_invalid),
    )


def comparison_document(frame: Frame, allow_invalid: bool = False) -> Document:
    """Compare engines at one load, in every compared metric. A missed objective does not fail a comparison."""
    whole = report_document(frame, allow_invalid=allow_invalid)
    left_out = {"disruptions", "charts", "numbers"}
    sections = sorted(whole.sections, key=lambda section: section.key != "comparison")
    sections = [replace(section, folded=False) for section in sections if section.key not in left_out]
    code = INVALID if whole.exit_code == INVALID else GOOD
    return replace(whole, sections=tuple(sections), exit_code=code)


def quick_document(
    frame: Frame, target: Sequence[str], replicas: Sequence[Replicas] = (), peak: Load | None = None
) -> Document:
    """Report on a run of `quick` with the server that `target` names. The next step is always a search for the limit; a
    missed objective is part of the answer."""
    whole = report_document(frame, replicas, peak)
    code = INVALID if whole.exit_code == INVALID else GOOD
    return replace(whole, next=next_step_after_growth(frame, target), exit_code=code)


def answer_of(frame: Frame, replicas: Sequence[Replicas] = (), peak: Load | None = None) -> Answer:
    """Return the replicas for a peak, else the best of several engines, else the capacity of a single engine."""
    if not frame.stages:
        return NoAnswer.NOTHING_MEASURED
    if any(difference.incomparable for difference in frame.differences):
        return NoAnswer.DIFFERENT_WORKLOADS
    if not any(stage.ok for run in frame.runs for stage in run.stages):
        failed = any(stage.failed for run in frame.runs for stage in run.stages)
        return NoAnswer.ALL_FAILED if failed else NoAnswer.NONE_ENDED
    if peak is not None and any(candidate.number is not None for candidate in replicas):
        return replicas_answer(peak, tuple(replicas))
    if len(frame.engines) > 1:
        return _best(frame)
    capacity = frame.capacities.get(frame.names[0])
    return _capacity(frame, capacity) if capacity is not None and capacity.verdicts else _speed(frame)


def _best(frame: Frame) -> Answer:
    if frame.stage is None:
        return NoAnswer.NO_COMMON_LOAD
    best, following = (_contender(frame, name) for name in frame.names[:2])
    compared = frame.compared(best.name, following.name)
    loads = {name: capacity.load for name, capacity in frame.capacities.items() if capacity.load is not None}
    tied = [name for name in frame.names[2:] if name in loads and loads[name] == loads.get(following.name)]
    view = next(stage for stage in frame.stages if stage.label == frame.stage)
    return BestAnswer(
        best=best,
        next=following,
        stage=frame.stage,
        load=view.load,
        unit=view.load_unit,
        ratio=Estimate(None) if compared is None else compared.ratio,
        significant=None if compared is None else compared.significant,
        repeats=min(len(frame.engine(name).runs) for name in frame.names[:2]),
        candidates=len(frame.names),
        speed=frame.speed,
        tied=tuple(tied),
    )


def _contender(frame: Frame, name: str) -> Contender:
    assert frame.stage is not None
    speed = frame.engine(name).column(frame.stage, frame.speed)
    return Contender(name, frame.capacities.get(name), speed, frame.verdict(name, frame.stage))


def _capacity(frame: Frame, capacity: Capacity) -> CapacityAnswer:
    ends = [capacity.at(load) for load in (capacity.load, capacity.beyond)]
    labels = [None if end is None else end.stage for end in ends]
    late = any(
        finding.kind == "load_generator_late" and finding.severity != "note" and finding.stage.label == labels[1]
        for finding in frame.findings
        if finding.stage is not None
    )
    return CapacityAnswer(
        capacity=capacity,
        at_load=_percentiles(frame, capacity, labels[0]),
        beyond=_percentiles(frame, capacity, labels[1]),
        bottleneck=None if late else bottleneck(frame, capacity.engine, *labels),
    )


def _percentiles(frame: Frame, capacity: Capacity, stage: str | None) -> tuple[float | None, ...]:
    columns = [column_of(objective) for objective in capacity.objectives]
    engine = frame.engine(capacity.engine)
    return tuple(None if stage is None or column is None else engine.column(stage, column).value for column in columns)


def _speed(frame: Frame) -> SpeedAnswer:
    (engine,) = frame.engines
    lightest = frame.stages[0].label
    rates = [(engine.value(stage.label, THROUGHPUT) or 0.0, stage.label) for stage in frame.stages]
    busiest = max(rates, key=lambda rate: rate[0])[1]
    latency = next(column for column in columns("compared", frame.since_due) if column.statistic == "p50")
    return SpeedAnswer(
        engine=engine.label,
        stage=lightest,
        latency=latency,
        ttft=engine.column(lightest, latency),
        user_tokens=engine.estimate(lightest, USER_THROUGHPUT),
        busiest=busiest,
        tokens=engine.estimate(busiest, THROUGHPUT),
    )


def exit_code(frame: Frame, warned: Sequence[Warning], allow_invalid: bool = False) -> int:
    """Return 2 for an invalid run, 3 if an objective was not judged or a search has no answer, 1 if one was missed."""
    if not allow_invalid and is_invalid(warning.severity for warning in warned):
        return INVALID
    asked = tuple(map(str, frame.objectives))
    searches = [run.search for run in frame.runs if run.search is not None and run.search.objectives == asked]
    if len(searches) == len(frame.runs):
        return GOOD if all(search.state == "found" for search in searches) else NOT_ENOUGH
    statuses = frame.statuses
    if Status.MISSED in statuses:
        return MISSED
    return NOT_ENOUGH if Status.NOT_MEASURED in statuses else GOOD
