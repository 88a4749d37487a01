"""Sections on what a deployment needs: memory, the server's own cost, money and energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginebench.analysis.compare.engine_runs import DECIDING
from enginebench.analysis.compare.metric_comparison import MetricComparison
from enginebench.analysis.compare.tables import ratio_text, verdict_text
from enginebench.analysis.console import TextTable
from enginebench.analysis.report.costs import cost_table
from enginebench.analysis.report.figure import Figure, figure
from enginebench.analysis.report.load_charts import TABLE, Point, load_rows, over_loads
from enginebench.records.formatting import MISSING, column_unit, format_p, format_value, in_words, significant
from enginebench.records.telemetry import GAUGES
from enginebench.records.view import Estimate
from enginebench.studies.report.contents import MeasuredPart, OwnServer, StudyReport
from enginebench.studies.report.lengths import peak_of
from enginebench.studies.report.section import NO_LOAD, Section, of_model, of_part, titled

MEMORY = {"engine_memory_bytes": "host", "engine_device_memory_bytes": "device"}
"""Gauges of memory, and where it is."""
COUNTED = "The PyTorch engines report what torch allocated, the others what the driver counts for their processes."
OWN = "What the identical server costs"
IN_WORDS = ("replica hours per 1M tokens", "price of an hour")  # columns that a priced table does without
GIB = 1 << 30
COMPARED = (DECIDING, "ttft p50", "ttft p99", "tpot p50")  # what the two servers of an engine are compared in


def memory(study: StudyReport) -> Section:
    """Peaks by model and batch: of the parts that are made for it, or else of those over loads."""
    found = [each for each in study.measured if each.scenario == "memory"] or study.over_loads
    figures: list[Figure] = []
    tables: list[TextTable] = []
    for each in found:
        figures += [titled(of, each, study) for of in _peaks(each)] if each.over_loads else []
        tables += _peak_tables(each, study)
    why = "" if tables else "no server of this study told its memory"
    return Section("Memory", figures=tuple(figures), tables=tuple(tables), why=why)


def _peaks(measured: MeasuredPart) -> Iterator[Figure]:
    for gauge, where in MEMORY.items():
        points: list[Point] = []
        for engine, place in measured.figures.measured:
            peak = peak_of(engine, place.label, gauge)
            points += [(engine.label, place, Estimate(peak))] if peak else []
        unit = column_unit(GAUGES[gauge].unit, [estimate.value for _, _, estimate in points])
        if points:
            rows = load_rows(points, unit)
            chart = over_loads(rows, measured.styles, measured.figures.axis)
            title = f"Peak memory of the engine ({where}) against users, in {unit.name}"
            yield figure(f"memory-{where}", title, "", chart, TABLE, rows, measured.styles)


def _peak_tables(measured: MeasuredPart, study: StudyReport) -> Iterator[TextTable]:
    places = measured.figures.axis.places
    rows = []
    for engine in measured.engines:
        for gauge, where in MEMORY.items():
            peaks = [peak_of(engine, place.label, gauge) for place in places]
            if any(peaks):
                rows.append((engine.label, where, *(_gib(peak) for peak in peaks)))
    if rows:
        headers = ("engine", "memory", *(place.label for place in places))
        caption = "Largest value of any repeat: of the engine's processes (host), and of its GPU memory (device)."
        if any(where == MEMORY["engine_device_memory_bytes"] for _, where, *_ in rows):
            caption += f" {COUNTED}"
        title = f"{of_model(measured, study)}peak memory, GiB"
        yield TextTable(title[0].upper() + title[1:], headers, tuple(rows), (0, 1), caption)


def _gib(size: float | None) -> str:
    return MISSING if not size else significant(size / GIB)


def own_servers(study: StudyReport) -> Section:
    """Each engine that brings a server, behind ours and behind its own, in the same rounds. Parts of one load are
    folded."""
    pairs = [(each, own) for each in study.measured for own in each.own]
    over_loads = {id(each) for each in study.over_loads}
    first = [pair for pair in pairs if id(pair[0]) in over_loads] or pairs
    tables = [_pair_table(OWN, first, study)] if first else []
    others = [pair for pair in pairs if pair not in first]
    sentences = [sentence for each, own in first if (sentence := _sentence(each, own, study))]
    why = "" if pairs else "no engine of this study was also measured behind a server of its own"
    folded = (_pair_table("The other parts", others, study),) if others else ()
    return Section(OWN, tuple(sentences), tables=tuple(tables), folded=folded, why=why)


def _pair_table(title: str, pairs: Sequence[tuple[MeasuredPart, OwnServer]], study: StudyReport) -> TextTable:
    rows = tuple(row for each, own in pairs for row in _pair_rows(each, own, study))
    headers = ("part", "engine", "at", "metric", "its own server", "identical server", "ratio", "p", "verdict")
    caption = (
        "The identical server over the engine's own one, with 95 % intervals over interleaved runs: above 1 the "
        "identical one is better."
    )
    return TextTable(title, headers, rows, (0, 1, 2, 3, 8), caption)


def _compared(own: OwnServer) -> Iterator[MetricComparison]:
    for stage in own.comparison.stages:
        for key in COMPARED:
            found = own.comparison.of(stage, own.engine, key)
            if found is not None:
                yield found


def _pair_rows(measured: MeasuredPart, own: OwnServer, study: StudyReport) -> Iterator[tuple[str, ...]]:
    for each in _compared(own):
        yield (
            of_part(measured, study),
            own.engine,
            each.stage,
            each.column.full_title,
            format_value(each.theirs.mean, each.column.unit),
            format_value(each.ours.mean, each.column.unit),
            ratio_text(each.ratio),
            format_p(each.p),
            verdict_text(own.comparison, each),
        )


def _sentence(measured: MeasuredPart, own: OwnServer, study: StudyReport) -> str:
    parts = [f"{ratio_text(each.ratio)} at {each.stage}" for each in _compared(own) if each.column.key == DECIDING]
    if not parts:
        return ""
    return (
        f"{of_part(measured, study)}: behind the identical server {own.engine} served {in_words(parts)} of the output "
        "tokens of its own server."
    )


def cost(study: StudyReport) -> Section:
    """Of the parts over loads, at each engine's capacity."""
    tables = []
    for each in study.over_loads or ([study.head] if study.head is not None else []):
        costs = each.report.decision.costs
        if costs is not None:
            table = cost_table(costs).without(IN_WORDS if study.source.price_source else ())
            title = f"{of_model(each, study)}{table.title}"
            tables.append(TextTable(title, table.headers, table.rows, table.texts, table.caption))
    price = dict(study.source.plan.price).get("")
    sentences = [f"A replica costs ${price} an hour: {study.source.price_source}."] if price else []
    joules = any(view.value("energy_per_token") is not None for run in study.runs for view in run.stages)
    if tables and not joules:
        sentences.append("Energy was not measured: no server reported a GPU's energy twice within a window.")
    why = "" if tables else "no part has a load to give costs for"
    return Section(
        "Cost, requests per hour and energy", tuple(sentences) if tables else (), tables=tuple(tables), why=why
    )


def recommendation(study: StudyReport) -> Section:
    advice = [
        (f"{of_model(each, study)}{advice.heading}", advice.text)
        for each in study.over_loads or ([study.head] if study.head is not None else [])
        for advice in each.report.decision.advice
    ]
    return Section("Deployment recommendation", advice=tuple(advice), why="" if advice else NO_LOAD)
