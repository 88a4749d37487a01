"""The result of a bench as a document of the analysis. Rounds are its repeats: each round's median is one sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import polars as pl

from enginebench.analysis.answer import BenchAnswer, Lead, NoAnswer
from enginebench.analysis.document import (
    Axis,
    Cell,
    Column,
    Document,
    Figure,
    Number,
    Point,
    Section,
    Series,
    Table,
    Word,
    count,
    word,
)
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


@dataclass(frozen=True, slots=True)
class Measured:
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
        return interval if statistic == MEDIAN else interval.clipped(0.0, 1.0)

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
        answer=answer(series),
        candidates=candidates(series, formats),
        figure=figure(series),
        sections=sections(result, series),
        frame=frame(result.rows),
    )


def series_of(rows: Iterable[Row]) -> list[Measured]:
    """Group rows by engine, metric and size, in the order of the first round."""
    groups: dict[tuple[str, str, int | None], list[Row]] = {}
    for row in rows:
        if row.engine is not None:
            groups.setdefault((row.engine, row.metric, row.load), []).append(row)
    return [Measured(*key, tuple(group)) for key, group in groups.items()]


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return the rows of single rounds, and rows over all rounds of each engine."""
    over = []
    for series in series_of(rows):
        for row in {row.statistic: row for row in series.rows}.values():
            estimate = series.estimate(row.statistic)
            over.append(asdict(replace(row, repeat=None)) | cells(row.metric, row.statistic, row.unit, estimate))
    return pl.DataFrame([*map(asdict, rows), *over], schema=SCHEMA)


def sections(result: BenchResult, series: Sequence[Measured]) -> tuple[Section, ...]:
    """Build the sections of the measures, with the quality on a fixed text, and of the missing measurements."""
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


def _measure_cells(series: Measured) -> tuple[Cell, ...]:
    shares = (series.estimate(statistic) for statistic in (BANDWIDTH, ARITHMETIC))
    return (
        Word(series.engine),
        Word(METRICS[series.metric].title.format(series.size)),
        Number(series.estimate(), series.unit),
        count(sum(row.n for row in series.rows if row.statistic == MEDIAN)),
        series.rate if series.unit == "s" else None,
        *(None if share.value is None else Number(share, "share") for share in shares),
    )


def candidates(series: Sequence[Measured], formats: Mapping[str, str]) -> Table | None:
    """Build a row for each engine, the fastest decoder first. Sizes are the largest with which all engines were
    measured; a batch of one request is left out."""
    sizes = {family: common_size(series, family) for family in ("prefill", "batch")}
    columns = (
        Column("engine", text=True),
        Column("format", text=True, rank=2),
        Column("decode", "tokens/s, one request"),
        Column("prefill", f"tokens/s, {sizes['prefill']} tokens"),
        Column("batch", f"tokens/s, {sizes['batch']} at a time"),
        Column("peak memory", rank=1),
    )
    rows: list[tuple[float, tuple[Cell, ...]]] = []
    for engine in dict.fromkeys(item.engine for item in series):
        own = {(item.metric, item.size): item for item in series if item.engine == engine}
        decode = next((item.rate for (metric, _), item in own.items() if metric == "decode"), None)
        sized = [own.get((family, size)) if (family, size) != ("batch", 1) else None for family, size in sizes.items()]
        memory = next((Number(item.estimate(), "B") for item in own.values() if item.metric == "memory peak"), None)
        cells = (decode, *(None if item is None else item.rate for item in sized), memory)
        speed = 0.0 if decode is None else decode.estimate.value or 0.0
        rows.append((speed, (Word(engine), word(formats.get(engine)), *cells)))
    ranked = tuple(row for _, row in sorted(rows, key=lambda ranked: -ranked[0]))
    return Table("candidates", "Candidates", columns, ranked, 0).without_empty_columns() if rows else None


def common_size(series: Sequence[Measured], metric: str) -> int | None:
    """Return the largest size at which every engine that has the metric was measured in all rounds; else `None`."""
    sizes: dict[str, dict[int, int]] = {}
    for item in series:
        if item.metric == metric and item.size is not None:
            sizes.setdefault(item.engine, {})[item.size] = len(item.values())
    complete = [{size for size, n in own.items() if n == max(own.values())} for own in sizes.values()]
    return max(set.intersection(*complete), default=None) if complete else None


def figure(series: Sequence[Measured]) -> Figure | None:
    """Draw the speed of prefill by the length of the prompt."""
    lines = []
    for engine in dict.fromkeys(item.engine for item in series):
        timed = [item for item in series if (item.engine, item.metric) == (engine, "prefill")]
        estimates = {item.size or 0: item.rate.estimate for item in timed if item.rate is not None}
        points = [Point(float(n), e.value, e.low, e.high, f"{n} tokens") for n, e in sorted(estimates.items())]
        lines += [Series(engine, tuple(points))] if points else []
    if max((len(line.points) for line in lines), default=0) < 2:
        return None
    x, y = Axis("prompt tokens"), Axis("prefill", "tokens/s")
    return Figure("prefill", "Prefill tokens/s by length of the prompt", "load", x, y, tuple(lines))


def answer(series: Sequence[Measured]) -> BenchAnswer | NoAnswer:
    """Return the engines that are fastest to decode, and to read the longest prompt with which all were measured."""
    decode = _lead([item for item in series if item.metric == "decode"])
    if decode is None:
        return NoAnswer.NOTHING_MEASURED
    size = common_size(series, "prefill")
    prefill = _lead([item for item in series if (item.metric, item.size) == ("prefill", size)])
    return BenchAnswer(decode, prefill, size or 0)


def _lead(timed: Sequence[Measured]) -> Lead | None:
    """Compare the fastest of several engines with the others over the rounds."""
    best, *others = sorted(timed, key=lambda item: item.estimate().value or math.inf) if timed else (None,)
    if best is None or best.rate is None:
        return None
    lead = Lead(best.engine, best.rate.estimate)
    if not others:
        return lead
    runs = [[value for value in item.values() if value is not None] for item in (best, *others)]
    tests = [ratio_test(slower, runs[0], len(runs[0]) == len(slower)) for slower in runs[1:]]
    (ratio, _), p = tests[0], holm([p for _, p in tests])[0]
    significant = None if p is None or ratio.value is None else p <= SIGNIFICANCE and ratio.value >= MARGIN
    return replace(lead, next=others[0].engine, ratio=ratio, significant=significant)
