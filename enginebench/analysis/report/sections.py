"""The tables of a report beside that of its stages, as text: terminal, page and Markdown show each of them."""

from __future__ import annotations

from collections.abc import Sequence

from enginebench.analysis.compare.capacity import OF_SEARCH, SloCapacity, load_text
from enginebench.analysis.compare.engine_runs import DECIDING, engine_runs_of
from enginebench.analysis.console import TextTable
from enginebench.analysis.first_screen import within
from enginebench.analysis.report.axis import axis_of
from enginebench.analysis.report.contents import Report
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import MISSING, format_count, format_seconds, format_share, significant
from enginebench.records.metrics import columns
from enginebench.records.search import ERROR_RATE

BARS = "▁▂▃▄▅▆▇█"
ROLES = {"locate": "locate", "below": "certify below it", "above": "certify above it"}


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
            heights = (min(max(int(len(BARS) * value / most), 0), len(BARS) - 1) for _, value in of_engine)
            bars = "".join(BARS[height] for height in heights)
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
    cells = {(capacity.engine, *capacity.objectives): within(capacity) for capacity in report.matrix}
    limited = report.matrix[0].objectives[0].text.partition("≤")[0]  # `TTFT p95 `
    engines, ttfts, tpots = (list(dict.fromkeys(keys)) for keys in zip(*cells, strict=True))
    rows = tuple(
        (
            engine if ttft == ttfts[0] else "",
            ttft.text.removeprefix(limited),
            *(cells.get((engine, ttft, tpot), MISSING) for tpot in tpots),
        )
        for engine in engines
        for ttft in ttfts
    )
    unit = report.matrix[0].unit
    caption = "The highest measured load that meets both limits, and in brackets the lowest that misses one."
    headers = ("engine", limited.strip(), *(tpot.text for tpot in tpots))
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
