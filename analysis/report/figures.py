"""The figures of a page: a sentence for a title, the chart, how to read it, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from analysis.report import captions, charts
from analysis.report.charts import Named
from analysis.report.units import MISSING, format_count, format_seconds, significant
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import Estimate

SPREAD = "Bands and bars are 95 % intervals; a hollow mark has too few requests for one."


@dataclass(frozen=True, slots=True)
class Number:
    """A value as the summary has it, and as it is printed."""

    value: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """`rows` hold texts and numbers under `headers`. `svg` is safe: it was drawn here."""

    key: str
    title: str
    note: str
    svg: Markup
    headers: tuple[str, ...]
    rows: tuple[tuple[str | Number, ...], ...]
    legend: tuple[Named, ...] = ()  # where the chart itself does not name its lines


def figures_of(runs: Sequence[Named]) -> list[Figure]:
    """Those for which there are numbers."""
    drawn = [
        _by_users(
            "ttft",
            runs,
            captions.ttft,
            lambda s: s.latencies["ttft"].p95,
            "95th percentile of the time to first token",
        ),
        _by_users(
            "throughput",
            runs,
            captions.throughput,
            lambda s: s.throughput,
            "Output tokens per second, all users together",
            False,
        ),
        _by_users(
            "tpot",
            runs,
            captions.tpot,
            lambda s: s.latencies["tpot"].p50,
            "Median time per output token after the first",
        ),
        _parts(runs),
        _curves(runs),
        *(_timeline(run, index) for index, run in enumerate(runs)),
    ]
    return [figure for figure in drawn if figure is not None]


def duration(seconds: float | None) -> Number:
    return Number(seconds, format_seconds(seconds))


def rate(value: float | None) -> Number:
    return Number(value, MISSING if value is None else significant(value))


def _by_users(
    key: str,
    runs: Sequence[Named],
    title: Callable[[Sequence[Named]], str],
    of: Callable[[StageSummary], Estimate],
    note: str,
    seconds: bool = True,
) -> Figure | None:
    drawing = charts.by_users(runs, of, seconds)
    if drawing is None:
        return None
    note += f", in {drawing.unit.word}" if seconds else ""
    note += " on a logarithmic scale. " if drawing.logarithmic else ". "
    number = duration if seconds else rate
    rows = []
    for run in runs:
        for stage in run.summary.stages:
            estimate = of(stage)
            interval = (number(estimate.low), number(estimate.high))
            if estimate.low is None:
                interval = (Number(None, f"{MISSING}, {estimate.why}" if estimate.why else MISSING), Number(None, ""))
            rows.append((run.name, Number(stage.users, str(stage.users)), number(estimate.value), *interval))
    return _figure(key, title(runs), note + SPREAD, drawing.svg, ("engine", "users", "value", "from", "to"), rows)


def _parts(runs: Sequence[Named]) -> Figure | None:
    svg = charts.ttft_parts(runs)
    if svg is None:
        return None
    rows = [
        (run.name, Number(s.users, str(s.users)), duration(p.queue), duration(p.prefill), duration(p.delivery))
        for run in runs
        for s in run.summary.stages
        if (p := s.ttft_parts) is not None
    ]
    note = (
        "Mean TTFT, from light to full colour: waiting for admission (queue), until the first token was there "
        "(prefill), and on its way to the client (delivery); beside each bar the whole."
    )
    return _figure("parts", captions.parts(runs), note, svg, ("engine", "users", "queue", "prefill", "delivery"), rows)


def _curves(runs: Sequence[Named]) -> Figure | None:
    svg = charts.ttft_curves(runs)
    if svg is None:
        return None
    rows: list[tuple[str | Number, ...]] = [
        (
            run.name,
            Number(stage.users, str(stage.users)),
            *(duration(one.value) for one in (d.p50, d.p90, d.p95, d.p99)),
            duration(d.largest),
        )
        for run in runs
        for stage in run.summary.stages
        if (d := stage.latencies["ttft"]).n
    ]
    note = "Share of requests whose first token had come by then. A steep line means that all users wait alike."
    headers = ("engine", "users", "p50", "p90", "p95", "p99", "largest")
    return _figure("curves", captions.curves(runs), note, svg, headers, rows, tuple(runs))


def _timeline(run: Named, index: int) -> Figure:
    line = run.summary.timeline
    rows = [
        (Number(line.step * k, f"{line.step * k:g}"), rate(in_flight), rate(tokens))
        for k, (in_flight, tokens) in enumerate(zip(line.in_flight, line.throughput, strict=True))
    ]
    total = format_count(run.summary.requests)
    every = "every second" if line.step == 1 else f"every {line.step:g} s"
    note = f"The whole run, {total} requests, {every}. Only the shaded steady windows are counted."
    headers = ("seconds", "requests in flight", "output tokens/s")
    return _figure(f"timeline-{index}", captions.timeline(run), note, charts.timeline(run), headers, rows)


def _figure(
    key: str,
    title: str,
    note: str,
    svg: str,
    headers: tuple[str, ...],
    rows: Sequence[tuple[str | Number, ...]],
    legend: tuple[Named, ...] = (),
) -> Figure:
    labelled = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return Figure(key, title, note, Markup(labelled), headers, tuple(rows), legend)
