"""The kinds of panel: a tile, lines over time, a histogram over time, a table of labels, as Grafana's JSON has them.

Every panel has a title, a question that its description answers, a unit, thresholds, and a sentence for when it is
empty. Red belongs to values that are wrong, never to lines that show a limit: those are orange or grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grafana.palette import BLUE, BY_ENGINE, DASHED, DASHES, DOTTED, GREEN, GREY, TRANSPARENT, fixed, line_style
from grafana.promql import Query

Panel = dict[str, Any]
Steps = Sequence[tuple[float | None, str]]  # from this value on, this colour; the first value is None
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TOKENS_PER_SECOND = "suffix: tok/s"
NO_DATA = "no requests yet"
ABSENT = "–"  # where a sentence at the top of the page says why


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
) -> Panel:
    """One big number per engine, with its recent past behind it.

    `texts` names values: `{"0": "not ready"}`; `beyond` names those from the last step on.
    """
    panel = _panel("stat", title, description, unit, [_target(query)], steps, empty, width=width, height=4)
    panel["fieldConfig"]["defaults"] |= {"color": {"mode": "thresholds"}, "min": 0}
    if texts:
        values = {value: {"text": text} for value, text in texts.items()}
        panel["fieldConfig"]["defaults"]["mappings"] = [{"type": "value", "options": values}]
    if beyond is not None:
        named = {"from": steps[-1][0], "to": None, "result": {"text": beyond}}
        panel["fieldConfig"]["defaults"]["mappings"] = [{"type": "range", "options": named}]
    panel["options"] = {
        "colorMode": "value",
        "graphMode": "none" if texts or query.instant else "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    }
    return panel


def sentence(title: str, description: str, queries: Sequence[Query], *, empty: str) -> Panel:
    """A line of text across the page: the legend of the query that is answered, or `empty`."""
    instant = [_target(replace(query, instant=True), ref) for ref, query in zip("ABCDEFGH", queries, strict=False)]
    panel = _panel("stat", title, description, "short", instant, [(None, BLUE)], empty, width=24, height=3)
    panel["options"] = {
        "colorMode": "none",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "horizontal",
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "text": {"titleSize": 18},
        "textMode": "name",
        "wideLayout": True,
    }
    return panel


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    *,
    top: float | None = None,
    steps: Steps = ((None, GREEN),),
    stacked: bool = False,
    palette: Mapping[str, str] = BY_ENGINE,
    colours: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    dotted: Sequence[str] = (),
    empty: str = NO_DATA,
) -> Panel:
    """Lines over time.

    `palette` gives colours by patterns of names and `colours` by names; `dashed` and `dotted` are ends of names.
    `steps` beyond the first are drawn as limits.
    """
    targets = [_target(query, ref_id) for ref_id, query in zip("ABCDEFGH", queries, strict=False)]
    panel = _panel("timeseries", title, description, unit, targets, steps, empty)
    custom: dict[str, Any] = {
        "fillOpacity": 60 if stacked else 0,
        "lineInterpolation": "linear",
        "lineWidth": 0 if stacked else 2,
        "showPoints": "auto",
        "spanNulls": False,
    }
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    if len(steps) > 1:
        custom["thresholdsStyle"] = {"mode": "dashed"}
    panel["fieldConfig"]["defaults"] |= {"color": {"mode": "palette-classic-by-name"}, "custom": custom, "min": 0}
    if top is not None:
        panel["fieldConfig"]["defaults"]["max"] = top
    styles = dict.fromkeys(dashed, DASHED) | dict.fromkeys(dotted, DOTTED)
    panel["fieldConfig"]["overrides"] = _overrides([query.legend for query in queries], palette, colours or {}, styles)
    panel["options"] = {
        # Names side by side: a table under a panel shows three of its rows. Values are in the tooltip and the tiles.
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def spread(title: str, description: str, query: Query) -> Panel:
    """A histogram's buckets over time: shows two modes, which percentiles hide."""
    unit = "suffix: requests"
    panel = _panel(
        "heatmap", title, description, unit, [_target(query) | {"format": "heatmap"}], [(None, GREEN)], NO_DATA
    )
    panel["fieldConfig"]["defaults"]["custom"] = {}
    panel["options"] = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": unit},
        "color": {
            "exponent": 0.5,
            "fill": "dark-blue",
            "mode": "scheme",
            "reverse": False,
            "scale": "exponential",
            "scheme": "Blues",
            "steps": 64,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "selectionMode": "x",
        "showValue": "auto",
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "unit": "s"},
    }
    return panel


def labels_table(
    title: str, description: str, query: Query, columns: Mapping[str, str], *, width: int = 12, empty: str = NO_DATA
) -> Panel:
    """The labels of a series as rows; `columns` maps each label to its heading, in order."""
    return _table(title, description, "short", [query], columns, width=width, empty=empty)


def values_table(
    title: str,
    description: str,
    queries: Mapping[str, tuple[Query, str]],
    labels: Mapping[str, str],
    *,
    empty: str = NO_DATA,
) -> Panel:
    """A row for each combination of `labels`, which map to headings, and a column for each query and its unit, by its
    heading. Rows are in the order of the first query."""
    columns = {**labels, **{f"Value #{ref}": heading for ref, heading in zip("ABCDEFGH", queries, strict=False)}}
    panel = _table(
        title, description, "short", [query for query, _ in queries.values()], columns, width=24, empty=empty
    )
    panel["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": heading}, "properties": [{"id": "unit", "value": unit}]}
        for heading, (_, unit) in queries.items()
    ]
    panel["options"]["sortBy"] = [{"displayName": next(iter(queries)), "desc": False}]
    panel["transformations"].insert(0, {"id": "merge", "options": {}})
    return panel


def _table(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    columns: Mapping[str, str],
    *,
    width: int,
    empty: str,
) -> Panel:
    """Of instant queries. `columns` maps each field to its heading, in order."""
    as_table = {"format": "table", "instant": True, "range": False}
    targets = [_target(query, ref_id) | as_table for ref_id, query in zip("ABCDEFGH", queries, strict=False)]
    panel = _panel("table", title, description, unit, targets, [(None, TRANSPARENT)], empty, width=width)
    panel["fieldConfig"]["defaults"]["custom"] = {"align": "auto", "inspect": False}
    panel["options"] = {
        "cellHeight": "sm",
        "footer": {"countRows": False, "reducer": [], "show": False},
        "frameIndex": 0,
        "showHeader": True,
        "showTypeIcons": False,
    }
    chosen = {
        "includeByName": dict.fromkeys(columns, True),
        "indexByName": {field: index for index, field in enumerate(columns)},
        "renameByName": dict(columns),
        "excludeByName": {},
    }
    panel["transformations"] = [{"id": "organize", "options": chosen}]
    return panel


def _panel(
    kind: str,
    title: str,
    description: str,
    unit: str,
    targets: list[dict[str, Any]],
    steps: Steps,
    empty: str,
    *,
    width: int = 8,
    height: int = 7,
) -> Panel:
    thresholds = {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"noValue": empty, "thresholds": thresholds, "unit": unit}, "overrides": []},
        "gridPos": {"w": width, "h": height},
        "repeatDirection": "h",
        "targets": targets,
        "transparent": False,
    }


def _overrides(
    legends: Sequence[str],
    palette: Mapping[str, str],
    colours: Mapping[str, str],
    styles: Mapping[str, tuple[str, list[int]]],
) -> list[dict[str, Any]]:
    """Later ones win: patterns of names first, then dashes, then names."""
    properties: list[tuple[str, str, list[dict[str, Any]]]] = []
    if any("{{" in legend for legend in legends) or palette is not BY_ENGINE:
        properties += [("byRegexp", pattern, [fixed(colour)]) for pattern, colour in palette.items()]
    if any(legend.endswith(" p50") for legend in legends):
        properties += [("byRegexp", pattern, [line_style(*style)]) for pattern, style in DASHES.items()]
    properties += [("byRegexp", f"/ {ending}$/", [line_style(*style)]) for ending, style in styles.items()]
    if "SLO" in legends:
        properties.append(("byName", "SLO", [fixed(GREY), line_style("dash", [2, 6])]))
    properties += [("byName", name, [fixed(colour)]) for name, colour in colours.items()]
    return [{"matcher": {"id": by, "options": names}, "properties": given} for by, names, given in properties]


def _target(query: Query, ref_id: str = "A") -> dict[str, Any]:
    shown = {"expr": query.expr, "legendFormat": query.legend, "refId": ref_id}
    return {"datasource": SOURCE, "instant": query.instant, "range": not query.instant, **shown}
