"""The four kinds of panel on the dashboard, and its variables.

Each percentile has its own line style (p50 dotted, p95 dashed, p99 solid), so that colours distinguish engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common, units
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from grafana.promql import Query

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, ORANGE, RED, BLUE, GREY, PURPLE = "green", "orange", "red", "blue", "#8e8e8e", "purple"
TOKENS_PER_SECOND = "suffix: tok/s"
Steps = Sequence[tuple[float | None, str]]  # from this value on, this colour; the first value is None
Panel = stat.Panel | timeseries.Panel | heatmap.Panel | table.Panel
Queried = TypeVar("Queried", stat.Panel, timeseries.Panel)


def tile(title: str, description: str, unit: str, query: Query, steps: Steps | None = None, **texts: str) -> stat.Panel:
    """One big number per engine, with its recent past behind it. `texts` names values: `"0"="not ready"`."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .height(4)
        .span(4)
        .no_value("no data")
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE if texts else common.BigValueGraphMode.AREA)
        .text_mode(common.BigValueTextMode.AUTO)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
        .thresholds(_thresholds(steps or [(None, BLUE)]))
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    )
    if texts:
        panel.mappings(
            [models.ValueMap({value: models.ValueMappingResult(text=text) for value, text in texts.items()})]
        )
    return _with_queries(panel, [query])


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    *,
    width: int = 12,
    top: float | None = None,
    steps: Steps | None = None,
    stacked: common.StackingMode | None = None,
    colours: Mapping[str, str] | None = None,
    no_value: str = "no data",
) -> timeseries.Panel:
    """Lines over time. `colours` fixes the colour of series by name; `steps` draws dashed threshold lines."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .height(8)
        .span(width)
        .no_value(no_value)
        .line_width(2)
        .fill_opacity(60 if stacked else 6)
        .line_interpolation(common.LineInterpolation.LINEAR)
        .show_points(common.VisibilityMode.NEVER)
        .span_nulls(False)
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
        .legend(_legend(width))
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
    )
    if any(query.legend.endswith(" p50") for query in queries):
        panel.override_by_regexp("/ p50$/", [_line_style("dot", [1, 6])])
        panel.override_by_regexp("/ p95$/", [_line_style("dash", [8, 6])])
    if any(query.legend == "SLO" for query in queries):
        panel.override_by_name("SLO", [_fixed(RED), _line_style("dash", [4, 8]), _no_fill()])
    if top is not None:
        panel.max(top)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(stacked).group("A")).line_width(0)
    if steps:
        panel.thresholds(_thresholds(steps))
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    for name, colour in (colours or {}).items():
        panel.override_by_name(name, [_fixed(colour)])
    return _with_queries(panel, queries)


def spread(title: str, description: str, query: Query) -> heatmap.Panel:
    """A histogram's buckets over time: shows two modes, which percentiles hide."""
    colours = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_models.HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
        .reverse(False)
        .fill("dark-orange")
    )
    panel = (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(8)
        .span(12)
        .calculate(False)
        .color(colours)
        .cell_gap(1)
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .y_axis(heatmap.YAxisConfig().unit(units.Seconds).axis_placement(common.AxisPlacement.LEFT))
        .cell_values(heatmap.CellValues().unit("suffix: requests"))
        .tooltip(heatmap.HeatmapTooltip().mode(common.TooltipDisplayMode.SINGLE).y_histogram(True))
        .show_legend()
    )
    return panel.with_target(_target(query, "A").format(prometheus_models.PromQueryFormat.HEATMAP).range())


def labels_table(title: str, description: str, query: Query, columns: Mapping[str, str]) -> table.Panel:
    """The labels of a series as rows; `columns` maps each label to its heading, in order."""
    panel = table.Panel().title(title).description(description).datasource(SOURCE).height(8).span(12)
    panel.with_target(_target(query, "A").format(prometheus_models.PromQueryFormat.TABLE).instant())
    chosen = models.DataTransformerConfig(
        id_val="organize",
        options={
            "includeByName": dict.fromkeys(columns, True),
            "indexByName": {label: index for index, label in enumerate(columns)},
            "renameByName": dict(columns),
            "excludeByName": {},
        },
    )
    return panel.with_transformation(chosen)


def choice(name: str, label: str, description: str, query: str) -> builders.QueryVariable:
    """A variable with values from Prometheus; several may be chosen, initially all."""
    return (
        _queried(name, label, description, query)
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def threshold(name: str, label: str, description: str, histogram: str, at_first: str) -> builders.QueryVariable:
    """An SLO threshold, one of the histogram's bucket bounds: only there a share is exact."""
    return (
        _queried(name, label, description, f"label_values({histogram}_bucket, le)")
        .regex(r"/^[0-9.]+$/")  # without +Inf
        .multi(False)
        .include_all(False)
        .allow_custom_value(False)
        .current(models.VariableOption(selected=True, text=at_first, value=at_first))
        .sort(models.VariableSort.NUMERICAL_ASC)
    )


def _queried(name: str, label: str, description: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(SOURCE)
        .query({"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _with_queries(panel: Queried, queries: Sequence[Query]) -> Queried:
    for ref_id, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_target(query, ref_id).range())
    return panel


def _target(query: Query, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref_id).datasource(SOURCE)


def _legend(width: int) -> common_builders.VizLegendOptions:
    legend = common_builders.VizLegendOptions().placement(common.LegendPlacement.BOTTOM).show_legend(True)
    if width < 12:
        return legend.display_mode(common.LegendDisplayMode.LIST).calcs([])
    return legend.display_mode(common.LegendDisplayMode.TABLE).calcs(["lastNotNull", "mean", "max"])


def _thresholds(steps: Steps) -> builders.ThresholdsConfig:
    pairs = [models.Threshold(value=value, color=colour) for value, colour in steps]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(pairs)


def _fixed(colour: str) -> models.DynamicConfigValue:
    return models.DynamicConfigValue("color", {"mode": models.FieldColorModeId.FIXED, "fixedColor": colour})


def _line_style(fill: str, dash: list[int]) -> models.DynamicConfigValue:
    return models.DynamicConfigValue("custom.lineStyle", {"fill": fill, "dash": dash})


def _no_fill() -> models.DynamicConfigValue:
    return models.DynamicConfigValue("custom.fillOpacity", 0)
