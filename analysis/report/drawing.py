"""What all charts of a report share: who is drawn, in which colours, and the way from a description to a chart.

Charts are described in Vega-Lite. vl-convert draws each one for paper and for readers that run no script; a browser
draws it again, so that it answers to the pointer. Colours are CSS variables of the page, so that one drawing serves
light and dark screens. Each chart is half a page wide, so that it is legible on a telephone too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import vl_convert
from markupsafe import Markup

from analysis.compare.engine_runs import Contender
from analysis.report.palette import Style

Spec = dict[str, Any]
"""A part of a chart in Vega-Lite: https://vega.github.io/vega-lite/docs."""

PAGE, INK, MUTED, GRID, SHADE, WARN, BAD = (
    f"var(--{name})" for name in ("page", "ink", "muted", "grid", "shade", "warn", "bad")
)
SHOWN = {"filter": "indexof(hidden, datum.name) < 0"}  # without the series that the reader has hidden
CONFIG: Spec = {
    "background": "transparent",
    "font": "Helvetica Neue, Helvetica, Arial, sans-serif",
    "padding": {"left": 4, "top": 6, "right": 8, "bottom": 4},
    "autosize": {"type": "pad"},
    "aria": False,
    "view": {"stroke": None, "continuousWidth": 300, "continuousHeight": 300},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelColor": MUTED,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "domainColor": MUTED,
        "tickColor": MUTED,
        "gridColor": GRID,
    },
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """An engine as the charts know it."""

    contender: Contender
    style: Style

    @property
    def name(self) -> str:
        return self.contender.label


@dataclass(frozen=True, slots=True)
class Chart:
    """`svg` is for paper and for readers without scripts; `spec` is Vega-Lite, with an array `hidden` of names."""

    svg: Markup
    spec: Mapping[str, Any]


def drawn(spec: Spec) -> Chart:
    whole = {"config": CONFIG, **spec, "params": [{"name": "hidden", "value": []}, *spec.get("params", [])]}
    return Chart(Markup(vl_convert.vegalite_to_svg(_still(whole))), whole)


def _still(part: Any) -> Any:
    """Without the layers of `reading`, which draw nothing before there is a pointer."""
    if isinstance(part, dict):
        return {name: value if name == "data" else _still(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_still(one) for one in part if not (isinstance(one, dict) and _follows_pointer(one))]
    return part


def _follows_pointer(layer: Spec) -> bool:
    return any(param.get("select", {}).get("nearest") for param in layer.get("params", []))


def rows_of(rows: Sequence[Mapping[str, Any]]) -> Spec:
    return {"values": rows}


def quantitative(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", **more}


def nominal(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", **more}


def tooltips(**fields: str) -> list[Spec]:
    """Tooltips: title → field. The fields hold texts as the report prints them."""
    return [nominal(field, title=title) for title, field in fields.items()]


def reading(name: str, encoding: Spec, tooltip: Sequence[Spec], **more: Any) -> Spec:
    """A dot on the point next to the pointer, with its tooltip. `name` is unique within the chart."""
    near = {"type": "point", "nearest": True, "on": "pointerover", "clear": "pointerout"}
    opacity = {"condition": {"param": name, "empty": False, "value": 1}, "value": 0}
    return {
        "mark": {"type": "point", "filled": True, "size": 60},
        "params": [{"name": name, "select": near}],
        "encoding": {**encoding, "tooltip": tooltip, "opacity": opacity},
        **more,
    }


def zoom(channels: Sequence[str], *views: str) -> Spec:
    """Dragging moves the axes, the wheel with Ctrl stretches them, a double click puts them back.

    Without `views`, the names of those that move together, it belongs to the view that has it.
    """
    wheel = "wheel![event.ctrlKey || event.metaKey]"  # the wheel alone scrolls the page
    select = {"type": "interval", "encodings": list(channels), "zoom": wheel, "clear": "dblclick"}
    return {"name": "zoom", "select": select, "bind": "scales"} | ({"views": list(views)} if views else {})


def rounded(values: Iterable[float]) -> list[float]:
    """To six significant digits: more than a chart shows, and half as long in the file."""
    return [float(f"{value:.6g}") for value in values]


def heading(words: str, colour: str) -> Spec:
    look = {"anchor": "start", "frame": "group", "fontSize": 12.5, "fontWeight": 600, "offset": 6}
    return {"text": words, "color": colour, **look}


def value_axis(title: str | None = None, ticks: int = 6) -> Spec:
    return {
        "title": title,
        "tickCount": ticks,
        "format": ",.6~r",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "labelOverlap": True,
    }


def colours(engines: Sequence[Drawn]) -> Spec:
    ours = {"domain": [one.name for one in engines], "range": [one.style.colour for one in engines]}
    return nominal("name", scale=ours, legend=None)


def shapes(engines: Sequence[Drawn]) -> Spec:
    ours = {"domain": [one.name for one in engines], "range": [one.style.shape for one in engines]}
    return nominal("name", scale=ours, legend=None)
