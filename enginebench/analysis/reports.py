"""The documents that frames become: what is on the first screen, and which sections follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from enginebench.analysis.answer import (
    Answer,
    BestAnswer,
    CapacityAnswer,
    Contender,
    NoAnswer,
    Replicas,
    SpeedAnswer,
)
from enginebench.analysis.document import Document, NextStep, Section, Warning
from enginebench.analysis.frame import Frame, column_of
from enginebench.analysis.plan.candidates import replicas_answer
from enginebench.analysis.sections import disruptions
from enginebench.analysis.sections.answers import answers
from enginebench.analysis.sections.candidates import candidates
from enginebench.analysis.sections.comparison import comparison
from enginebench.analysis.sections.figures import figures, first_figure
from enginebench.analysis.sections.loads import bottleneck, loads
from enginebench.analysis.sections.setup import numbers, setup
from enginebench.analysis.sections.slo import slo
from enginebench.analysis.sections.warnings import warnings, warnings_section
from enginebench.analysis.stats.repeats import REPEATS
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.slo import Status
from enginebench.records.load import Load, Users, load_of
from enginebench.records.metrics import OUTPUT_TOKENS, PROMPT_TOKENS, THROUGHPUT, TTFT, USER_THROUGHPUT
from enginebench.records.view import Estimate

GOOD, MISSED, INVALID, NOT_ENOUGH = 0, 1, 2, 3  # exit codes
USERS = Users.unit
MAX_NAMES = 3  # engines that a title names
SECTIONS: tuple[Callable[[Frame], Section], ...] = (
    loads,
    comparison,
    slo,
    answers,
    disruptions.disruptions,
    lambda frame: Section("charts", "Charts", tuple(figures(frame))),
    setup,
    numbers,
)


def title_of(runs: Sequence[RunSummary]) -> str:
    """`vllm and candle`, or how many engines there are."""
    labels = list(dict.fromkeys(run.label for run in runs))
    return " and ".join(labels) if len(labels) <= MAX_NAMES else f"{len(labels)} engines"


def report_document(
    frame: Frame,
    title: str,
    replicas: Sequence[Replicas] = (),
    peak: Load | None = None,
    allow_invalid: bool = False,
    extra: Sequence[Section] = (),
) -> Document:
    """One run, or several engines. `replicas` for a `peak` are columns of the candidates, and `extra` sections come
    after those of the frame."""
    warned = warnings(frame)
    disruption = disruptions.first_disruption(frame) if len(frame.engines) == 1 else None
    table, figure = candidates(frame, replicas, peak), first_figure(frame)
    answer, step = answer_of(frame, replicas, peak), next_step(frame)
    if disruption is not None:
        answer, step = disruptions.answer(*disruption), _after_disruption(frame)
        table, figure = disruptions.periods(disruption[1]), disruptions.figure(frame, *disruption)
    sections = [*(section(frame) for section in SECTIONS), *extra, warnings_section(warned)]
    return Document(
        title=title,
        tested=frame.tested,
        objectives=frame.tier,
        answer=answer,
        candidates=table,
        figure=figure,
        next=step,
        warnings=warned,
        sections=tuple(section for section in sections if section.blocks),
        frame=frame.table,
        exit_code=exit_code(frame, warned, allow_invalid),
    )


def comparison_document(frame: Frame, title: str, allow_invalid: bool = False) -> Document:
    """Engines at one load, in every compared metric. Missing an objective is no failure of a comparison."""
    whole = report_document(frame, title, allow_invalid=allow_invalid)
    left_out = {"disruptions", "charts", "numbers"}
    sections = sorted(whole.sections, key=lambda section: section.key != "comparison")
    sections = [replace(section, folded=False) for section in sections if section.key not in left_out]
    code = INVALID if whole.exit_code == INVALID else GOOD
    return replace(whole, sections=tuple(sections), exit_code=code)


def quick_document(
    frame: Frame, title: str, search: NextStep, replicas: Sequence[Replicas] = (), peak: Load | None = None
) -> Document:
    """What a minute has shown. The next step is always the search; a missed objective is part of the answer."""
    whole = report_document(frame, title, replicas, peak)
    return replace(whole, next=search, exit_code=INVALID if whole.exit_code == INVALID else GOOD)


def answer_of(frame: Frame, replicas: Sequence[Replicas] = (), peak: Load | None = None) -> Answer:
    """Replicas for a peak, else the best of several engines, else what a single engine sustains."""
    if not frame.stages:
        return NoAnswer.NOTHING_MEASURED
    if any(difference.incomparable for difference in frame.differences):
        return NoAnswer.DIFFERENT_WORKLOADS
    if not any(stage.ok for run in frame.runs for stage in run.stages):
        return NoAnswer.ALL_FAILED
    if peak is not None and any(each.number is not None for each in replicas):
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
    )


def _contender(frame: Frame, name: str) -> Contender:
    assert frame.stage is not None
    tokens = frame.engine(name).estimate(frame.stage, THROUGHPUT)
    return Contender(name, frame.capacities.get(name), tokens, frame.verdict(name, frame.stage))


def _capacity(frame: Frame, capacity: Capacity) -> CapacityAnswer:
    ends = [capacity.at(load) for load in (capacity.load, capacity.beyond)]
    labels = [None if end is None else end.stage for end in ends]
    return CapacityAnswer(
        capacity=capacity,
        at_load=_percentiles(frame, capacity, labels[0]),
        beyond=_percentiles(frame, capacity, labels[1]),
        bottleneck=bottleneck(frame, capacity.engine, *labels),
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
    return SpeedAnswer(
        engine=engine.label,
        stage=lightest,
        ttft=engine.estimate(lightest, TTFT, "p50"),
        user_tokens=engine.estimate(lightest, USER_THROUGHPUT),
        busiest=busiest,
        tokens=engine.estimate(busiest, THROUGHPUT),
    )


def exit_code(frame: Frame, warned: Sequence[Warning], allow_invalid: bool = False) -> int:
    """2 for an invalid run, 3 if an objective could not be judged or a search has no answer, 1 if one was missed."""
    if not allow_invalid and any(warning.severity == "invalid" for warning in warned):
        return INVALID
    searches = [run.search for run in frame.runs if run.search is not None]
    if searches:
        return GOOD if all(search.state == "found" for search in searches) else NOT_ENOUGH
    statuses = {verdict.status for verdict in frame.verdicts}
    classes = [view for run in frame.runs for stage in run.stages for view in stage.classes]
    judged = [judgement for view in classes for judgement in view.judgements]
    missed_class = any((judgement.share.value or 0.0) < judgement.objective.q for judgement in judged)
    if Status.MISSED in statuses or missed_class:
        return MISSED
    return NOT_ENOUGH if Status.NOT_MEASURED in statuses else GOOD


def next_step(frame: Frame, planned: str | None = None) -> NextStep | None:
    """Return what would raise or confirm the answer: an SLO, more repeats, a higher or lower load, a search for the
    limit between two loads; of a limit that is known, a plan. `planned` is the engine that is planned with, else it is
    the best one."""
    if not frame.stages or any(difference.incomparable for difference in frame.differences):
        return None
    folders = _folders(frame)
    if not frame.tier:
        return NextStep("slo", ("enginebench", "report", *folders, "--slo", "ttft_p95=1s"))
    if planned is None and len(frame.engines) > 1 and frame.tested.repeats[0] < REPEATS:
        return NextStep("repeat", (*frame.engines[0].runs[0].command, "--repeat", "5"))
    capacity = frame.capacities.get(planned or frame.names[0])
    if capacity is None or not capacity.verdicts:
        return None
    load, beyond = (None if end is None else f"{end:g}" for end in (capacity.load, capacity.beyond))
    texts = [load_of(end or 0.0, capacity.unit).label for end in (capacity.load, capacity.beyond)]
    run, users = run_command(frame, capacity.engine), capacity.unit == USERS
    at = ("concurrent", "--stages") if users else ("rate", "--rate")
    if load is None and beyond is None:
        if capacity.uncounted:
            return NextStep("count", ("enginebench", "report", *folders, "--tokenizer", "FILE"))
        return NextStep("measure", frame.engine(capacity.engine).runs[0].command)
    if load is None:
        lower = f"{(capacity.beyond or 2) / 2:g}"
        return NextStep("lower", run(*at, lower), names={"engine": capacity.engine, "beyond": texts[1]})
    if beyond is None:
        return NextStep(
            "higher", run(*at, f"{2 * (capacity.load or 1):g}"), names={"engine": capacity.engine, "load": texts[0]}
        )
    if not capacity.confirmed:
        by = "users" if users else "rate"
        names = {"engine": capacity.engine, "load": load, "beyond": texts[1]}
        return NextStep("bracket", run("capacity", "--by", by, "--search-range", f"{load}-{beyond}"), names=names)
    if planned is not None:
        return NextStep("buy", names={"engine": planned})
    slo = ",".join(objective.typed for objective in frame.tier)
    peak = f"{10 * (capacity.load or 1):g}{'' if users else '/s'}"
    names = {"peak": load_of(10 * (capacity.load or 1), capacity.unit).label}
    return NextStep("plan", ("enginebench", "plan", *folders, "--peak", peak, "--slo", slo), names=names)


def _after_disruption(frame: Frame) -> NextStep:
    """A burst or an outage leaves open how much load a server sustains."""
    if not frame.tier:
        return NextStep("slo", ("enginebench", "report", *_folders(frame), "--slo", "ttft_p95=1s"))
    by = "users" if frame.stages[0].load_unit == USERS else "rate"
    return NextStep("sustained", run_command(frame, frame.names[0])("capacity", "--by", by))


def next_step_of(frame: Frame, search: tuple[str, ...]) -> NextStep:
    """The search for the limit, in the words that fit what is known of it."""
    step = next_step(frame)
    if step is None or step.purpose not in {"lower", "higher", "bracket"}:
        return NextStep("search", search)
    return replace(step, command=search)


def _folders(frame: Frame) -> list[str]:
    parents = {run.folder.parent for run in frame.runs}
    if len(frame.runs) > 1 and len(parents) == 1:
        return [str(parents.pop())]
    return [str(run.folder) for run in frame.runs]


def run_command(frame: Frame, name: str) -> Callable[..., tuple[str, ...]]:
    """`enginebench run SCENARIO …` for the same server, requests and objectives."""
    run = frame.engine(name).runs[0]
    engine, by_url = run.engine or {}, "--url" in run.command
    if by_url or "name" not in engine:
        target = ["--url", next(_given(run, "--url"), run.url)]
    else:
        target = ["--engine", str(engine["name"])]
        target += [word for value in (*_given(run, "-o"), *_given(run, "--option")) for word in ("-o", value)]
    if "--model" in run.command or (not by_url and "--engine" not in run.command):  # a study names neither for a cell
        target += ["--model", str(engine.get("model") or run.model)]
    asked = {name: run.workload.get(name) for name in (PROMPT_TOKENS, OUTPUT_TOKENS)}
    length = str(asked[OUTPUT_TOKENS] or "")
    if length.isdigit() and any(finding.kind == "lock_step" for finding in run.findings):  # its remedy
        asked[OUTPUT_TOKENS] = f"uniform:{int(length) // 2}-{int(length) + int(length) // 2}"
    lengths = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items() if value]
    slo = ["--slo", ",".join(objective.typed for objective in frame.tier)] if frame.tier else []

    def words(scenario: str, *more: str) -> tuple[str, ...]:
        return ("enginebench", "run", scenario, *target, *more, *slo, *lengths)

    return words


def _given(run: RunSummary, flag: str) -> Iterator[str]:
    """Yield the values that the run's command gave this contender by a flag, without its name: `few.` of an option,
    `few=` of a URL."""
    for given, value in pairwise(run.command):
        if given == flag:
            owner, mark, rest = value.partition("=" if flag == "--url" else ".")
            named = bool(mark) and not set(":/=") & set(owner)
            if not named or owner in {run.label, (run.engine or {}).get("name")}:
                yield rest if named else value
