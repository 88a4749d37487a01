"""A dashboard as a page of HTML, each panel where the dashboard's grid has it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from docs.pictures.answers import Answers, Json, Mark, Series
from docs.pictures.charts import heatmap, lines, written

WIDTH = 1366  # pixels
COLUMN, ROW, GAP = 55, 30, 8  # pixels of Grafana's grid: a column with its gap, a row without
STYLE = f"""
body {{ margin: 0; padding: 10px 12px 12px; width: {WIDTH - 24}px; background: #f4f5f5; color: #24292e;
        font: 12px/1.35 DejaVu Sans, sans-serif; }}
header {{ margin: 0 2px 8px; }} header b {{ font-size: 14px; }} header span {{ color: #5c6570; margin-left: 12px; }}
main {{ display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: {ROW}px; gap: {GAP}px; }}
section {{ background: #fff; border: 1px solid #e1e3e6; border-radius: 2px; padding: 5px 8px; overflow: hidden; }}
section.row {{ background: none; border: none; padding: 8px 2px 0; font-weight: 600; }}
h2 {{ margin: 0 0 2px; font-size: 12px; font-weight: 600; white-space: nowrap; }}
.value {{ white-space: nowrap; line-height: 36px; font-weight: 600; text-align: center; padding-top: 8px; }}
.says {{ font-size: 16px; padding-top: 12px; }}
.empty {{ color: #5c6570; text-align: center; padding-top: 60px; }} .tile .empty {{ padding-top: 22px; }}
.spark {{ display: block; width: 100%; height: 34px; margin-top: 4px; }}
table {{ width: 100%; border-collapse: collapse; }}
td, th {{ text-align: left; padding: 4px; border-bottom: 1px solid #e1e3e6; }}
"""


def page_of(board: Json, answers: Answers, about: str) -> str:
    """The board over the span of `answers`; `about` says what was done to the server or to the client."""
    marks = answers.marks(board)
    parts = [_section(panel, answers, marks) for panel in board["panels"]]
    head = f"<meta charset='utf-8'><style>{STYLE}</style>"
    title = f"<header><b>{escape(board['title'])}</b><span>{escape(about)}</span></header>"
    return f"<!doctype html><html><head>{head}</head><body>{title}<main>{''.join(parts)}</main></body></html>"


def _section(panel: Json, answers: Answers, marks: Sequence[Mark]) -> str:
    place = panel["gridPos"]
    where = f"grid-column: {place['x'] + 1} / span {place['w']}; grid-row: {place['y'] + 1} / span {place['h']};"
    if panel["type"] == "row":
        return f"<section class='row' style='{where}'>{escape(panel['title'])}</section>"
    series = answers.of(panel)
    size = (place["w"] * COLUMN - 30, place["h"] * (ROW + GAP) - 44)
    if not any(one.last is not None for one in series):
        body = f"<div class='empty'>{escape(panel['fieldConfig']['defaults']['noValue'])}</div>"
    elif panel["type"] == "stat" and panel["options"]["textMode"] == "name":
        body = f"<div class='says'>{escape(' '.join(one.name for one in series))}</div>"
    elif panel["type"] == "stat":
        body = _tile(panel, series)
    elif panel["type"] == "table":
        body = _table(panel, series)
    else:
        draw = heatmap if panel["type"] == "heatmap" else lines
        body = draw(panel, series, answers.span, marks, size)
    kind = "tile" if panel["type"] == "stat" else "panel"
    return f"<section class='{kind}' style='{where}'><h2>{escape(panel['title'])}</h2>{body}</section>"


def _tile(panel: Json, series: Sequence[Series]) -> str:
    """The last value, in the colour of its threshold, above its course."""
    defaults = panel["fieldConfig"]["defaults"]
    (one,) = (one for one in series if one.last is not None)
    value = one.last
    assert value is not None
    steps = defaults["thresholds"]["steps"]
    colour = [step["color"] for step in steps if step["value"] is None or step["value"] <= value][-1]
    text = _text(value, defaults)
    course = _course(one, colour) if panel["options"]["graphMode"] == "area" else ""
    size = min(26, round(280 / len(text)))  # pixels: a long text stays inside its tile, as in Grafana
    return f"<div class='value' style='color: {colour}; font-size: {size}px'>{escape(text)}</div>{course}"


def _text(value: float, defaults: Json) -> str:
    """As the panel names the value, else with its unit."""
    for mapping in defaults.get("mappings", ()):
        options = mapping["options"]
        if mapping["type"] == "range" and value >= options["from"]:
            return str(options["result"]["text"])
        if mapping["type"] == "value" and f"{value:g}" in options:
            return str(options[f"{value:g}"]["text"])
    return written(value, defaults["unit"])


def _course(one: Series, colour: str) -> str:
    known = [(at, value) for at, value in enumerate(one.values) if value is not None]
    top, last = max(value for _, value in known) or 1.0, len(one.values) - 1
    points = " ".join(f"{1000 * at / last:.0f},{32 - 30 * value / top:.1f}" for at, value in known)
    shape = f"{1000 * known[0][0] / last:.0f},34 {points} {1000 * known[-1][0] / last:.0f},34"
    return (
        "<svg class='spark' viewBox='0 0 1000 34' preserveAspectRatio='none'>"
        f"<polygon points='{shape}' fill='{colour}' opacity='0.2'/>"
        f"<polyline points='{points}' fill='none' stroke='{colour}' vector-effect='non-scaling-stroke'/></svg>"
    )


def _table(panel: Json, series: Sequence[Series]) -> str:
    """A row for each combination of labels, with the last value of each query that has a column."""
    organised = panel["transformations"][-1]["options"]
    names = sorted(organised["indexByName"], key=lambda name: int(organised["indexByName"][name]))
    columns = {name: organised["renameByName"][name] for name in names}
    labels = [name for name in columns if not name.startswith("Value #")]
    units = {rule["matcher"]["options"]: rule["properties"][0]["value"] for rule in panel["fieldConfig"]["overrides"]}
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for one in series:
        key = tuple(one.labels.get(name, "") for name in labels)
        row = rows.setdefault(key, dict(zip(labels, key, strict=True)))
        column = f"Value #{one.ref}"
        if column in columns and one.last is not None:
            row[column] = written(one.last, units[columns[column]])
    head = "".join(f"<th>{escape(heading)}</th>" for heading in columns.values())
    body = ["".join(f"<td>{escape(row.get(name, ''))}</td>" for name in columns) for row in rows.values()]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table>"
