"""A comparison as tables of text, and as rows of the tidy frame: every load, the capacity within the objectives, metric
by metric at the headline's load, and the runs that all of it is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from enginebench.analysis.compare.capacity import CapacityComparison
from enginebench.analysis.compare.comparison import Comparison, ServedLoad
from enginebench.analysis.compare.engine_runs import DECIDING
from enginebench.analysis.compare.metric_comparison import MetricComparison
from enginebench.analysis.compare.quality import quality_rows, table_of_quality
from enginebench.analysis.console import CAUTION, GOOD, TextTable
from enginebench.analysis.stats.differences import OUTLIER_RUNS, Spread
from enginebench.analysis.stats.repeats import REPEATS
from enginebench.analysis.summary.frame import finding_row
from enginebench.records.formatting import (
    MISSING,
    ShownUnit,
    column_unit,
    format_estimate,
    format_p,
    format_points,
    format_ratio,
    format_share,
    format_value,
    in_words,
    interval_ends,
    significant,
)
from enginebench.records.rules import SIGNIFICANCE
from enginebench.records.view import Estimate

INFINITE = "∞"
WIDEST = 1000  # ratio of the ends of a ratio's interval that is shown
BASELINE, NOT_CLAIMED, ANSWERS = "baseline", "not claimed", "same answers"
STYLES = {"better": GOOD, "worse": "bold red", NOT_CLAIMED: CAUTION, "met": GOOD, "missed": "bold red"}
LEFT_OUT = (
    "limited by",
    *("Welch", "by prompt", "Mann–Whitney", "Cohen's d", "Cliff's δ", "MAD", "median", "mean", "difference"),
    ANSWERS,
    "output tokens/s",  # of every load: the ratio has what they say
)
"""Columns that a narrow terminal goes without, in this order: none of a verdict is among them."""


def tables_of(comparison: Comparison) -> list[TextTable]:
    """Empty where there is nothing to compare."""
    if len(comparison.engines) < 2:
        return []
    details = (_metrics(comparison), _runs(comparison))
    quality = [table_of_quality(comparison.quality)] if comparison.quality else []
    return [*overview_of(comparison), *quality, *(table for table in details if table.rows)]


def overview_of(comparison: Comparison) -> list[TextTable]:
    """The first of them: the engines by capacity, and at every load."""
    if len(comparison.engines) < 2:
        return []
    return [table for table in (_capacities(comparison), _loads(comparison)) if table.rows]


def criteria(comparison: Comparison) -> str:
    """What better, worse and alike mean, for below the tables."""
    points = significant(100 * (comparison.margin - 1), 2)
    text = (
        f"Better or worse: p ≤ {format_share(SIGNIFICANCE)} and a ratio of {comparison.margin:g} or more (of shares "
        f"{points} points). Alike: the whole interval lies within that margin. p: t test over runs, after Holm's "
        "correction for all tests at the load, those of output tokens/s among each other."
    )
    if comparison.capacities:
        text += (
            f" Load within the objectives: better or worse where, in {REPEATS} runs of each or more, one engine meets "
            f"a load that the other misses, and the ratio is {comparison.margin:g} or more. These are brackets of "
            "measured loads, not samples, and have no p value."
        )
    return text


def _named_engines(comparison: Comparison) -> list[str]:
    """The baseline first."""
    return [comparison.baseline, *comparison.others]


def _capacities(comparison: Comparison) -> TextTable:
    """Who holds how much load within the objectives."""
    rows = []
    for engine in _named_engines(comparison):
        capacity, ratio = comparison.capacity(engine), comparison.capacity_ratio(engine)
        if capacity is None:
            continue
        is_base, over = engine == comparison.baseline, Estimate(None) if ratio is None else ratio.ratio
        verdict = BASELINE if is_base else MISSING if ratio is None else verdict_text(comparison, ratio)
        limit = "" if capacity.limit is None else capacity.limit.sentence
        rows.append((engine, capacity.bracket, "1" if is_base else ratio_text(over), verdict, limit))
    slo = comparison.capacities[0].slo if comparison.capacities else ""
    headers = ("engine", "holds", f"ratio over {comparison.baseline}", "verdict", "limited by")
    caption = (
        "Measured loads, all repeats together; nothing in between is interpolated. The interval of the ratio is what "
        "the loads that meet the objectives and those that miss them allow."
    )
    return TextTable(f"Load within {slo}", headers, tuple(rows), (0, 1, 3, 4), caption)


def _loads(comparison: Comparison) -> TextTable:
    """Every engine at every load."""
    judged = any(load.answer is not None for load in comparison.loads)
    headers = ("load", "engine", "SLO", "output tokens/s", "ratio", "p", "verdict", ANSWERS)
    labels = {load.stage: None for load in comparison.loads}
    answers = {each.engine: each.text for each in comparison.answers if each.prompts}
    by_place = {(load.stage, load.engine): load for load in comparison.loads}
    rows = []
    for label in labels:
        here = [engine for engine in _named_engines(comparison) if (label, engine) in by_place]
        for index, engine in enumerate(here):
            cells = _load(comparison, by_place[label, engine])
            same = answers.get(engine, "") if label == comparison.stage else ""
            rows.append((label if index == 0 else "", engine, *cells, same))
    caption = f"Ratios over {comparison.baseline}, with 95 % intervals over runs: above 1 is better."
    why = dict.fromkeys(each.why for each in comparison.answers if each.why)
    if answers:
        caption += f" {ANSWERS.capitalize()}: of the prompts that both answered at {comparison.stage}, in every run."
    elif why:
        caption += f" Answers are not compared ({'; '.join(map(str, why))})."
    different = in_words([f"{engine} ({what})" for engine, what in comparison.differs.items()])
    caption += f" Unlike the other runs: {different}." if different else ""
    table = TextTable("Every load", headers, tuple(rows), (0, 1, 2, 6, 7), caption)
    unused = {"SLO": not judged, ANSWERS: not answers}
    return table.without([header for header, is_unused in unused.items() if is_unused])


def _load(comparison: Comparison, load: ServedLoad) -> tuple[str, ...]:
    tokens = format_estimate(load.tokens.value, load.tokens.low, load.tokens.high)
    answer = "undecided" if load.answer == "not enough evidence" else load.answer or MISSING
    if load.engine == comparison.baseline:
        return answer, tokens, "1", "", BASELINE
    compared = comparison.of(load.stage, load.engine, DECIDING)
    if compared is None:
        return answer, tokens, MISSING, "", MISSING
    return answer, tokens, ratio_text(compared.ratio), format_p(compared.p), verdict_text(comparison, compared)


def verdict_text(comparison: Comparison, compared: MetricComparison | CapacityComparison) -> str:
    unlike = {compared.engine, compared.over} & set(comparison.unlike)
    return NOT_CLAIMED if unlike else compared.verdict


def _metrics(comparison: Comparison) -> TextTable:
    headers = (
        *("engine", "metric", "baseline", "this engine", "difference", "ratio", "by prompt", "p"),
        *("Welch", "Mann–Whitney", "Cohen's d", "Cliff's δ", "verdict"),
    )
    comparisons = [each for engine in comparison.others for each in comparison.at(comparison.stage, engine)]
    rows = tuple(
        (
            each.engine,
            each.column.full_title,
            format_value(each.theirs.mean, each.column.unit),
            format_value(each.ours.mean, each.column.unit),
            _difference(each.difference, each.column.unit),
            "" if not each.column.relative else ratio_text(each.ratio),
            "" if each.by_prompt is None else ratio_text(each.by_prompt.ratio),
            *(format_p(p) for p in (each.p, each.welch, each.mann_whitney)),
            *("" if effect is None else f"{effect:.2f}" for effect in (each.cohen_d, each.cliff_delta)),
            verdict_text(comparison, each),
        )
        for each in comparisons
    )
    pairs = any(each.paired for each in comparisons)
    caption = (
        f"Differences are engine − {comparison.baseline}, with 95 % intervals over runs"
        f"{', paired by repeat' if pairs else ''}. Welch and Mann–Whitney: each by itself, on the values. Effect "
        "sizes: engine over baseline."
    )
    caption += f" Not measured in every run: {', '.join(comparison.missing)}." if comparison.missing else ""
    table = TextTable(f"Metric by metric at {comparison.stage}", headers, rows, (0, 1, 12), caption)
    unused = [*(() if len(comparison.others) > 1 else ("engine",))]
    unused += [] if any(each.by_prompt for each in comparisons) else ["by prompt"]
    return table.without(unused)


def _runs(comparison: Comparison) -> TextTable:
    spreads: dict[tuple[str, str], tuple[Spread, str]] = {}
    for engine in comparison.others:
        for each in comparison.at(comparison.stage, engine):
            spreads.setdefault((each.column.full_title, each.over), (each.theirs, each.column.unit))
            spreads[each.column.full_title, engine] = each.ours, each.column.unit
    titles = list(dict.fromkeys(title for title, _ in spreads))
    rows = []
    for (title, engine), (runs, unit) in sorted(spreads.items(), key=lambda item: titles.index(item[0][0])):
        numbers = (runs.mean, runs.median, runs.deviation, runs.mad, runs.least, runs.largest)
        outliers = ", ".join(format_value(value, unit) for value in runs.outliers) or "none"
        outliers = outliers if runs.n >= OUTLIER_RUNS else MISSING
        rows.append((title, engine, str(runs.n), *(format_value(each, unit) for each in numbers), outliers))
    headers = ("metric", "engine", "runs", "mean", "median", "sd", "MAD", "least", "largest", "outliers")
    caption = "Over runs, one value each. Outliers (more than 3.5 · 1.4826 · MAD from the median) are included."
    return TextTable(f"Runs at {comparison.stage}", headers, tuple(rows), (0, 1, 9), caption)


def estimate_text(estimate: Estimate, unit: str) -> str:
    """`300 ms [290, 310]`: the interval in the unit of the number."""
    low, high = interval_of(estimate, column_unit(unit, [estimate.value]))
    return format_value(estimate.value, unit) + (f" [{low}, {high}]" if low is not None else "")


def interval_of(estimate: Estimate, unit: ShownUnit) -> tuple[str | None, str | None]:
    """Both ends; neither where there is no interval, or all of it lies among the failed requests."""
    if estimate.low is None or estimate.high is None or math.isinf(estimate.low):
        return None, None
    ends = interval_ends(estimate.low * unit.scale, estimate.high * unit.scale)
    if ends is None:
        return None, None
    return ends[0], INFINITE if estimate.unbounded else ends[1]


def ratio_text(ratio: Estimate) -> str:
    """`1.23× [1.19, 1.28]`; ∞ and 0 where one side fell among failures, `> 2×` where only an end is known, `≈ 139×`
    where the interval is so wide that it says nothing, and nothing where any ratio is possible."""
    if ratio.value is None:
        ends = [f"> {format_ratio(ratio.low, None, None)}"] if ratio.low else []
        ends += [f"< {format_ratio(ratio.high, None, None)}"] if ratio.high and math.isfinite(ratio.high) else []
        return ends[0] if ends else MISSING
    if math.isinf(ratio.value) or ratio.value == 0:
        return "∞" if ratio.value else "0"
    low, high = ratio.ends
    if (low, high) == (0.0, math.inf):
        return MISSING
    if low is not None and high is not None and math.inf > high > WIDEST * low:
        return f"≈ {format_ratio(ratio.value, None, None)}"
    return format_ratio(ratio.value, low, high)


def _difference(estimate: Estimate, unit: str) -> str:
    """`−12.3 ms [−14.0 ms, −10.6 ms]`; of a share `+2.1 points [+1.2, +3.0]`"""
    if estimate.value is None:
        return MISSING
    low, high = estimate.ends
    if unit == "share":
        return format_points(estimate.value, low, high)
    texts = [_signed(value, unit) for value in (estimate.value, low, high) if value is not None]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]" if len(texts) == 3 else texts[0]


def _signed(value: float, unit: str) -> str:
    return f"{'−' if value < 0 else '+'}{format_value(abs(value), unit)}" if value else "0"


def comparison_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Rows of the tidy frame: for every metric of every engine over the baseline, and of the best over each other, the
    ratio (of shares the difference), the p value and the verdict as `why`; the capacities; the winner; and the
    comparison's own findings and criteria."""
    rows = [
        {"label": each.engine, "stage": each.stage, "metric": each.column.name} | cells
        for each in comparison.comparisons
        for cells in _rows_of(comparison, each)
    ]
    for ratio in comparison.capacity_comparisons:
        cells = _cells(f"ratio over {ratio.over}", None, ratio.ratio, _verdict_and_why(comparison, ratio))
        rows.append({"label": ratio.engine, "metric": "slo capacity"} | cells)
    if len(comparison.engines) > 1:
        rows.append({"label": comparison.winner, "metric": "winner", "statistic": "better", "why": comparison.why})
        rows.append({"metric": "criteria", "why": criteria(comparison)})
    rows += [row for each in comparison.quality for row in quality_rows(each)]
    return rows + [{"label": finding.label} | finding_row(finding) for finding in comparison.findings]


def _rows_of(comparison: Comparison, each: MetricComparison) -> Iterator[dict[str, Any]]:
    number = "" if each.column.statistic == "value" else f"{each.column.statistic} "
    verdict = _verdict_and_why(comparison, each)
    if each.column.relative:
        yield _cells(f"{number}ratio over {each.over}", None, each.ratio, verdict)
    yield _cells(f"{number}difference to {each.over}", each.column.unit, each.difference, verdict)
    for name in ("p", "welch", "mann_whitney", "cohen_d", "cliff_delta"):
        if (value := getattr(each, name)) is not None:
            yield _cells(f"{number}{name} over {each.over}", None, Estimate(value, n=each.difference.n), verdict)


def _verdict_and_why(comparison: Comparison, each: MetricComparison | CapacityComparison) -> str:
    return verdict_text(comparison, each) + (f": {each.why}" if each.why else "")


def _cells(statistic: str, unit: str | None, estimate: Estimate, why: str) -> dict[str, Any]:
    known, infinite = estimate.finite, estimate.value is not None and math.isinf(estimate.value)
    ends = {"value": known.value, "low": known.low, "high": known.high, "n": known.n}
    return {"statistic": statistic, "unit": unit, "why": f"infinite, {why}" if infinite else why} | ends
