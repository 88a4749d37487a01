"""The brief's criteria: each is a row with a predicate over the study, and is met, missed, or not measurable here.

What is better, and by how much, is read from the comparison; limits are those of `enginebench/studies/brief.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.analysis.compare.engine_runs import DECIDING, EngineRuns
from enginebench.analysis.compare.metric_comparison import MetricComparison
from enginebench.analysis.compare.tables import ratio_text
from enginebench.analysis.console import TextTable
from enginebench.analysis.stats.differences import spread
from enginebench.analysis.stats.repeats import REPEATS
from enginebench.records.formatting import format_count, format_ratio, format_share, in_words, significant
from enginebench.records.view import Estimate
from enginebench.studies.report.contents import MeasuredPart, StudyReport
from enginebench.studies.report.criterion import (
    MET,
    MISSED,
    UNKNOWN,
    Criterion,
    Judged,
    Value,
    answer_of,
    listed,
    of_many,
    side_of,
    worst_first,
)
from enginebench.studies.report.expected import BriefLimit, brief
from enginebench.studies.report.ladder import OneRequest, one_request
from enginebench.studies.report.lengths import peak_of
from enginebench.studies.report.over_loads import efficiencies
from enginebench.studies.report.quality import logits, perplexity
from enginebench.studies.report.section import NO_LOAD, Section, of_model

TITLE = "The brief's criteria"
HEADERS = ("criterion", "limit", "answer", "what was found", "meaning")


def judged(study: StudyReport) -> list[tuple[Criterion, BriefLimit, Judged]]:
    limits = brief().criteria
    return [(criterion, limits[criterion.key], criterion.judge(study, limits[criterion.key])) for criterion in CRITERIA]


def criteria(study: StudyReport) -> Section:
    rows = tuple(
        (criterion.title, limit.text(criterion.write), found.answer, found.evidence, limit.meaning)
        for criterion, limit, found in judged(study)
    )
    answers = [row[2] for row in rows]
    counts = [f"{answers.count(answer)} {answer}" for answer in (MET, MISSED, UNKNOWN) if answer in answers]
    caption = f"Limits: {brief().source}, {brief().dated}."
    table = TextTable(TITLE, HEADERS, rows, tuple(range(len(HEADERS))), caption)
    return Section(TITLE, (f"Of {len(rows)} criteria {in_words(counts)}.",), tables=(table,))


def _stages(study: StudyReport) -> Iterator[tuple[MeasuredPart, EngineRuns, str, str]]:
    """Each engine at each stage, and its name among all."""
    several = len(study.measured) > 1
    for each in study.measured:
        for engine in each.engines:
            for place in each.figures.axis.places:
                if len(engine.at(place.label)) == len(engine.runs):
                    where = f"{each.part}, {each.model}: " if several else ""
                    yield each, engine, place.label, f"{where}{engine.label} at {place.label}"


def spread_over_repeats(study: StudyReport, limit: BriefLimit) -> Judged:
    values = []
    for _, engine, stage, where in _stages(study):
        rates = [rate for view in engine.at(stage) if (rate := view.value(DECIDING)) is not None]
        runs = spread(rates) if len(rates) >= REPEATS else None
        if runs is not None and runs.deviation is not None and runs.mean:
            share = runs.deviation / runs.mean
            values.append(Value(where, Estimate(share), format_share(share)))
    return of_many(limit, values, f"{REPEATS} repeats are needed", "of output tokens/s")


def spread_within_a_run(study: StudyReport, limit: BriefLimit) -> Judged:
    values = []
    for _, engine, stage, where in _stages(study):
        times = [view.metrics["tpot"] for view in engine.at(stage)]
        shares = [time.deviation / time.mean for time in times if time.deviation is not None and time.mean]
        if shares:
            values.append(Value(where, Estimate(max(shares)), format_share(max(shares))))
    return of_many(limit, values, "no answer had a time per token", "of TPOT, in the worst run")


def samples(study: StudyReport, limit: BriefLimit) -> Judged:
    values = []
    for _, engine, stage, where in _stages(study):
        count = sum(view.ok for view in engine.at(stage))
        values.append(Value(where, Estimate(float(count)), f"{count:,}"))
    return of_many(limit, values, NO_LOAD, "requests answered, over all repeats")


def statistics(study: StudyReport, limit: BriefLimit) -> Judged:
    """Welch's t, Cohen's d and intervals of every comparison at the load that decides."""
    found = [each for of in study.measured for engine in of.comparison.others for each in _decides(of, engine)]
    if not found:
        return Judged(UNKNOWN, "there is no second engine to compare")
    lacking = [each for each in found if each.ratio.low is None]
    words = f"{format_share(limit.confidence or 0.0)} intervals, {limit.test} and {limit.effect_size}"
    if lacking:
        few = f"{len(lacking)} of {len(found)} comparisons of output tokens/s lack one of {words}"
        return Judged(MISSED, f"{few}: {lacking[0].engine} (no interval)")
    return Judged(MET, f"{words} stand in each of {len(found)} comparisons of output tokens/s")


def _decides(measured: MeasuredPart, engine: str) -> list[MetricComparison]:
    found = measured.comparison.of(measured.comparison.stage, engine, DECIDING)
    return [] if found is None else [found]


def _speed_ups(study: StudyReport) -> list[tuple[EngineRuns, Value]]:
    """Of each engine over the baseline, with the decision's model: one request at a time where it was measured, else at
    the load that decides."""
    if study.head is None:
        return []
    of_model = [each for each in study.measured if each.model == study.head.model]
    found = one_request(of_model) or OneRequest(study.head, "", study.head.comparison.stage or "")
    comparison = found.measured.comparison
    if comparison.baseline != study.source.baseline:
        return []
    values = []
    for engine in found.measured.engines:
        compared = comparison.of(found.long, engine.label, DECIDING)
        if compared is not None and compared.ratio.value is not None and engine.label not in comparison.unlike:
            values.append((engine, Value(engine.label, compared.ratio, ratio_text(compared.ratio))))
    return values


def faster(study: StudyReport, limit: BriefLimit) -> Judged:
    values = [value for _, value in _speed_ups(study)]
    found = {
        side: [value for value in values if side_of(limit, value.number) == side] for side in (MET, MISSED, UNKNOWN)
    }
    if not values:
        return Judged(UNKNOWN, f"no engine was compared with {study.source.baseline}")
    parts = [f"{listed(found[MET])} count as faster than {study.source.baseline}"] if found[MET] else []
    parts += [f"not {listed(found[MISSED])}"] if found[MISSED] else []
    parts += [f"undecided is {listed(found[UNKNOWN])}"] if found[UNKNOWN] else []
    return Judged(MET if found[MET] else UNKNOWN if found[UNKNOWN] else MISSED, "; ".join(parts))


def speed_up(study: StudyReport, limit: BriefLimit) -> Judged:
    languages = [(engine, value) for engine, value in _speed_ups(study) if _is_rust(engine)]
    return answer_of(limit, [value for _, value in languages], "no Rust engine was compared with the baseline")


def _is_rust(engine: EngineRuns) -> bool:
    return str((engine.runs[0].engine or {}).get("language", "")).lower() == "rust"


def gpu_utilisation(study: StudyReport, limit: BriefLimit) -> Judged:
    """Of the parts that are made for it, or else at the heaviest load of each."""
    sustained = [each for each in study.measured if each.scenario == "sustained"] or study.over_loads
    values = []
    for each in sustained:
        for engine in each.engines:
            stage = each.figures.axis.labels[-1]
            busy = engine.gauge(stage, "gpu_utilisation")
            if busy is not None:
                where = f"{of_model(each, study)}{engine.label} at {stage}"
                values.append(Value(where, Estimate(busy), format_share(busy)))
    return answer_of(limit, values, "there was no GPU, or its utilisation was not reported")


def memory(study: StudyReport, limit: BriefLimit) -> Judged:
    """At the same load, of the engines that serve as many tokens there, or more."""
    values, others = [], []
    for each in study.over_loads[:1]:
        stage, base = each.comparison.stage, each.comparison.baseline
        engines = {engine.label: engine for engine in each.engines}
        if stage is None or base != study.source.baseline:
            continue
        for label in each.comparison.others:
            compared = each.comparison.of(stage, label, DECIDING)
            if compared is None or compared.verdict not in {"better", "alike"}:
                others.append(label)
                continue
            ratios = []
            for gauge in ("engine_memory_bytes", "engine_device_memory_bytes"):
                ours, theirs = (peak_of(engines[name], stage, gauge) for name in (label, base))
                ratios += [ours / theirs] if ours and theirs else []
            if ratios:
                values.append(Value(label, Estimate(max(ratios)), format_ratio(max(ratios), None, None)))
    why = f"no engine is shown to be as fast as {study.source.baseline}" if others else "no server told its memory"
    return answer_of(limit, worst_first(limit, values), why)


def scaling(study: StudyReport, limit: BriefLimit) -> Judged:
    """Up to the knee, X_max / X(1) users: beyond it the hardware is the limit."""
    values = []
    for each in study.over_loads[:1]:
        for engine in each.engines:
            points = efficiencies(each, engine)
            rates = [estimate.value * place.at for _, place, estimate in points if estimate.value is not None]
            knee = max(rates, default=0.0)
            within = [(place, estimate) for _, place, estimate in points if 1 < place.at <= knee]
            if within:
                place, worst = min(within, key=lambda pair: pair[1].value or 0.0)
                text = f"{significant(worst.value or 0.0)} at {place.label}"
                values.append(Value(engine.label, worst, text))
    return answer_of(limit, worst_first(limit, values), "no load lies between one user and the knee of an engine")


def _times(ratio: float) -> str:
    return f"{ratio:g}×"


def _plain(value: float) -> str:
    return f"{value:g}"


CRITERIA: tuple[Criterion, ...] = (
    Criterion("spread_over_repeats", "spread over repeats", format_share, spread_over_repeats),
    Criterion("spread_within_a_run", "spread within a run", format_share, spread_within_a_run),
    Criterion("samples", "samples of each test", format_count, samples),
    Criterion("statistics", "what a comparison states", format_share, statistics),
    Criterion("faster", "counts as faster", _times, faster),
    Criterion("speed_up", "Rust engines over the baseline", _times, speed_up),
    Criterion("gpu_utilisation", "GPU utilisation under sustained load", format_share, gpu_utilisation),
    Criterion("memory", "memory over the baseline's", _times, memory),
    Criterion("scaling", "linear scaling up to the hardware's limit", _plain, scaling),
    Criterion("logits", "largest difference of a logit", _plain, logits),
    Criterion("perplexity", "loss in perplexity", _plain, perplexity),
)
