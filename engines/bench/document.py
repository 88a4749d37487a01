"""The result of a bench as a document of the analysis. Rounds are its repeats: each round's median is one sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import polars as pl

from enginebench.analysis.answer import BenchAnswer, NoAnswer
from enginebench.analysis.document import Cell, Column, Document, Number, Section, Table, Word
from enginebench.analysis.frame import SCHEMA, cells
from enginebench.analysis.sections.answers import quality_table
from enginebench.analysis.stats.repeats import holm, ratio_test, repeats_interval
from enginebench.analysis.tested import Tested
from enginebench.records.rules import MARGIN, SIGNIFICANCE
from enginebench.records.view import Estimate
from engines.bench.result import DECODE, BenchResult, Result, Series

COLUMNS = (
    Column("engine", text=True),
    Column("measure", text=True),
    Column("median"),
    Column("samples", rank=2),
    Column("tokens/s", rank=1),
    Column("of memory bandwidth", rank=3),
    Column("of arithmetic", rank=4),
)
CANDIDATES = (
    Column("engine", text=True),
    Column("format", text=True, rank=2),
    Column("decode", "tokens/s, one request"),
    Column("prefill", "tokens/s, longest prompt"),
    Column("batch", "tokens/s, largest"),
    Column("memory", rank=1),
)


def document_of(result: BenchResult) -> Document:
    models = tuple(dict.fromkeys(each.model for each in result.measured if each.model))
    engines = tuple(dict.fromkeys(each.label for each in result.measured))
    rounds = max((len(series.rounds) for each in result.measured for series in each.series), default=1)
    return Document(
        title="bench",
        tested=Tested.of_benches(models, engines, result.host, result.made_at, rounds),
        objectives=(),
        answer=answer_of(result),
        candidates=candidates(result),
        figure=None,
        next=None,
        warnings=(),
        sections=sections_of(result),
        frame=pl.DataFrame(list(rows_of(result)), schema=SCHEMA),
    )


def rows_of(result: BenchResult, **place: str) -> Iterator[dict[str, Any]]:
    """Rows of the frame: each measure of each engine in each round and over the rounds. `place` names study, part and
    model."""
    for each in result.measured:
        for series in each.series:
            measure = series.measure
            at = {"model": each.model, "engine": each.label, "stage": measure.title} | place
            for repeat, samples in enumerate(series.rounds):
                if samples:
                    estimate = Estimate(median(samples), n=len(samples))
                    yield at | {"repeat": repeat} | cells(measure.name, "median", measure.unit, estimate)
            yield at | cells(measure.name, "median", measure.unit, repeats_interval(series.medians))


def sections_of(result: BenchResult) -> tuple[Section, ...]:
    """All measures with the quality on a fixed text, and what could not be measured."""
    rows = tuple(tuple(_cells(each, series)) for each in result.measured for series in each.series)
    blocks = [Table("bench", "Measures", COLUMNS, rows, 0).without_empty_columns()] if rows else []
    quality = quality_table({each.label: each.quality for each in result.measured if each.quality is not None})
    blocks += [] if quality is None else [quality]
    lacking: list[tuple[Cell, ...]] = [
        (Word(each.label), Word("all"), Word(each.failure)) for each in result.results if each.failure is not None
    ]
    lacking += [
        (Word(each.label), Word(left.case), Word(left.why)) for each in result.results for left in each.left_out
    ]
    headings = (Column("engine", text=True), Column("measure", text=True), Column("reason", text=True))
    missing = Table("left-out", "Not measured", headings, tuple(lacking))
    sections = (
        Section("bench", "Engines without HTTP", tuple(blocks)),
        Section("left-out", "Not measured", (missing,)),
    )
    return tuple(section for section, known in zip(sections, (blocks, lacking), strict=True) if known)


def _cells(result: Result, series: Series) -> Iterator[Cell]:
    measure, estimate = series.measure, repeats_interval(series.medians)
    yield from (Word(result.label), Word(measure.title), Number(estimate, measure.unit))
    yield Number(Estimate(float(sum(map(len, series.rounds)))), style="count")
    yield _rate(series) if measure.unit == "s" and measure.family != "loading" and estimate.value else None
    shares = (None, None) if series.share is None else (series.share.bandwidth, series.share.flops)
    yield from (None if share is None else Number(Estimate(share), "share") for share in shares)


def _rate(series: Series) -> Number:
    """Tokens per second of a measure in seconds."""
    size = series.measure.size or 1
    return Number(repeats_interval(series.medians).inverse.scaled(size), "tokens/s")


def candidates(result: BenchResult) -> Table | None:
    """A row for each engine, the fastest at decoding first, with its largest prefill and batch."""
    rows: list[tuple[float, tuple[Cell, ...]]] = []
    for each in result.measured:
        decode, prefill, batch = (_largest(each, family) for family in ("decode", "prefill", "batch"))
        memory = next((series for series in each.series if series.measure.name == "memory peak"), None)
        rate = None if decode is None else _rate(decode)
        row: tuple[Cell, ...] = (
            Word(each.label),
            None if each.info is None or each.info.dtype is None else Word(each.info.dtype),
            rate,
            None if prefill is None else _rate(prefill),
            None if batch is None else Number(repeats_interval(batch.medians), "tokens/s"),
            None if memory is None else Number(repeats_interval(memory.medians), "B"),
        )
        rows.append((rate.estimate.value or 0.0 if rate is not None else 0.0, row))
    ranked = tuple(row for _, row in sorted(rows, key=lambda ranked: -ranked[0]))
    return Table("candidates", "Candidates", CANDIDATES, ranked, 0).without_empty_columns() if rows else None


def _largest(result: Result, family: str) -> Series | None:
    """The measure of the largest size, by our clock, if it has samples."""
    timed = [series for series in result.family(family) if series.measure.unit in {"s", "tokens/s"} and series.medians]
    return max(timed, key=lambda series: (series.measure.size or 0, -len(series.measure.name)), default=None)


def answer_of(result: BenchResult) -> BenchAnswer | NoAnswer:
    """Who decodes fastest, by the rounds, and by how much over the next."""
    decodes = {each.label: series.medians for each in result.measured for series in each.family("decode")}
    ranked = sorted((label for label in decodes if decodes[label]), key=lambda label: _mean(decodes[label]))
    if not ranked:
        return NoAnswer.NOTHING_MEASURED
    best = decodes[ranked[0]]
    answer = BenchAnswer(ranked[0], None, DECODE, "tokens/s", repeats_interval(best).inverse, None, None)
    if len(ranked) == 1:
        return answer
    tests = [ratio_test(decodes[other], best, len(best) == len(decodes[other])) for other in ranked[1:]]
    (ratio, _), p = tests[0], holm([p for _, p in tests])[0]
    significant = None if p is None or ratio.value is None else p <= SIGNIFICANCE and ratio.value >= MARGIN
    return replace(answer, next=ranked[1], ratio=ratio, significant=significant)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
