"""What all charts of a report share: theme, encodings, and the way from a specification to a chart.

A chart is a function from tidy rows to a Vega-Lite specification, in which scales, labels and legends are Vega-Lite's
to place. The reader's browser draws it. Colours are CSS variables of the page: one drawing serves light and dark
screens.

vl-convert carries the Vega libraries. It takes a second to start, so a page does without it: the script is kept for the
next page, or made anew where it cannot be kept, and only a card is drawn here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from markupsafe import Markup
from platformdirs import user_cache_path

from enginebench.analysis.report.palette import Style
from enginebench.records.files import write_atomically

CACHE = user_cache_path("enginebench")
Spec = dict[str, Any]
"""A part of a chart in Vega-Lite: https://vega.github.io/vega-lite/docs."""
Row = dict[str, Any]
"""What is drawn: `engine`, where it is one engine's, and what else the chart needs, by name."""
Styles = Mapping[str, Style]
"""How each engine looks, by label."""

WIDTH, HEIGHT = 400, 230  # pixels of a chart's plane: half a page, so that it is legible on a telephone too
LOGARITHMIC = 20  # an axis whose values span more than this factor is logarithmic
PAGE, INK, MUTED, GRID, SHADE, WARN, BAD = (
    f"var(--{name})" for name in ("page", "ink", "muted", "grid", "shade", "warn", "bad")
)
HIDDEN: Spec = {"name": "hidden", "value": []}  # engines that the reader has hidden
SHOWN = {"filter": "indexof(hidden, datum.engine) < 0"}  # without these
LINE: Spec = {"type": "line", "strokeWidth": 2, "clip": True, "invalid": "break-paths-show-domains"}
BAND: Spec = {"type": "area", "opacity": 0.16, "clip": True, "invalid": "break-paths-show-domains"}
BAR: Spec = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.7, "clip": True}
POINT: Spec = {"type": "point", "size": 55, "strokeWidth": 1.75, "opacity": 1, "clip": True}
HEADING: Spec = {"anchor": "start", "frame": "group", "fontSize": 12.5, "fontWeight": 600, "color": INK, "offset": 6}
CONFIG: Spec = {
    "background": "transparent",
    "font": "Helvetica Neue, Helvetica, Arial, sans-serif",
    "padding": {"left": 4, "top": 6, "right": 8, "bottom": 4},
    "aria": False,
    "view": {"stroke": None},
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
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6, "labelOverlap": True},
    "header": {"title": None, "labelAnchor": "start", "labelColor": INK, "labelFontSize": 12.5, "labelFontWeight": 600},
    "title": HEADING,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """`spec` is Vega-Lite, with an array `hidden` of engines."""

    spec: Spec

    @property
    def svg(self) -> str:
        """Drawn here, as a browser draws it."""
        import vl_convert

        return str(vl_convert.vegalite_to_svg(dict(self.spec)))


def vega_script() -> Markup:
    """Vega, Vega-Lite and Vega-Embed."""
    kept = CACHE / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError):
        return Markup(kept.read_text(encoding="utf-8"))
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, script)
    return Markup(script)


def chart_of(spec: Spec) -> Chart:
    return Chart({"config": CONFIG, **spec, "params": [HIDDEN, *spec.get("params", [])]})


def data(rows: Sequence[Mapping[str, Any]]) -> Spec:
    return {"data": {"values": rows}}


def layer(mark: Spec, encoding: Spec, *transforms: Spec, **more: Any) -> Spec:
    return {"mark": mark, "encoding": encoding, "transform": [SHOWN, *transforms], **more}


def quantitative(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", **more}


def nominal(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", **more}


def number(field: str, title: str) -> Spec:
    """A number in a tooltip, to four significant digits."""
    return quantitative(field, title=title, format=",.4~r")


def by_colour(styles: Styles) -> Spec:
    look = {"domain": list(styles), "range": [style.colour for style in styles.values()]}
    return nominal("engine", scale=look, legend=None)


def by_shape(styles: Styles) -> Spec:
    look = {"domain": list(styles), "range": [style.shape for style in styles.values()]}
    return nominal("engine", scale=look, legend=None)


def value_scale(values: Iterable[float], logarithmic: bool | None = None) -> Spec:
    """From zero, or logarithmic where the values are far apart; with room above the largest. Values that are not above
    zero lie at the end of a logarithmic axis."""
    known = list(values)
    largest, positive = max(known, default=1.0) or 1.0, [value for value in known if value > 0] or [1.0]
    if logarithmic is None:
        logarithmic = largest / min(positive) > LOGARITHMIC
    if logarithmic:
        return {"type": "log", "domain": [min(positive) / 1.25, max(positive) * 1.25], "nice": False, "clamp": True}
    return {"type": "linear", "domain": [0.0, largest * 1.08], "nice": False}


def value_axis(title: str | None = None, ticks: int = 6) -> Spec:
    return {"title": title, "tickCount": ticks, "format": ",.6~r"}


def nearest(name: str, encoding: Spec, tooltip: Sequence[Spec], **more: Any) -> Spec:
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


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """To six significant digits: more than a chart shows, and half as long in the file."""
    return [None if value is None else float(f"{value:.6g}") for value in values]
