"""The result of a bench as tables: medians with their 95 % interval, rates, and shares of what the machine allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from enginebench.analysis.answer import BenchAnswer, NoAnswer
from enginebench.analysis.document import Cell, Column, Document, Number, Section, Table, Word
from enginebench.analysis.frame import SCHEMA
from enginebench.analysis.sections.answers import quality_table
from enginebench.analysis.stats.estimate import interval_ranks, least_samples
from enginebench.analysis.stats.repeats import REPEATS, holm, ratio_test, repeats_interval
from enginebench.analysis.tested import Tested
from enginebench.records.rules import MARGIN, SIGNIFICANCE
from enginebench.records.view import Estimate, Missing
from engines.bench.document import DECODE, BenchResult, Result, Series

MIDDLE = 0.5  # the quantile of a median
FAMILIES = {
    "Loading and memory": ("loading",),
    "Prefill": ("prefill",),
    "One request": ("decode", "generate"),
    "Requests at the same time": ("batch",),
}
COLUMNS = (
    Column("engine", text=True),
    Column("measure", text=True),
    Column("median"),
    Column("samples", rank=2),
    Column("tokens/s", rank=1),
    Column("of memory bandwidth", rank=3),
    Column("of arithmetic", rank=4),
)


def median_of(series: Series) -> Estimate:
    """The median of all samples. Its interval is the wider of two: by the ranks of independent samples, and from three
    rounds on by Student's t over the rounds' medians, which also covers what differs between processes."""
    values = np.sort(np.asarray(series.samples, dtype=np.float64))
    n = len(values)
    if not n:
        return Estimate(None, missing=Missing.NOT_OBSERVED)
    median = float(np.median(values))
    over_rounds = repeats_interval(series.medians)
    bounds = [bound for bound in (over_rounds.low, over_rounds.high) if bound is not None]
    if n >= least_samples(MIDDLE):
        low, high = interval_ranks(n, MIDDLE)
        bounds += [float(values[low - 1]), float(values[high - 1])]
    if not bounds or len(series.medians) < REPEATS:
        return Estimate(median, n=n, missing=Missing.FEW_REPEATS)
    return Estimate(median, min(bounds), max(bounds), n)


def sections_of(result: BenchResult) -> tuple[Section, ...]:
    """A table for each family of measures, quality, and what could not be measured."""
    tables = [table for title, families in FAMILIES.items() if (table := _table(result, title, families)) is not None]
    asked = {each.label: each.quality for each in result.measured if each.quality is not None}
    quality = quality_table(asked)
    missing = _left_out(result)
    sections = [Section("bench", "Engines without HTTP", (*tables, *filter(None, (quality,))))]
    return (*sections, *([Section("left-out", "Not measured", (missing,))] if missing is not None else []))


def _table(result: BenchResult, title: str, families: tuple[str, ...]) -> Table | None:
    shown = [(each, series) for each in result.measured for name in families for series in each.family(name)]
    rows = tuple(tuple(_cells(each, series)) for each, series in shown)
    key = f"bench-{families[0]}"
    return Table(key, title, COLUMNS, rows, 0).without_empty_columns() if rows else None


def _cells(result: Result, series: Series) -> Iterator[Cell]:
    measure, median = series.measure, median_of(series)
    yield from (Word(result.label), Word(measure.title), Number(median, measure.unit))
    yield Number(Estimate(float(median.n)), style="count")
    rate = measure.unit == "s" and measure.family != "loading" and median.value
    yield Number(median.inverse.scaled(measure.size or 1), "tokens/s") if rate else None
    shares = (None, None) if series.share is None else (series.share.bandwidth, series.share.flops)
    yield from (None if share is None else Number(Estimate(share), "share") for share in shares)


def _left_out(result: BenchResult) -> Table | None:
    rows: list[tuple[Cell, ...]] = [
        (Word(each.label), Word("all"), Word(each.failure)) for each in result.results if each.failure is not None
    ]
    rows += [(Word(each.label), Word(left.case), Word(left.why)) for each in result.results for left in each.left_out]
    headings = (Column("engine", text=True), Column("measure", text=True), Column("reason", text=True))
    return Table("left-out", "Not measured", headings, tuple(rows)) if rows else None


def answer_of(result: BenchResult) -> BenchAnswer | NoAnswer:
    """Who decodes fastest, by the rounds, and by how much over the next."""
    decodes = {each.label: series for each in result.measured if (series := each.of(DECODE)) is not None}
    rates = {label: [1 / value for value in series.medians if value > 0] for label, series in decodes.items()}
    ranked = sorted((label for label in rates if rates[label]), key=lambda label: -float(np.median(rates[label])))
    if not ranked:
        return NoAnswer.NOTHING_MEASURED
    best, following = ranked[0], ranked[1] if len(ranked) > 1 else None
    value = median_of(decodes[best]).inverse
    if following is None:
        return BenchAnswer(best, None, DECODE, "tokens/s", value, None, None)
    tests = [ratio_test(rates[best], rates[other], len(rates[best]) == len(rates[other])) for other in ranked[1:]]
    (ratio, _), p = tests[0], holm([p for _, p in tests])[0]
    significant = None if p is None or ratio.value is None else p <= SIGNIFICANCE and ratio.value >= MARGIN
    return BenchAnswer(best, following, DECODE, "tokens/s", value, ratio, significant)


def document_of(result: BenchResult) -> Document:
    """One bench by itself."""
    models = tuple(dict.fromkeys(each.model for each in result.measured if each.model))
    engines = tuple(dict.fromkeys(each.label for each in result.measured))
    return Document(
        title="bench",
        tested=Tested.of_benches(models, engines, [result.host], [result.made_at]),
        objectives=(),
        answer=answer_of(result),
        candidates=candidates(result),
        figure=None,
        next=None,
        warnings=(),
        sections=sections_of(result),
        frame=pl.DataFrame(list(rows_of(result)), schema=SCHEMA),
    )


def candidates(result: BenchResult) -> Table | None:
    """A row for each engine, the fastest at decoding first, with its largest prefill and batch."""
    rows = []
    for each in result.measured:
        decode, prefill, batch = (_largest(each, family) for family in ("decode", "prefill", "batch"))
        memory = each.of("memory peak")
        size = prefill.measure.size or 1 if prefill is not None else 1
        rows.append(
            (
                Word(each.label),
                None if each.info is None or each.info.dtype is None else Word(each.info.dtype),
                None if decode is None else Number(median_of(decode).inverse, "tokens/s"),
                None if prefill is None else Number(median_of(prefill).inverse.scaled(size), "tokens/s"),
                None if batch is None else Number(median_of(batch), "tokens/s"),
                None if memory is None else Number(median_of(memory), "B"),
            )
        )
    if not rows:
        return None
    headings = (
        *(Column("engine", text=True), Column("format", text=True, rank=2), Column("decode", "tokens/s, one request")),
        *(
            Column("prefill", "tokens/s, longest prompt"),
            Column("batch", "tokens/s, largest"),
            Column("memory", rank=1),
        ),
    )
    ranked = sorted(rows, key=lambda row: -_value(row[2]))
    return Table("candidates", "Candidates", headings, tuple(ranked), 0).without_empty_columns()


def _value(cell: Cell) -> float:
    return cell.estimate.value or 0.0 if isinstance(cell, Number) else 0.0


def _largest(result: Result, family: str) -> Series | None:
    """The measure of the largest size, by our clock, if it has samples."""
    timed = [series for series in result.family(family) if series.measure.unit in {"s", "tokens/s"} and series.samples]
    return max(timed, key=lambda series: (series.measure.size or 0, -len(series.measure.name)), default=None)


def rows_of(result: BenchResult, study: str = "", part: str = "", model: str | None = None) -> Iterator[dict[str, Any]]:
    """Rows of the tidy frame: the median of each measure of each engine."""
    empty = dict.fromkeys(SCHEMA.names())
    for each in result.measured:
        for series in each.series:
            median = median_of(series)
            yield empty | {
                "study": study or None,
                "part": part or None,
                "model": model or each.model,
                "engine": each.label,
                "metric": series.measure.name,
                "statistic": "median",
                "unit": series.measure.unit,
                "value": median.value,
                "low": median.low,
                "high": median.high,
                "n": median.n,
                "missing": None if median.missing is None else median.missing.value,
            }
