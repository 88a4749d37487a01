"""Sections on one request at a time over prompt lengths: TTFT, what a long context costs, and engines without HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from enginebench.analysis.compare.engine_runs import EngineRuns, paired
from enginebench.analysis.compare.growth import context_sentences
from enginebench.analysis.compare.tables import ratio_text
from enginebench.analysis.console import TextTable
from enginebench.analysis.report.axis import Place
from enginebench.analysis.report.figure import Figure, figure
from enginebench.analysis.report.load_charts import TABLE, load_rows, over_loads
from enginebench.analysis.stats.repeats import ratio_interval
from enginebench.records.formatting import MISSING, column_unit, format_seconds, significant
from enginebench.studies.report.contents import MeasuredPart, StudyReport, distinct
from enginebench.studies.report.expected import ExpectedKernels, ExpectedPrefill, brief
from enginebench.studies.report.section import Section, of_model, titled
from engines.bench.document import BenchResult, Result
from engines.bench.tables import middle_of, notes_of, sentence_of, tables_of

PROMPTS = "prompt tokens"  # what the stages of a part over prompt lengths are named by
GIGABYTE = 1e9
HEADERS = ("engine", PROMPTS, "TTFT mean", "± SD", "p50", "p95", "p99", "TPOT p50", "memory, GB", "speed-up")
IN_BRIEF = "TTFT in the brief"


def lengths(study: StudyReport) -> Section:
    """Every part of one user alone whose stages are prompt lengths: long context, and TTFT of one new token."""
    found = [each for each in study.measured if each.alone and each.figures.axis.title == PROMPTS]
    figures, tables, sentences = [], [], []
    for each in found:
        shown = list(length_figures(each))[int(each is study.head) :]  # the decision's first stands on the first screen
        figures += [titled(of, each, study) for of in shown]
        tables.append(_table(each, study))
        sentences += [f"{of_model(each, study)}{sentence}" for sentence in context_sentences(each.runs)]
    why = "" if found else "no part of this study varies the prompt's length with one user alone"
    return Section("Prompt length and long context", tuple(sentences), tuple(figures), tuple(tables), why=why)


def length_figures(measured: MeasuredPart) -> Iterator[Figure]:
    for name, title in (("ttft", "TTFT p50"), ("tpot", "TPOT p50")):
        places = measured.figures.measured
        points = [(engine.label, place, engine.estimate(place.label, name, "p50")) for engine, place in places]
        unit = column_unit("s", [estimate.value for _, _, estimate in points])
        rows = load_rows(points, unit)
        if rows and len({row["load"] for row in rows}) > 1:
            chart = over_loads(rows, measured.styles, measured.figures.axis)
            named = f"{title} against the prompt's length, in {unit.word or unit.name}"
            yield figure(f"{name}-lengths", named, "One user alone.", chart, TABLE, rows, measured.styles)


def _table(measured: MeasuredPart, study: StudyReport) -> TextTable:
    """Each length that an engine has, then the average over those that all have: of the lengths, not of requests."""
    published, places = _published(measured), measured.figures.axis.places
    common = [place for place in places if place.label in measured.comparison.stages]
    base = next(engine for engine in measured.engines if engine.label == measured.comparison.baseline)
    rows: list[tuple[str, ...]] = []
    for engine in sorted(measured.engines, key=lambda engine: engine.label != base.label):
        own = published if published is not None and engine.label == published.engine else None
        measured_at = [place for place in places if len(engine.at(place.label)) == len(engine.runs)]
        rows += [(engine.label, of.text, *_cells(engine, base, of), _in_brief(own, of)) for of in measured_at]
        if common:
            in_brief = MISSING if own is None else format_seconds(own.ttft_average)
            rows.append((engine.label, "average", *_average_cells(engine, base, common), in_brief))
    caption = (
        f"{measured.title}: one user alone, all repeats together. Speed-up: TTFT of {base.label} over that of the "
        "engine, means, with the 95 % interval over runs. Memory: the engine's peak on the device, or without a GPU "
        "of the engine's process."
    )
    if published is not None:
        p99 = format_seconds(published.ttft_p99_average)
        caption += f" In the brief: {published.engine} with {published.model}, {published.memory_gb:g} GB, p99 {p99}."
    title = f"{of_model(measured, study)}TTFT by prompt length"
    table = TextTable(title, (*HEADERS, IN_BRIEF), tuple(rows), (0,), caption)
    return table.without([] if published is not None else [IN_BRIEF])


def _cells(engine: EngineRuns, base: EngineRuns, place: Place) -> tuple[str, ...]:
    mean = engine.mean(lambda view: view.metrics["ttft"].mean, place.label)
    deviation = engine.mean(lambda view: view.metrics["ttft"].deviation, place.label)
    peaks = [peak_of(engine, place.label, name) for name in ("engine_device_memory_bytes", "engine_memory_bytes")]
    memory = next((peak for peak in peaks if peak), None)
    return (
        format_seconds(mean),
        format_seconds(deviation),
        *(format_seconds(engine.value(place.label, "ttft", p)) for p in ("p50", "p95", "p99")),
        format_seconds(engine.value(place.label, "tpot", "p50")),
        MISSING if memory is None else significant(memory / GIGABYTE),
        _over(base, engine, lambda one: [view.metrics["ttft"].mean for view in one.at(place.label)]),
    )


def _over(base: EngineRuns, engine: EngineRuns, means: Callable[[EngineRuns], Sequence[float | None]]) -> str:
    """The ratio of two engines' means, from one of each run."""
    if engine.label == base.label:
        return "1"
    all_of = [means(base), means(engine)]
    known = [[value for value in side if value is not None and math.isfinite(value)] for side in all_of]
    if not all(known):
        return MISSING
    pairs = paired([base, engine]) and [len(side) for side in known] == [len(side) for side in all_of]
    return ratio_text(ratio_interval(known[0], known[1], pairs))


def _average_cells(engine: EngineRuns, base: EngineRuns, places: Sequence[Place]) -> tuple[str, ...]:
    known = [average for average in _averages(engine, places) if average is not None]
    mean = sum(known) / len(known) if known else None
    over = _over(base, engine, lambda one: _averages(one, places))
    return format_seconds(mean), *[""] * (len(HEADERS) - 4), over


def _averages(engine: EngineRuns, places: Sequence[Place]) -> list[float | None]:
    """Of each run; `None` where it lacks a length."""
    averages: list[float | None] = []
    for run in engine.runs:
        means = [view.metrics["ttft"].mean for place in places if (view := run.at(place.label)) is not None]
        known = [mean for mean in means if mean is not None]
        averages.append(sum(known) / len(known) if len(known) == len(places) else None)
    return averages


def peak_of(engine: EngineRuns, stage: str, gauge: str) -> float | None:
    """The largest of the runs: a peak is not averaged."""
    peaks = [view.gauges[gauge].peak for view in engine.at(stage) if gauge in view.gauges]
    return max(peaks, default=None)


def _published(measured: MeasuredPart) -> ExpectedPrefill | None:
    """The brief's figures, beside the same engine at some of the same lengths."""
    published = brief().expected.prefill
    lengths_here = {place.at for place in measured.figures.axis.places}
    named = published.engine in {engine.label for engine in measured.engines}
    one_token = all((stage.value("output_tokens") or 1.0) == 1 for run in measured.runs for stage in run.stages)
    return published if named and one_token and lengths_here & set(published.prompt_tokens) else None


def _in_brief(published: ExpectedPrefill | None, place: Place) -> str:
    if published is None or place.at not in published.prompt_tokens:
        return MISSING
    return format_seconds(published.ttft[published.prompt_tokens.index(int(place.at))])


def kernels(study: StudyReport) -> Section:
    """What `bench` measured, without HTTP, beside the brief's targets."""
    sentences, tables = [], []
    titles = distinct(bench.title for bench in study.benches)
    models = distinct(bench.model for bench in study.benches)
    for bench in study.benches:
        names = [bench.title] if len(titles) > 1 else []
        names += [bench.model] if len(models) > 1 else []
        of = f"{', '.join(names)}: " if names else ""
        answer = [] if study.head is None and bench is study.benches[0] else [sentence_of(bench.result)]  # said first
        sentences += [f"{of}{text}" for text in (*answer, *notes_of(bench.result))]
        found = tables_of(bench.result)
        targets = brief().expected.kernels_of(bench.model)
        found += [_targets(bench.result, targets)] if targets is not None else []
        tables += [replace(table, title=f"{of}{table.title.lower() if of else table.title}") for table in found]
    why = "" if study.benches else "no part of this study measures engines without HTTP"
    return Section("Engines without HTTP", tuple(sentences), tables=tuple(tables), why=why)


def _targets(bench: BenchResult, wanted: ExpectedKernels) -> TextTable:
    rows = []
    for result in bench.measured:
        one = _fastest(result, "generate")
        rows.append((result.label, _text(_fastest(result, "prefill")), _text(_fastest(result, "decode")), _text(one)))
    low, high = wanted.one_request
    rows.append(("the brief", f"{wanted.prefill:,.0f}", f"{wanted.decode:,.0f}", f"{low:,.0f} to {high:,.0f}"))
    caption = "Tokens/s, the highest median over the sizes measured. The brief means float16 on an RTX 4090."
    return TextTable("Targets", ("engine", "prefill", "decode", "one request"), tuple(rows), (0,), caption)


def _fastest(result: Result, family: str) -> float | None:
    rates = []
    for series in result.family(family):
        middle = middle_of(series)
        if middle is not None and middle.median > 0 and series.measure.unit == "s":
            rates.append((series.measure.size or 1) / middle.median)
    return max(rates, default=None)


def _text(rate: float | None) -> str:
    return MISSING if rate is None else significant(rate)
