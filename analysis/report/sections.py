"""The tables of a report beside that of its stages, as text: terminal, page and Markdown show each of them."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.compare.capacity import OF_SEARCH, SloCapacity, load_text
from analysis.compare.engine_runs import DECIDING, engine_runs_of, since_due
from analysis.console import TextTable
from analysis.plan.prices import dollars
from analysis.report.axis import axis_of
from analysis.report.contents import Report
from analysis.report.costs import stage_of
from analysis.report.decision import PlannedReplicas
from analysis.summary.run_summary import RunSummary
from records.formatting import (
    MISSING,
    format_count,
    format_seconds,
    format_share,
    format_value,
    significant,
)
from records.metrics import columns
from records.search import ERROR_RATE

BARS = "▁▂▃▄▅▆▇█"
ROLES = {"locate": "locate", "refine": "estimate", "below": "certify below it", "above": "certify above it"}


def answer_table(report: Report) -> TextTable | None:
    """An engine a row: the load within the objectives, replicas and costs as far as they were asked for, and the
    numbers at that load. `None` for one engine of which only the latter are known: the headline has them."""
    engines = engine_runs_of(report.runs)
    by_label = {engine.label: engine for engine in engines}
    order = [by_label[label] for label in report.comparison.engines]
    stages = {engine.label: stage_of(engine, report.comparison) for engine in order}
    answers: dict[str, list[str]] = {}
    if report.comparison.capacities:
        capacities = [report.comparison.capacity(engine.label) for engine in order]
        unit = report.comparison.capacities[0].unit
        answers[f"{unit} within the SLO"] = [_within(capacity, " missed") for capacity in capacities]
    if report.decision.replicas:
        replicas = {each.engine: each for each in report.decision.replicas}
        answers[f"replicas for {report.decision.replicas[0].peak}"] = [_count(replicas[e.label]) for e in order]
        if any(each.month is not None for each in replicas.values()):
            answers["a month"] = [_month(replicas[engine.label]) for engine in order]
    costs = report.decision.costs
    if costs is not None and any(cost.price is not None for cost in costs.engines):
        # Not at the peak, of which the columns before it are: the two do not add up.
        title = "per 1M tokens at capacity" if report.comparison.capacities else "per 1M tokens"
        answers[title] = [_dollars(costs.of(engine.label).cost.value) for engine in order]
    if not any(stages.values()) or (len(order) == 1 and not answers):
        return None
    numbers = {"at load": [stages[engine.label] or MISSING for engine in order]}
    for column in columns("table", since_due(report.runs)):
        values = [engine.column(stages[engine.label] or "", column).value for engine in order]
        numbers[column.full_title] = [format_value(value, column.unit) for value in values]
    numbers["failed"] = [format_share(engine.value(stages[engine.label] or "", "failure_share")) for engine in order]
    whole = {"engine": [engine.label for engine in order]} | answers | numbers
    slo = report.comparison.capacities[0].slo if report.comparison.capacities else ""
    caption = (
        f"SLO: {slo}. In brackets the lowest measured load that misses {report.comparison.capacities[0].them}."
        if slo
        else ""
    )
    if not all(each.reliable for each in report.decision.replicas):
        caption = f"{caption} *: not reliable, as the warnings of the plan say.".strip()
    texts = tuple(index for index, name in enumerate(whole) if name in {"engine", "at load"})
    return TextTable("", tuple(whole), tuple(zip(*whole.values(), strict=True)), texts, caption)


def _within(capacity: SloCapacity | None, missed: str = "") -> str:
    """`14 (20)`: 14 meet the objectives, and 20 do not."""
    if capacity is None or (capacity.met is None and capacity.missed is None):
        return MISSING
    if capacity.met is None:
        return f"< {load_text(capacity.missed)}"
    met = load_text(capacity.met)
    return f"≥ {met}" if capacity.missed is None else f"{met} ({load_text(capacity.missed)}{missed})"


def _count(replicas: PlannedReplicas) -> str:
    if replicas.count is None:
        return MISSING
    high = "no bound" if replicas.high is None else replicas.high
    return f"{replicas.count} [{replicas.low}, {high}]{_star(replicas)}"


def _month(replicas: PlannedReplicas) -> str:
    return MISSING if replicas.month is None else f"{dollars(replicas.month)}{_star(replicas)}"


def _star(replicas: PlannedReplicas) -> str:
    return "" if replicas.reliable else "*"


def _dollars(amount: float | None) -> str:
    return MISSING if amount is None else dollars(amount)


def trend_lines(summaries: Sequence[RunSummary]) -> list[str]:
    """The picture of a text: what compares the engines, as bars over the loads from none to the most of all engines.

    `vllm  output tokens/s  ▂▅█  88.1 to 351, from 4 to 16 users`
    """
    axis, engines = axis_of(summaries), engine_runs_of(summaries)
    (column,) = (column for column in columns("table") if column.key == DECIDING)
    values = {
        engine.label: [(place, value) for place in axis.places if (value := engine.column(place.label, column).value)]
        for engine in engines
    }
    most = max((value for of_engine in values.values() for _, value in of_engine), default=0.0)
    width = max(map(len, values))
    lines = []
    for label, of_engine in values.items():
        if len(of_engine) > 1 and axis.quantitative:
            bars = "".join(BARS[min(int(len(BARS) * value / most), len(BARS) - 1)] for _, value in of_engine)
            (first, least), (last, largest) = of_engine[0], of_engine[-1]
            ends = f"{significant(least)} to {significant(largest)}, from {first.text} to {last.text} {axis.title}"
            lines.append(f"{label:<{width}}  {column.full_title}  {bars}  {ends}")
    return lines


def tables_of(report: Report) -> list[TextTable]:
    """Below the table of stages: capacity within tiers of objectives and within a grid of limits, and a search's
    probes."""
    tables = [_tiers(report), matrix_table(report), _probes(report.runs)]
    return [table for table in tables if table is not None]


def _tiers(report: Report) -> TextTable | None:
    """The load of each engine within each tier of objectives. That of several engines within one is compared, in a
    table of the comparison's own."""
    capacities = report.capacities
    tiers = {capacity.objectives[0].tier: capacity.slo for capacity in capacities}
    several = len(tiers) > 1
    if not capacities or (len(report.comparison.engines) > 1 and not several):
        return None
    unit, them = capacities[0].unit, capacities[0].them
    headers = (
        *(("tier",) if several else ()),
        "engine",
        f"{unit} that meet {them}",
        f"that miss {them}",
        "undecided",
        "limited by",
    )
    rows = tuple(
        (
            *((capacity.objectives[0].tier or MISSING,) if several else ()),
            capacity.engine,
            MISSING if capacity.met is None else load_text(capacity.met),
            MISSING if capacity.missed is None else load_text(capacity.missed),
            _undecided(capacity) or MISSING,
            MISSING if capacity.limit is None else capacity.limit.sentence,
        )
        for capacity in capacities
    )
    slos = (
        "; ".join(f"{tier or 'without a tier'}: {slo}" for tier, slo in tiers.items())
        if several
        else "".join(tiers.values())
    )
    caption = (
        f"{slos}. Measured loads, all repeats together: the highest that meets every objective and the lowest that "
        "misses one; nothing in between is interpolated."
    )
    caption += " ≈: how much longer a run would decide." if any("≈" in cell for row in rows for cell in row) else ""
    texts = tuple(
        index for index, header in enumerate(headers) if header in {"tier", "engine", "undecided", "limited by"}
    )
    return TextTable(f"{unit.capitalize()} within the objectives", headers, rows, texts, caption)


def _undecided(capacity: SloCapacity) -> str:
    """`16 (≈ 4.0 min)`, or why no interval is known."""
    judgements = {judgement.load: judgement for judgement in capacity.loads}
    cells = []
    for load in capacity.undecided:
        seconds = judgements[load].seconds_needed
        need = f"≈ {format_seconds(seconds)}" if seconds is not None else judgements[load].need
        cells.append(f"{load_text(load)} ({need})" if need else load_text(load))
    return ", ".join(cells)


def matrix_table(report: Report) -> TextTable | None:
    """For each engine the load within each pair of a limit to TTFT and one to TPOT."""
    if not report.matrix:
        return None
    cells = {(capacity.engine, *capacity.objectives): _within(capacity) for capacity in report.matrix}
    engines, ttfts, tpots = (list(dict.fromkeys(keys)) for keys in zip(*cells, strict=True))
    rows = tuple(
        (engine if ttft == ttfts[0] else "", ttft.text, *(cells.get((engine, ttft, tpot), MISSING) for tpot in tpots))
        for engine in engines
        for ttft in ttfts
    )
    unit = report.matrix[0].unit
    caption = "The highest measured load that meets both limits, and in brackets the lowest that misses one."
    headers = ("engine", "", *(tpot.text for tpot in tpots))
    return TextTable(f"{unit.capitalize()} within pairs of limits", headers, rows, (0, 1), caption)


def _probes(summaries: Sequence[RunSummary]) -> TextTable | None:
    """Each probe of the searches for capacity, with what it showed."""
    searches = [(summary.label, summary.search) for summary in summaries if summary.search is not None]
    if not searches:
        return None
    first = searches[0][1]
    rows = tuple(
        (
            str(probe.stage + 1),
            label,
            f"{probe.load:.4g}",
            ROLES[probe.role],
            format_count(probe.requests),
            *(
                [f"{format_share(share.good)} ≈{share.effective:,.0f}" for share in probe.shares]
                or [MISSING] * len(first.objectives)
            ),
            OF_SEARCH[probe.verdict],
        )
        for label, search in searches
        for probe in search.probes
    )
    headers = ("probe", "engine", first.unit, "to", "requests", *first.objectives, "result")
    caption = (
        "Under each objective the share of the requests that met it, and of how many effective ones (≈): requests that "
        f"wait in one queue are alike. What locates is no certificate; the others count together. {ERROR_RATE}"
    )
    return TextTable("Search for capacity", headers, rows, (1, 3, len(headers) - 1), caption)
