"""The kinds of panel: a tile, lines over time, a histogram over time, a table of labels.

Every panel has a title, a question that its description answers, a unit, thresholds, and a sentence for when it is
empty. Red belongs to values that are wrong, never to lines that show a limit: those are orange or grey.
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

from grafana.palette import BLUE, BY_ENGINE, DASHED, DASHES, DOTTED, GREEN, GREY, TRANSPARENT, fixed, line_style
from grafana.promql import Query

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

TOKENS_PER_SECOND = "suffix: tok/s"
Steps = Sequence[tuple[float | None, str]]  # from this value on, this colour; the first value is None
Panel = stat.Panel | timeseries.Panel | heatmap.Panel | table.Panel
Queried = TypeVar("Queried", stat.Panel, timeseries.Panel)
NO_DATA = "no requests yet"


def tile(
    title: str,
    description: str,
    unit: str,
    query: Query,
    steps: Steps = ((None, BLUE),),
    *,
    width: int = 4,
    empty: str = NO_DATA,
    texts: Mapping[str, str] | None = None,
    beyond: str | None = None,
) -> stat.Panel:
    """One big number per engine, with its recent past behind it.

    `texts` names values: `{"0": "not ready"}`; `beyond` names those from the last step on.
    """
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .height(4)
        .span(width)
        .no_value(empty)
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE if texts else common.BigValueGraphMode.AREA)
        .text_mode(common.BigValueTextMode.AUTO)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
        .thresholds(_thresholds(steps))
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    )
    if texts:
        panel.mappings(
            [models.ValueMap({value: models.ValueMappingResult(text=text) for value, text in texts.items()})]
        )
    if beyond is not None:
        result = models.ValueMappingResult(text=beyond)
        panel.mappings(
            [models.RangeMap(models.DashboardRangeMapOptions(from_val=steps[-1][0], to=None, result=result))]
        )
    return _with_queries(panel, [query])


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    *,
    top: float | None = None,
    steps: Steps = ((None, GREEN),),
    stacked: common.StackingMode | None = None,
    palette: Mapping[str, str] = BY_ENGINE,
    colours: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    dotted: Sequence[str] = (),
    empty: str = NO_DATA,
) -> timeseries.Panel:
    """Lines over time.

    `palette` gives colours by patterns of names and `colours` by names; `dashed` and `dotted` are ends of names.
    `steps` beyond the first are drawn as limits.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .height(7)
        .span(8)
        .no_value(empty)
        .line_width(2)
        .fill_opacity(60 if stacked else 0)
        .line_interpolation(common.LineInterpolation.LINEAR)
        .show_points(common.VisibilityMode.AUTO)
        .span_nulls(False)
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .thresholds(_thresholds(steps))
        .legend(_legend())
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
    )
    if len(steps) > 1:
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    if top is not None:
        panel.max(top)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(stacked).group("A")).line_width(0)
    styles = dict.fromkeys(dashed, DASHED) | dict.fromkeys(dotted, DOTTED)
    _colour(panel, [query.legend for query in queries], palette, colours or {}, styles)
    return _with_queries(panel, queries)


def spread(title: str, description: str, query: Query) -> heatmap.Panel:
    """A histogram's buckets over time: shows two modes, which percentiles hide."""
    colours = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_models.HeatmapColorMode.SCHEME)
        .scheme("Blues")
        .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
        .reverse(False)
        .fill("dark-blue")
    )
    panel = (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit("suffix: requests")
        .height(7)
        .span(8)
        .no_value(NO_DATA)
        .thresholds(_thresholds([(None, GREEN)]))
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


def labels_table(
    title: str, description: str, query: Query, columns: Mapping[str, str], *, width: int = 12, empty: str = NO_DATA
) -> table.Panel:
    """The labels of a series as rows; `columns` maps each label to its heading, in order."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(units.Short)
        .height(7)
        .span(width)
        .no_value(empty)
        .thresholds(_thresholds([(None, TRANSPARENT)]))
    )
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


def _colour(
    panel: timeseries.Panel,
    legends: Sequence[str],
    palette: Mapping[str, str],
    colours: Mapping[str, str],
    styles: Mapping[str, tuple[str, list[int]]],
) -> None:
    """Later overrides win: patterns of names first, then dashes, then names."""
    if any("{{" in legend for legend in legends) or palette is not BY_ENGINE:
        for pattern, colour in palette.items():
            panel.override_by_regexp(pattern, [fixed(colour)])
    if any(legend.endswith(" p50") for legend in legends):
        for pattern, style in DASHES.items():
            panel.override_by_regexp(pattern, [line_style(*style)])
    for ending, style in styles.items():
        panel.override_by_regexp(f"/ {ending}$/", [line_style(*style)])
    if "SLO" in legends:
        panel.override_by_name("SLO", [fixed(GREY), line_style("dash", [2, 6])])
    for name, colour in colours.items():
        panel.override_by_name(name, [fixed(colour)])


def _with_queries(panel: Queried, queries: Sequence[Query]) -> Queried:
    for ref_id, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_target(query, ref_id).range())
    return panel


def _target(query: Query, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref_id).datasource(SOURCE)


def _legend() -> common_builders.VizLegendOptions:
    """Names side by side. A table under a panel shows three of its rows; values are in the tooltip and the tiles."""
    legend = common_builders.VizLegendOptions().placement(common.LegendPlacement.BOTTOM).show_legend(True)
    return legend.display_mode(common.LegendDisplayMode.LIST).calcs([])


def _thresholds(steps: Steps) -> builders.ThresholdsConfig:
    pairs = [models.Threshold(value=value, color=colour) for value, colour in steps]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(pairs)
