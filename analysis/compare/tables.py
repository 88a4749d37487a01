"""A comparison with a baseline as tables of text; the terminal and the page only set them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.compare.contrasts import Contrast, Contrasts, contrast
from analysis.compare.measures import LATENCY, THROUGHPUT, TTFT
from analysis.stats.differences import Spread
from records.view import Estimate
from analysis.summary.run_summary import RunSummary
from records.formatting import (
    FIGURE_SPACE,
    MISSING,
    POINT_SPACE,
    format_bytes,
    format_points,
    format_ratio,
    format_seconds,
    format_share,
    significant,
)


@dataclass(frozen=True, slots=True)
class TextTable:
    """`texts` are the columns, from the left, that hold words; the others hold numbers."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...]
    caption: str

    @property
    def markdown(self) -> str:
        sides = [":---" if index in self.texts else "---:" for index in range(len(self.headers))]
        return "\n".join(f"| {' | '.join(map(_plain, cells))} |" for cells in (self.headers, sides, *self.rows))


def escaped(text: str) -> str:
    """As Markdown shows it literally: names of engines may hold anything."""
    return re.sub(r"[\\`*|]|<(?=[a-zA-Z/!])|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def _plain(text: str) -> str:
    """Without what keeps decimal points in line."""
    return escaped(text.replace(FIGURE_SPACE, "").replace(POINT_SPACE, ""))


@dataclass(frozen=True, slots=True)
class ContrastTables:
    """Engines at a glance, measure by measure, and the runs they come from."""

    engines: TextTable
    measures: TextTable
    runs: TextTable

    @property
    def all(self) -> tuple[TextTable, ...]:
        return self.engines, self.measures, self.runs


def contrasts_of(summaries: Sequence[RunSummary], margin: float) -> Contrasts | None:
    """For a report of several engines; `None` where there is nothing to compare."""
    try:
        return contrast(summaries, margin=margin)
    except ValueError:
        return None


def tables_of(contrasts: Contrasts) -> ContrastTables:
    return ContrastTables(_engines(contrasts), _measures(contrasts), _runs(contrasts))


def format_value(value: float | None, unit: str) -> str:
    """In the unit's own way: 12.3 ms, 1.5 GiB, 4.2 %, 41.2."""
    if value is None:
        return MISSING
    written = {"s": format_seconds, "B": format_bytes, "share": format_share}.get(unit)
    return significant(value) if written is None else written(value)


def _engines(contrasts: Contrasts) -> TextTable:
    rows = tuple(_engine(contrasts, label) for label in (contrasts.baseline, *contrasts.engines))
    headers = ("engine", "TTFT p50", "tokens/s", "latency ratio", "throughput ratio", "same answers", "verdict")
    text = (
        f"Against {contrasts.baseline} at {contrasts.stage}, means over runs. Ratios with 95 % intervals: above 1 is "
        "better, latency is E2E p50. Same answers: of the prompts that both answered, greedily and in every run."
    )
    return TextTable("Engines", headers, rows, (0, 6), text)


def _engine(contrasts: Contrasts, label: str) -> tuple[str, ...]:
    is_baseline = label == contrasts.baseline
    found = {
        name: contrasts.shown.of(contrasts.engines[0] if is_baseline else label, name)
        for name in (TTFT, THROUGHPUT, LATENCY)
    }
    values = [
        MISSING if one is None else format_value((one.theirs if is_baseline else one.ours).mean, one.unit)
        for one in (found[TTFT], found[THROUGHPUT])
    ]
    if is_baseline:
        return (label, *values, "1", "1", "", "baseline")
    latency, throughput = found[LATENCY], found[THROUGHPUT]
    ratios = [Estimate(None) if one is None else one.ratio for one in (latency, throughput)]
    return (
        label,
        *values,
        *(_ratio(ratio) for ratio in ratios),
        next(one.text for one in contrasts.answers if one.engine == label),
        _verdict(contrasts, latency, throughput),
    )


def _verdict(contrasts: Contrasts, latency: Contrast | None, throughput: Contrast | None) -> str:
    if contrasts.blocked:
        return "not claimed"
    found = {name: one.verdict for name, one in (("latency", latency), ("tokens/s", throughput)) if one is not None}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{name} {verdict}" for name, verdict in found.items()) or MISSING


def _measures(contrasts: Contrasts) -> TextTable:
    many = len(contrasts.engines) > 1
    headers = (
        *(("engine",) if many else ()),
        *("measure", "baseline", "engine", "difference", "ratio", "by prompt", "p"),
        *("Welch", "Mann–Whitney", "Cohen's d", "Cliff's δ", "verdict"),
    )
    rows = tuple(
        (
            *((one.engine,) if many else ()),
            one.title,
            format_value(one.theirs.mean, one.unit),
            format_value(one.ours.mean, one.unit),
            _interval(one.difference, one.unit),
            "" if one.unit == "share" else _ratio(one.ratio),
            "" if one.by_prompt is None else _ratio(one.by_prompt.ratio),
            *(_p(p) for p in (one.p, one.welch, one.mann_whitney)),
            *("" if effect is None else f"{effect:.2f}" for effect in (one.cohen_d, one.cliff_delta)),
            "not claimed" if contrasts.blocked else one.verdict,
        )
        for one in contrasts.shown.contrasts
    )
    pairs = any(one.paired for one in contrasts.shown.contrasts)
    missing = contrasts.shown.missing
    text = (
        f"Differences are engine − {contrasts.baseline}, with 95 % intervals over runs"
        f"{', paired by repeat' if pairs else ''}. p: t test of the ratio"
        f"{' (paired)' if pairs else ' (Welch)'}, after Holm's correction over these rows; Welch and Mann–Whitney: "
        "each by itself, on the values. Effect sizes: engine over baseline."
    )
    text += f" Not measured in every run: {', '.join(missing)}." if missing else ""
    words = (0, 1, len(headers) - 1) if many else (0, len(headers) - 1)
    return TextTable("Measure by measure", headers, rows, words, text)


def _runs(contrasts: Contrasts) -> TextTable:
    seen: dict[tuple[str, str], tuple[Contrast, Spread]] = {}
    titles = list(dict.fromkeys(one.title for one in contrasts.shown.contrasts))
    for one in sorted(contrasts.shown.contrasts, key=lambda one: titles.index(one.title)):
        seen.setdefault((one.title, contrasts.baseline), (one, one.theirs))
        seen[one.title, one.engine] = (one, one.ours)
    rows = []
    for (title, engine), (one, values) in seen.items():
        numbers = (values.mean, values.median, values.deviation, values.mad, values.least, values.largest)
        outliers = ", ".join(format_value(value, one.unit) for value in values.outliers) or "none"
        rows.append((title, engine, str(values.n), *(format_value(each, one.unit) for each in numbers), outliers))
    headers = ("measure", "engine", "runs", "mean", "median", "sd", "MAD", "least", "largest", "outliers")
    text = "Over runs, one value each. Outliers (more than 3.5 · 1.4826 · MAD from the median) are included."
    return TextTable("Runs", headers, tuple(rows), (0, 1, 9), text)


def _ratio(ratio: Estimate) -> str:
    if ratio.value is None:
        return f"{MISSING}, {ratio.why}" if ratio.why else MISSING
    return format_ratio(ratio.value, ratio.low, ratio.high)


def _interval(estimate: Estimate, unit: str) -> str:
    """`−12.3 ms [−14.0 ms, −10.6 ms]`; of a share `+2.1 points [+1.2, +3.0]`"""
    if estimate.value is None:
        return MISSING
    if unit == "share":
        return format_points(estimate.value, estimate.low, estimate.high)
    signs = [
        f"{'−' if value < 0 else '+'}{format_value(abs(value), unit)}" if value else "0"
        for value in (estimate.value, estimate.low, estimate.high)
        if value is not None
    ]
    return f"{signs[0]} [{signs[1]}, {signs[2]}]" if len(signs) == 3 else signs[0]


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
