"""The figures of a page: what it shows, the chart, how to read it, and its numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.compare.knee import mean_parts
from analysis.report.axis import Axis, Place
from analysis.report.decision import Law
from analysis.report.distributions import distribution_curves
from analysis.report.drawing import Chart, Drawn
from analysis.report.ends import INFINITE
from analysis.report.lines import by_stage, lines
from analysis.report.rows import Column, percentile_column
from analysis.report.scalability import scalability_curves
from analysis.report.timeline import timeline
from analysis.report.ttft_parts import ttft_parts
from analysis.summary.distributions import CURVE, DRAWN
from analysis.summary.turns import TurnSummary
from records.formatting import MISSING, format_count, format_seconds, significant
from records.metrics import BY_NAME
from records.view import Estimate, StageView

SPREAD = "Bands and bars are 95 % intervals; a hollow mark has none."
REPEATS = "Of several runs of an engine, values are means and intervals come from the spread between runs."
FAILED = "A cross at the top is a percentile that falls among failed requests."


@dataclass(frozen=True, slots=True)
class Number:
    """A value as the summary has it, and as it is printed. An infinite one belongs to failed requests."""

    value: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """`rows` hold texts and numbers under `headers`."""

    key: str
    title: str
    note: str
    chart: Chart
    headers: tuple[str, ...]
    rows: tuple[tuple[str | Number, ...], ...]
    legend: tuple[Drawn, ...] = ()  # where its lines and marks are those of several engines


def _memory(stage: StageView) -> Estimate:
    used = stage.telemetry_mean("engine_memory_bytes")
    return Estimate(None if used is None else used / 1e9, why="a mean over the window")


def _gpu(stage: StageView) -> Estimate:
    busy = stage.telemetry_mean("gpu_utilisation")
    return Estimate(None if busy is None else 100 * busy, why="a mean over the window")


MEMORY, GPU = Column("memory", _memory, duration=False), Column("GPU", _gpu, duration=False, most=100)


def figures_of(engines: Sequence[Drawn], axis: Axis, ttft: str, laws: Sequence[Law] = ()) -> list[Figure]:
    """Those for which there are numbers. `ttft` is the metric that headlines call TTFT."""
    p95, tpot = percentile_column(ttft, "p95"), percentile_column("tpot", "p50")
    e2e = percentile_column(ttft.replace("ttft", "e2e"), "p95")
    output = Column("throughput", lambda stage: stage.throughput, duration=False)
    drawn = [
        _by_stage("ttft", engines, axis, p95, f"95th percentile of {p95.name[:-4]}"),
        _by_stage("throughput", engines, axis, output, "Output tokens per second"),
        _by_stage("e2e", engines, axis, e2e, "95th percentile of the whole answer"),
        _by_stage("tpot", engines, axis, tpot, "Median time per output token"),
        _by_stage("memory", engines, axis, MEMORY, "Mean memory of the engine, in GB"),
        _by_stage("gpu", engines, axis, GPU, "Mean utilisation of the GPUs, in %"),
        _scalability(engines, laws),
        _turns(engines, axis),
        _parts(engines, axis),
        *(_curves(engines, axis, metric) for metric in DRAWN),
        *(_flow(one, index) for index, one in enumerate(engines)),
    ]
    return [figure for figure in drawn if figure is not None]


def reading_of(engines: Sequence[Drawn]) -> str:
    """How all charts of a page are read."""
    return f"{SPREAD} {REPEATS}" if any(len(one.contender.runs) > 1 for one in engines) else SPREAD


def duration(seconds: float | None) -> Number:
    return Number(_finite(seconds), format_seconds(seconds))


def rate(value: float | None) -> Number:
    return Number(_finite(value), MISSING if value is None else significant(value))


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _by_stage(key: str, engines: Sequence[Drawn], axis: Axis, column: Column, title: str) -> Figure | None:
    drawing = by_stage(engines, axis, column)
    if drawing is None:
        return None
    number = duration if column.duration else rate
    rows: list[tuple[str | Number, ...]] = []
    estimates: list[Estimate] = []
    for one in engines:
        for label in axis.labels:
            if not one.contender.at(label):
                continue
            estimate = one.contender.estimate(column.of, label, column.most)
            estimates.append(estimate)
            interval = (number(estimate.low), number(estimate.high))
            if estimate.low is None:
                interval = (Number(None, f"{MISSING}, {estimate.why}" if estimate.why else MISSING), Number(None, ""))
            elif estimate.unbounded:
                interval = (interval[0], Number(None, INFINITE))
            rows.append((one.name, label, number(estimate.value), *interval))
    title += f", in {drawing.unit.word}" if column.duration else ""
    said = ["Logarithmic scale."] if drawing.logarithmic else []
    said += [FAILED] if any(estimate.value == math.inf for estimate in estimates) else []
    headers = ("engine", "stage", "value", "from", "to")
    return Figure(key, title, " ".join(said), drawing.chart, headers, tuple(rows), tuple(engines))


def _scalability(engines: Sequence[Drawn], laws: Sequence[Law]) -> Figure | None:
    if not laws:
        return None
    titles = {
        "rate": "λ, tokens/s of one",
        "contention": "σ, contention",
        "coherency": "κ, coherency",
        "peak": "requests in flight at the peak",
        "most": "tokens/s at the peak",
    }
    rows: tuple[tuple[str | Number, ...], ...] = tuple(
        (law.engine, title, rate(one.value), rate(one.low), rate(one.high))
        for law in laws
        for name, title in titles.items()
        for one in [getattr(law.fit, name)]
    )
    title = "Output tokens per second against requests in flight"
    note = (
        "A mark for each stage; the curve is the Universal Scalability Law, λN / (1 + σ(N − 1) + κN(N − 1)), fitted to "
        "them and drawn no further than they reach, in its 95 % band."
    )
    headers = ("engine", "parameter", "value", "from", "to")
    chart = scalability_curves(engines, laws)
    legend = tuple(one for one in engines if one.name in {law.engine for law in laws})
    return Figure("scalability", title, note, chart, headers, rows, legend)


def _turns(engines: Sequence[Drawn], axis: Axis) -> Figure | None:
    """TTFT by turn at the last stage that has conversations."""

    def known(stage: StageView) -> dict[int, TurnSummary]:
        return {one.turn: one for one in stage.turns}

    told = [label for label in axis.labels if any(stage.turns for one in engines for stage in one.contender.at(label))]
    if not told:
        return None
    points, rows = [], []
    for one in engines:
        stages = [known(stage) for stage in one.contender.at(told[-1])]
        for turn in sorted(set.intersection(*(set(stage) for stage in stages))) if stages else []:
            ttft = one.contender.estimate(lambda stage, turn=turn: known(stage)[turn].ttft, told[-1])  # type: ignore[misc]
            tokens = one.contender.mean(lambda stage, turn=turn: known(stage)[turn].prompt_tokens, told[-1])  # type: ignore[misc]
            points.append((one, float(turn), ttft))
            requests = sum(stage[turn].requests for stage in stages)
            rows.append((one.name, Number(turn, str(turn)), rate(requests), rate(tokens), duration(ttft.value)))
    places = tuple(Place(str(turn), turn, str(turn)) for turn in sorted({int(turn) for _, turn, _ in points}))
    drawing = lines(engines, Axis("turn", True, places), points, True) if places else None
    if drawing is None:
        return None
    title = f"Median TTFT of the turns of conversations at {told[-1]}, in {drawing.unit.word}"
    headers = ("engine", "turn", "requests", "prompt tokens", "TTFT p50")
    return Figure("turns", title, "Each turn sends all before it.", drawing.chart, headers, tuple(rows), tuple(engines))


def _parts(engines: Sequence[Drawn], axis: Axis) -> Figure | None:
    chart = ttft_parts(engines, axis)
    if chart is None:
        return None
    rows: tuple[tuple[str | Number, ...], ...] = tuple(
        (one.name, label, *(duration(length) for length in parts.lengths.values()))
        for one in engines
        for label in axis.labels
        if (parts := mean_parts(one.contender, label)) is not None
    )
    note = (
        "Of the answered requests, from light to full colour: until the request was sent (client), waiting "
        "for admission (queue), until the first token was produced (prefill), and from the server to the client "
        "(delivery)."
    )
    headers = ("engine", "stage", "client", "queue", "prefill", "delivery")
    return Figure("parts", "Mean TTFT by its parts", note, chart, headers, rows)


def _curves(engines: Sequence[Drawn], axis: Axis, metric: str) -> Figure | None:
    chart = distribution_curves(engines, axis, metric)
    if chart is None:
        return None
    rows: tuple[tuple[str | Number, ...], ...] = tuple(
        (one.name, label, *(duration(stage.curves[metric][CURVE.index(q)]) for q in (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)))
        for one in engines
        for label in axis.labels
        for stage in one.contender.at(label)
        if metric in stage.curves
    )
    shown = "A line for each run" if any(len(one.contender.runs) > 1 for one in engines) else "Answered requests only"
    title = f"Share of requests whose {BY_NAME[metric].title} was at most so long"
    headers = ("engine", "stage", "p50", "p90", "p95", "p99", "p99.9", "largest")
    return Figure(f"{metric}-curves", title, f"{shown}; logarithmic scale.", chart, headers, rows, tuple(engines))


def _flow(one: Drawn, index: int) -> Figure:
    run = one.contender.runs[0]
    line = run.flow
    rows = tuple(
        (Number(line.step * k, f"{line.step * k:g}"), rate(in_flight), rate(tokens))
        for k, (in_flight, tokens) in enumerate(zip(line.in_flight, line.throughput, strict=True))
    )
    every = "every second" if line.step == 1 else f"every {line.step:g} s"
    which = f"The first of {len(one.contender.runs)} runs" if len(one.contender.runs) > 1 else "The whole run"
    total = format_count(run.requests)
    note = f"{which}, {total} requests, {every}. Only the shaded steady windows count; a triangle marks a finding."
    headers = ("seconds", "requests in flight", "output tokens/s")
    return Figure(f"flow-{index}", f"{one.name} from start to end", note, timeline(one), headers, rows)
