"""The result as tables of text, notes and a sentence: medians with their spread and 95 % interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.text import Text

from enginebench.analysis.compare.metric_comparison import Sample, ranked
from enginebench.analysis.compare.quality import table_of_quality
from enginebench.analysis.compare.tables import ratio_text
from enginebench.analysis.console import TextTable, print_table
from enginebench.analysis.report.profiles import shown_profile
from enginebench.analysis.stats.estimate import interval_ranks, least_samples
from enginebench.analysis.stats.repeats import REPEATS, repeats_interval
from enginebench.records.formatting import MISSING, format_share, format_value, in_words, significant
from enginebench.records.metrics import Column, Quantity
from enginebench.records.rules import MARGIN
from enginebench.records.view import Estimate
from engines.bench.document import DECODE, BenchResult, Result, Series

MIDDLE = 0.5  # the quantile of a median
DECODE_RATE = Column(Quantity("decode_rate", "decoding", "tokens/s", "", "tokens of one request", "higher"), "value")
FAMILIES = {
    "Loading and memory": ("loading",),
    "Prefill": ("prefill",),
    "One request": ("decode", "generate"),
    "Requests at the same time": ("batch",),
}
HEADERS = ("engine", "measure", "median", "MAD", "95 % interval", "samples", "tokens/s", "of the limit")
NARROW = ("MAD", "samples", "tokens/s")
"""Columns that a narrow terminal goes without, in this order."""
CAPTION = (
    "Medians over all samples of all rounds. The interval also covers what differs from one process of an engine to "
    "the next. Of the limit: the larger share of the memory bandwidth and of the arithmetic that were measured here."
)


@dataclass(frozen=True, slots=True)
class Middle:
    """`mad` is the median absolute deviation of all samples, `None` of one. `why` says why there is no interval.

    The interval is the wider of two: what the samples allow if they are independent (ranks of the median, binomial),
    and, from three rounds on, what the rounds' medians allow (Student's t), which also holds where processes differ.
    """

    median: float
    mad: float | None
    low: float | None
    high: float | None
    n: int
    why: str | None = None


def middle_of(series: Series) -> Middle | None:
    """`None` without samples."""
    values = np.sort(np.asarray(series.samples, dtype=np.float64))
    n = len(values)
    if not n:
        return None
    median = float(np.median(values))
    mad = float(np.median(np.abs(values - median))) if n > 1 else None
    over_rounds = repeats_interval(series.medians)
    bounds = [bound for bound in (over_rounds.low, over_rounds.high) if bound is not None]
    if n >= least_samples(MIDDLE):
        low, high = interval_ranks(n, MIDDLE)
        bounds += [float(values[low - 1]), float(values[high - 1])]
    if not bounds:
        return Middle(median, mad, None, None, n, f"{len(series.medians)} < {REPEATS} rounds")
    if len(series.medians) < REPEATS:
        why = f"of {len(series.medians)} process{'es' * (len(series.medians) > 1)}: another may differ"
        return Middle(median, mad, min(bounds), max(bounds), n, why)
    return Middle(median, mad, min(bounds), max(bounds), n)


def tables_of(found: BenchResult) -> list[TextTable]:
    """One for each family of measures that has figures. Below it, why intervals are missing."""
    tables = []
    for title, families in FAMILIES.items():
        shown = [(one, series) for one in found.measured for name in families for series in one.family(name)]
        middles = [middle_of(series) for _, series in shown]
        reasons = dict.fromkeys(middle.why for middle in middles if middle and middle.low is None and middle.why)
        caption = f"No interval: {', '.join(reasons)}." if reasons else ""
        rows = tuple(_row(one, series, middle) for (one, series), middle in zip(shown, middles, strict=True))
        tables += [TextTable(title, HEADERS, rows, (0, 1), caption)] if rows else []
    return tables


def quality_table(found: BenchResult) -> TextTable | None:
    """`None` where no engine has one."""
    rows = found.qualities
    return table_of_quality(rows) if any(one.perplexity is not None for one in rows) else None


def _row(result: Result, series: Series, middle: Middle | None) -> tuple[str, ...]:
    measure = series.measure
    if middle is None:
        return (result.label, measure.title, *[MISSING] * (len(HEADERS) - 2))
    return (
        result.label,
        measure.title,
        _value(middle.median, measure.unit),
        MISSING if middle.mad is None else _value(middle.mad, measure.unit),
        _interval(middle, measure.unit),
        str(middle.n),
        _rate(series, middle),
        _limit(series),
    )


def _interval(middle: Middle, unit: str) -> str:
    if middle.low is None or middle.high is None:
        return MISSING
    return f"[{_value(middle.low, unit)}, {_value(middle.high, unit)}]"


def _value(value: float, unit: str) -> str:
    return f"{significant(value)} {unit}" if unit == "tokens/s" else format_value(value, unit)


def _rate(series: Series, middle: Middle) -> str:
    """Of prompt tokens in a prefill, of output tokens in a generation."""
    measure = series.measure
    if measure.unit != "s" or measure.family == "loading" or middle.median <= 0:
        return ""
    return significant((measure.size or 1) / middle.median)


def _limit(series: Series) -> str:
    if series.share is None:
        return ""
    shares = {"memory": series.share.bandwidth, "compute": series.share.flops}
    known = {name: share for name, share in shares.items() if share is not None}
    if not known:
        return MISSING
    binding = max(known, key=lambda name: known[name])
    return f"{format_share(known[binding])} {binding}"


def notes_of(found: BenchResult) -> Iterator[str]:
    """What is missing and why, what the limits are, and what disturbed the figures."""
    for result in found.results:
        if result.failure is not None:
            yield f"{result.label} was not measured: {result.failure}"
        reasons: dict[str, list[str]] = {}
        for one in result.left_out:
            of_some = " in some rounds" if result.of(one.case) is not None else ""
            reasons.setdefault(one.why, []).append(f"{one.case}{of_some}")
        for why, cases in reasons.items():
            yield f"{result.label} without {in_words(cases)}: {why}."
    limits = {(one.device, one.dtype): one for each in found.rounds for one in each.limits}
    for limit in limits.values():
        bandwidth = MISSING if limit.bandwidth is None else f"{significant(limit.bandwidth / 1e9)} GB/s"
        flops = MISSING if limit.flops is None else f"{significant(limit.flops / 1e9)} GFLOP/s in {limit.dtype}"
        yield f"{limit.device} reads {bandwidth} and multiplies {flops} ({limit.by}, last round)."
    busy = max((one.load_average for one in found.rounds), default=0.0)
    cores = found.host.get("usable_cores") or found.host.get("cores") or 1
    if busy > 1 and found.rounds[0].load_average > 0.5 * cores:
        yield f"The machine was not idle: a load average of {busy:.1f} on {cores} cores."


def sentence_of(found: BenchResult) -> str:
    """Who decodes fastest, by the rounds; of one engine how fast it is."""
    decodes = {one.label: series for one in found.measured if (series := one.of(DECODE)) is not None}
    if not decodes:
        return "No time per decoded token was measured." if found.measured else "Nothing was measured."
    if len(decodes) == 1:
        ((label, series),) = decodes.items()
        middle = middle_of(series)
        assert middle is not None
        interval = _interval(middle, "s") if middle.low is not None else f"(no interval: {middle.why})"
        return f"{label} decodes a token in {format_value(middle.median, 's')} {interval}."
    samples = [
        Sample(label, tuple(Estimate(1 / value) for value in series.medians)) for label, series in decodes.items()
    ]
    paired = len({len(sample.estimates) for sample in samples}) == 1
    second, *others = ranked(DECODE_RATE, samples, paired, MARGIN)
    for lead in (second, *others):
        if lead.verdict != "better":
            ratio, why = ratio_text(lead.ratio), lead.why or "no difference is shown"
            faster = f"{lead.engine} decodes {ratio} the tokens/s of" if ratio != MISSING else "against"
            return f"No engine is named as the fastest at decoding: {faster} {lead.over} ({why})."
    return f"{second.engine} decodes {ratio_text(second.ratio)} the tokens/s of {second.over}."


def print_result(console: Console, found: BenchResult) -> None:
    for table in tables_of(found):
        print_table(console, table, NARROW)
    if found.measured:
        console.print(Text(CAPTION, style="dim"))
    if (quality := quality_table(found)) is not None:
        print_table(console, quality)
    for shown in map(shown_profile, found.profiles):
        console.print(Text(f"{shown.title}. {shown.sentence}"))
        if shown.table is not None:
            print_table(console, shown.table)
    for note in notes_of(found):
        console.print(Text(f"note: {note}", style="dim"))
    console.print(Text(sentence_of(found), style="bold"))
