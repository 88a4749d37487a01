"""The result of a bench as a document of the analysis. Rounds are its repeats: each round's median is one sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean, median
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
    models = tuple(dict.fromkeys(variant.model for variant in result.measured if variant.model))
    engines = tuple(dict.fromkeys(variant.label for variant in result.measured))
    rounds = max((len(series.rounds) for variant in result.measured for series in variant.series), default=1)
    return Document(
        title="bench",
        tested=Tested.from_benches(models, engines, result.host, result.made_at, rounds),
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
    """Yield rows of the frame: every measure in each round and over the rounds. `place` has study, part and model."""
    for variant in result.measured:
        for series in variant.series:
            measure = series.measure
            at = {"model": variant.model, "engine": variant.label, "stage": measure.title} | place
            for repeat, samples in enumerate(series.rounds):
                if samples:
                    estimate = Estimate(median(samples), n=len(samples))
                    yield at | {"repeat": repeat} | cells(measure.name, "median", measure.unit, estimate)
            yield at | cells(measure.name, "median", measure.unit, repeats_interval(series.medians))


def sections_of(result: BenchResult) -> tuple[Section, ...]:
    """Build the measures with the quality on a fixed text, and what could not be measured."""
    rows = tuple(tuple(_cells(variant, series)) for variant in result.measured for series in variant.series)
    blocks = [Table("bench", "Measures", COLUMNS, rows, 0).without_empty_columns()] if rows else []
    quality = quality_table(
        {variant.label: variant.quality for variant in result.measured if variant.quality is not None}
    )
    blocks += [] if quality is None else [quality]
    lacking: list[tuple[Cell, ...]] = [
        (Word(variant.label), Word("all"), Word(variant.failure))
        for variant in result.results
        if variant.failure is not None
    ]
    lacking += [
        (Word(variant.label), Word(left.case), Word(left.why))
        for variant in result.results
        for left in variant.left_out
    ]
    headings = (Column("engine", text=True), Column("measure", text=True), Column("reason", text=True))
    missing = Table("left-out", "Not measured", headings, tuple(lacking))
    sections = (
        Section("bench", "Engines without HTTP", tuple(blocks)),
        Section("left-out", "Not measured", (missing,)),
    )
    return tuple(section for section, rows in zip(sections, (blocks, lacking), strict=True) if rows)


def _cells(result: Result, series: Series) -> Iterator[Cell]:
    measure, estimate = series.measure, repeats_interval(series.medians)
    yield from (Word(result.label), Word(measure.title), Number(estimate, measure.unit))
    yield Number(Estimate(float(sum(map(len, series.rounds)))), style="count")
    yield _rate(series) if measure.unit == "s" and measure.family != "loading" and estimate.value else None
    shares = (None, None) if series.share is None else (series.share.bandwidth, series.share.flops)
    yield from (None if share is None else Number(Estimate(share), "share") for share in shares)


def _rate(series: Series) -> Number:
    """Convert a measure in seconds to tokens per second."""
    size = series.measure.size or 1
    return Number(repeats_interval(series.medians).inverse.scaled(size), "tokens/s")


def candidates(result: BenchResult) -> Table | None:
    """Build a row for each engine with its largest prefill and batch, the fastest decoder first."""
    rows: list[tuple[float, tuple[Cell, ...]]] = []
    for variant in result.measured:
        decode, prefill, batch = (_largest(variant, family) for family in ("decode", "prefill", "batch"))
        memory = next((series for series in variant.series if series.measure.name == "memory peak"), None)
        rate = None if decode is None else _rate(decode)
        row: tuple[Cell, ...] = (
            Word(variant.label),
            None if variant.info is None or variant.info.dtype is None else Word(variant.info.dtype),
            rate,
            None if prefill is None else _rate(prefill),
            None if batch is None else Number(repeats_interval(batch.medians), "tokens/s"),
            None if memory is None else Number(repeats_interval(memory.medians), "B"),
        )
        rows.append((rate.estimate.value or 0.0 if rate is not None else 0.0, row))
    ranked = tuple(row for _, row in sorted(rows, key=lambda ranked: -ranked[0]))
    return Table("candidates", "Candidates", CANDIDATES, ranked, 0).without_empty_columns() if rows else None


def _largest(result: Result, family: str) -> Series | None:
    """Return the measured series of the largest size by our clock."""
    timed = [series for series in result.family(family) if series.measure.unit in {"s", "tokens/s"} and series.medians]
    return max(timed, key=lambda series: (series.measure.size or 0, -len(series.measure.name)), default=None)


def answer_of(result: BenchResult) -> BenchAnswer | NoAnswer:
    """Return the fastest decoder over the rounds, and its lead over the next."""
    decodes = {variant.label: series.medians for variant in result.measured for series in variant.family("decode")}
    ranked = sorted((label for label in decodes if decodes[label]), key=lambda label: fmean(decodes[label]))
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
