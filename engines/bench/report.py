"""The result of a bench as a document of the analysis. Rounds are its repeats: each round's median is one sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import polars as pl

from enginebench.analysis.answer import BenchAnswer, NoAnswer
from enginebench.analysis.document import Cell, Column, Document, Number, Section, Table, Word, count, word
from enginebench.analysis.frame import SCHEMA, cells
from enginebench.analysis.sections.answers import quality_table
from enginebench.analysis.stats.repeats import holm, ratio_test, repeats_interval
from enginebench.analysis.tested import Tested
from enginebench.records.rules import MARGIN, SIGNIFICANCE
from enginebench.records.view import Estimate, Missing
from engines.bench.result import ARITHMETIC, BANDWIDTH, MEDIAN, METRICS, BenchResult, Family, Row

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


@dataclass(frozen=True, slots=True)
class Series:
    """The rows of one metric of one engine, one for each round and statistic."""

    engine: str
    metric: str
    size: int | None
    rows: tuple[Row, ...]

    @property
    def family(self) -> Family:
        return METRICS[self.metric].family

    @property
    def unit(self) -> str:
        return METRICS[self.metric].unit

    def values(self, statistic: str = MEDIAN) -> list[float | None]:
        return [row.value for row in self.rows if row.statistic == statistic]

    def estimate(self, statistic: str = MEDIAN) -> Estimate:
        """Return the mean over the rounds with its interval; without a value if a round has none."""
        values = [value for value in self.values(statistic) if value is not None]
        if len(values) < len(self.values()):
            return Estimate(None, n=len(values), missing=Missing.NOT_OBSERVED)
        interval = repeats_interval(values)
        return interval if statistic == MEDIAN else interval.within(0.0, 1.0)

    @property
    def rate(self) -> Number | None:
        """Return tokens per second by our clock; `None` for other metrics."""
        if self.unit == "s" and self.family != "loading":
            return Number(self.estimate().inverse.scaled(self.size or 1), "tokens/s")
        return Number(self.estimate(), "tokens/s") if self.unit == "tokens/s" else None


def bench_document(result: BenchResult) -> Document:
    series = series_of(result.rows)
    labels = {item.engine for item in series}
    measured = [engine for engine in result.engines if engine.label in labels]
    formats = {engine.label: engine.info.dtype for engine in measured if engine.info is not None}
    repeats = {(row.engine, row.repeat) for row in result.rows}
    rounds = max((sum(engine == label for engine, _ in repeats) for label in labels), default=1)
    models = tuple(dict.fromkeys(engine.model for engine in measured if engine.model))
    names = tuple(engine.label for engine in measured)
    return Document(
        title="bench",
        tested=Tested.from_benches(models, names, result.host, result.made_at, rounds),
        objectives=(),
        answer=answer(series),
        candidates=candidates(series, formats),
        figure=None,
        next=None,
        warnings=(),
        sections=sections(result, series),
        frame=frame(result.rows),
    )


def series_of(rows: Iterable[Row]) -> list[Series]:
    """Group rows by engine, metric and size, in the order of the first round."""
    groups: dict[tuple[str, str, int | None], list[Row]] = {}
    for row in rows:
        if row.engine is not None:
            groups.setdefault((row.engine, row.metric, row.load), []).append(row)
    return [Series(*key, tuple(group)) for key, group in groups.items()]


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Add to the rows of the rounds those over all rounds of an engine."""
    over = []
    for series in series_of(rows):
        for row in {row.statistic: row for row in series.rows}.values():
            estimate = series.estimate(row.statistic)
            over.append(asdict(replace(row, repeat=None)) | cells(row.metric, row.statistic, row.unit, estimate))
    return pl.DataFrame([*map(asdict, rows), *over], schema=SCHEMA)


def sections(result: BenchResult, series: Sequence[Series]) -> tuple[Section, ...]:
    """Build the measures with the quality on a fixed text, and what could not be measured."""
    measures = Table("bench", "Measures", COLUMNS, tuple(map(_measure_cells, series)), 0).without_empty_columns()
    quality = quality_table({engine.label: engine.quality for engine in result.engines if engine.quality is not None})
    headings = (Column("engine", text=True), Column("measure", text=True), Column("reason", text=True))
    reasons = tuple((Word(case.engine), Word(case.case), Word(case.why)) for case in result.left_out)
    missing = Table("left-out", "Not measured", headings, reasons)
    built = (
        Section("bench", "Engines without HTTP", (measures,) if quality is None else (measures, quality)),
        Section("left-out", "Not measured", (missing,)),
    )
    return tuple(section for section, rows in zip(built, (series, reasons), strict=True) if rows)


def _measure_cells(series: Series) -> tuple[Cell, ...]:
    shares = (series.estimate(statistic) for statistic in (BANDWIDTH, ARITHMETIC))
    return (
        Word(series.engine),
        Word(METRICS[series.metric].title.format(series.size)),
        Number(series.estimate(), series.unit),
        count(sum(row.n for row in series.rows if row.statistic == MEDIAN)),
        series.rate if series.unit == "s" else None,
        *(None if share.value is None else Number(share, "share") for share in shares),
    )


def candidates(series: Sequence[Series], formats: Mapping[str, str]) -> Table | None:
    """Build a row for each engine with its largest prefill and batch, the fastest decoder first."""
    rows: list[tuple[float, tuple[Cell, ...]]] = []
    for engine in dict.fromkeys(item.engine for item in series):
        own = [item for item in series if item.engine == engine]
        decode, prefill, batch = (_largest_rate(own, family) for family in ("decode", "prefill", "batch"))
        memory = next((Number(item.estimate(), "B") for item in own if item.metric == "memory peak"), None)
        speed = 0.0 if decode is None else decode.estimate.value or 0.0
        rows.append((speed, (Word(engine), word(formats.get(engine)), decode, prefill, batch, memory)))
    ranked = tuple(row for _, row in sorted(rows, key=lambda ranked: -ranked[0]))
    return Table("candidates", "Candidates", CANDIDATES, ranked, 0).without_empty_columns() if rows else None


def _largest_rate(series: Sequence[Series], family: Family) -> Number | None:
    """Return the tokens per second of the largest size, by our clock and with prompts."""
    timed = [item for item in series if item.metric == family and item.rate is not None]
    return max(timed, key=lambda item: item.size or 0).rate if timed else None


def answer(series: Sequence[Series]) -> BenchAnswer | NoAnswer:
    """Return the fastest decoder over the rounds, and its lead over the next."""
    decodes = sorted((item for item in series if item.metric == "decode"), key=lambda item: item.estimate().value or 0)
    if not decodes:
        return NoAnswer.NOTHING_MEASURED
    best = decodes[0]
    alone = BenchAnswer(best.engine, None, "decode", "tokens/s", best.estimate().inverse, None, None)
    if len(decodes) == 1:
        return alone
    runs = [[value for value in item.values() if value is not None] for item in decodes]
    tests = [ratio_test(slower, runs[0], len(runs[0]) == len(slower)) for slower in runs[1:]]
    (ratio, _), p = tests[0], holm([p for _, p in tests])[0]
    significant = None if p is None or ratio.value is None else p <= SIGNIFICANCE and ratio.value >= MARGIN
    return replace(alone, next=decodes[1].engine, ratio=ratio, significant=significant)
