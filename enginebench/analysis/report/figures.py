"""Which figures a page has, in their order.

Which metrics, quantities and distributions are drawn is declared in records/metrics.py, and which gauges there are in
enginebench/records/telemetry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from enginebench.analysis.compare.comparison import Comparison
from enginebench.analysis.compare.engine_runs import engine_runs_of, since_due
from enginebench.analysis.plan.scalability import Scalability
from enginebench.analysis.report.axis import Axis
from enginebench.analysis.report.distribution_charts import distribution_figure
from enginebench.analysis.report.figure import Figure, FigureSource
from enginebench.analysis.report.load_charts import column_figure, gauges_figure, memory_figure, turns_figure
from enginebench.analysis.report.time_charts import run_figure
from enginebench.analysis.report.trade_off_charts import pareto_figure, parts_figure, scalability_figure
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.metrics import REQUEST_METRICS, columns

SPREAD = "Bands and bars are 95 % intervals; a hollow mark has none."
REPEATS = "Of several runs of an engine, values are means and intervals come from the spread between runs."


def figures_of(
    summaries: Sequence[RunSummary], comparison: Comparison, axis: Axis, laws: Mapping[str, Scalability]
) -> Iterator[Figure]:
    """Those for which there are numbers, each as it is asked for: first what an SLO limits, then throughput against
    speed, then the others. `laws` are the fitted ones by engine, for those that have one."""
    source = FigureSource.of(summaries, comparison, axis)
    shown = columns("chart", since_due(summaries))
    # Of one engine without objectives there is nothing to trade: its first latency stands first.
    first = [column for column in shown if source.limits(column)] or list(shown[: len(source.engines) == 1])
    draw: list[Callable[[], Figure | None]] = [
        *(partial(column_figure, source, column) for column in first),
        partial(pareto_figure, source),
        *(partial(column_figure, source, column) for column in shown if column not in first),
        partial(scalability_figure, source, laws),
        partial(turns_figure, source),
        partial(parts_figure, source),
        partial(memory_figure, source),
        partial(gauges_figure, source),
        *(partial(distribution_figure, source, metric) for metric in REQUEST_METRICS if metric.shown.curve),
        *(partial(run_figure, source, engine, index) for index, engine in enumerate(source.engines)),
    ]
    yield from (figure for each in draw if (figure := each()) is not None)


def reading_of(summaries: Sequence[RunSummary]) -> str:
    """How all charts of a page are read."""
    return f"{SPREAD} {REPEATS}" if any(len(engine.runs) > 1 for engine in engine_runs_of(summaries)) else SPREAD
