"""The kinds of panels in Grafana's JSON: a tile, lines over time, a histogram over time, a table of labels.

Every panel has a title, a question that its description answers, a unit, thresholds, and a sentence for when it is
empty. Red belongs to values that are wrong, never to lines that show a limit: those are orange or grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grafana.load_promql import LAST_EDGE, TAIL_FAILED
from grafana.palette import BLUE, BY_ENGINE, DASHED, DASHES, DOTTED, GREEN, GREY, RED, TRANSPARENT, fixed, line_style
from grafana.promql import Query

Panel = dict[str, Any]
Steps = Sequence[tuple[float | None, str]]  # from this value on, this colour; the first value is None
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TOKENS_PER_SECOND = "suffix: tok/s"
NO_DATA = "no requests yet"
INSTANT = {"instant": True, "range": False}
ABSENT = "–"  # if a sentence at the top of the page says why


def tile(
    title: str,
    description: str,
    unit: str,
    query: Query,
    steps: Steps = ((None, BLUE),),
    *,
    empty: str = NO_DATA,
    texts: Mapping[str, str] | None = None,
    beyond: str | None = None,
    named: bool = False,
) -> Panel:
    """Return a panel with one big number per engine, at the end of the time range; an older one would be out of date.

    `texts` names values: `{"0": "not ready"}`; `beyond` names those from the last step on; `named` shows the legend.
    """
    panel = _panel("stat", title, description, unit, [_target(query) | INSTANT], steps, empty, width=6, height=3)
    absent = {"match": "null", "result": {"text": empty, "color": GREY}}
    mappings: list[dict[str, Any]] = [{"type": "special", "options": absent}]
    if texts:
        mappings.append({"type": "value", "options": {value: {"text": text} for value, text in texts.items()}})
    if beyond is not None:
        mappings.append(_beyond(beyond, steps[-1][0]))
    panel["fieldConfig"]["defaults"] |= {"color": {"mode": "thresholds"}, "min": 0, "mappings": mappings}
    panel["options"] = {"graphMode": "none", "textMode": "value_and_name" if named else "auto"}
    return panel


def sentence(title: str, description: str, queries: Sequence[Query], *, otherwise: str) -> Panel:
    """Return a line of text across the page: the legend of the query that is answered, or `otherwise`.

    `otherwise` is a query too: Grafana hides the text of an empty panel where names are shown in place of values.
    """
    answered = " or ".join(f"({query.expr})" for query in queries)
    queries = [*queries, Query(f"vector(1) unless on () ({answered})", otherwise)]
    instant = [_target(query, ref) | INSTANT for ref, query in zip("ABCDEFGH", queries, strict=False)]
    panel = _panel("stat", title, description, "short", instant, [(None, BLUE)], otherwise, width=24, height=3)
    panel["options"] = {"colorMode": "none", "graphMode": "none", "orientation": "horizontal", "textMode": "name"}
    panel["options"]["text"] = {"titleSize": 18}
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
    """Return a panel with lines over time.

    `palette` gives colours by patterns of names and `colours` by names; `dashed` and `dotted` are ends of names.
    `steps` beyond the first are drawn as limits.
    """
    targets = [_target(query, ref_id) for ref_id, query in zip("ABCDEFGH", queries, strict=False)]
    panel = _panel("timeseries", title, description, unit, targets, steps, empty)
    custom: dict[str, Any] = {"fillOpacity": 60 if stacked else 0, "lineWidth": 0 if stacked else 2}
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
        # Names side by side: a table under a panel shows only three rows. Values are in the tooltip and the tiles.
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def spread(title: str, description: str, query: Query) -> Panel:
    """Return a histogram's buckets over time, which show two modes that percentiles hide."""
    unit = "suffix: requests"
    panel = _panel(
        "heatmap", title, description, unit, [_target(query) | {"format": "heatmap"}], [(None, GREEN)], NO_DATA
    )
    panel["options"] = {
        "calculate": False,
        "cellValues": {"unit": unit},
        "color": {"mode": "scheme", "scheme": "Blues"},
        "yAxis": {"unit": "s"},
    }
    return panel


def labels_table(
    title: str, description: str, query: Query, columns: Mapping[str, str], *, empty: str = NO_DATA
) -> Panel:
    """Return the labels of a series as rows; `columns` maps each label to its heading, in order."""
    return _table(title, description, [query], columns, empty)


def values_table(
    title: str,
    description: str,
    queries: Mapping[str, tuple[Query, str]],
    labels: Mapping[str, str],
    *,
    empty: str = NO_DATA,
) -> Panel:
    """Return a row for each combination of `labels`, which map to headings, with a column for each query and its unit,
    by its heading. The first query orders the rows. A column in seconds is a p99, which may fall among failures."""
    columns = {**labels, **{f"Value #{ref}": heading for ref, heading in zip("ABCDEFGH", queries, strict=False)}}
    panel = _table(title, description, [query for query, _ in queries.values()], columns, empty, width=24)
    failed = {"id": "mappings", "value": [_beyond(TAIL_FAILED, LAST_EDGE)]}
    panel["fieldConfig"]["overrides"] = [
        {
            "matcher": {"id": "byName", "options": heading},
            "properties": [{"id": "unit", "value": unit}, *([failed] if unit == "s" else [])],
        }
        for heading, (_, unit) in queries.items()
    ]
    panel["options"]["sortBy"] = [{"displayName": next(iter(queries)), "desc": False}]
    panel["transformations"].insert(0, {"id": "merge", "options": {}})
    return panel


def _table(
    title: str, description: str, queries: Sequence[Query], columns: Mapping[str, str], empty: str, width: int = 8
) -> Panel:
    """Return a table; `columns` maps each field to its heading, in order."""
    targets = [
        _target(query, ref_id) | INSTANT | {"format": "table"}
        for ref_id, query in zip("ABCDEFGH", queries, strict=False)
    ]
    panel = _panel("table", title, description, "short", targets, [(None, TRANSPARENT)], empty, width=width)
    panel["options"] = {"cellHeight": "sm"}
    chosen = {
        "includeByName": dict.fromkeys(columns, True),
        "indexByName": {field: index for index, field in enumerate(columns)},
        "renameByName": dict(columns),
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
        "targets": targets,
    }


def _overrides(
    legends: Sequence[str],
    palette: Mapping[str, str],
    colours: Mapping[str, str],
    styles: Mapping[str, tuple[str, list[int]]],
) -> list[dict[str, Any]]:
    """Return patterns of names, then dashes, then names, because later overrides win."""
    properties: list[tuple[str, str, list[dict[str, Any]]]] = []
    if any("{{" in legend for legend in legends) or palette is not BY_ENGINE:
        properties += [("byRegexp", pattern, [fixed(colour)]) for pattern, colour in palette.items()]
    if any(legend.endswith(" p50") for legend in legends):
        properties += [("byRegexp", pattern, [line_style(*style)]) for pattern, style in DASHES.items()]
    properties += [("byRegexp", f"/ {ending}$/", [line_style(*style)]) for ending, style in styles.items()]
    if "SLO" in legends:
        properties.append(("byName", "SLO", [fixed(GREY), line_style("dash", [2, 6])]))
    properties += [("byName", name, [fixed(colour)]) for name, colour in colours.items()]
    return [{"matcher": {"id": by, "options": names}, "properties": values} for by, names, values in properties]


def _target(query: Query, ref_id: str = "A") -> dict[str, Any]:
    shown = {"expr": query.expr, "legendFormat": query.legend, "refId": ref_id}
    return {"datasource": SOURCE, "instant": False, "range": True, **shown}


def _beyond(text: str, limit: float | None) -> dict[str, Any]:
    """Return a mapping that shows text for values from `limit` on, also infinite ones, which units format badly."""
    return {"type": "range", "options": {"from": limit, "to": None, "result": {"text": text, "color": RED}}}
