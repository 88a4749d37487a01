"""The result as one HTML file: plots and tables; no script, no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, PackageLoader

from analysis.report.charts.drawing import Spec, drawn, nominal, quantitative, rows_of
from analysis.report.charts.palette import Style, styles_of, variables
from analysis.report.charts.scales import HEIGHT, WIDTH
from analysis.report.templating import environment
from analysis.units import Unit, time_unit
from bench.result.document import BenchResult, Series
from bench.result.spread import middle_of
from bench.result.tables import CAPTION, notes_of, sentence_of, tables_of
from records.files import write_atomically

SAME_TIME = Unit("tokens/s", 1)


@dataclass(frozen=True, slots=True)
class Plot:
    """A line per variant over the sizes of a family of measures."""

    title: str
    svg: str


def write_page(found: BenchResult, path: Path) -> None:
    """Raises `OSError`."""
    write_atomically(path, render(found))


def render(found: BenchResult) -> str:
    styles = styles_of(one.label for one in found.measured)
    made = environment()
    made.loader = ChoiceLoader([PackageLoader("bench.result"), PackageLoader("analysis.report")])
    return made.get_template("bench.html.j2").render(
        sentence=sentence_of(found),
        engines=[(label, style.slot) for label, style in styles.items()],
        facts=[found.made_at, str(found.host.get("cpu")), f"{found.host.get('usable_cores')} cores"],
        plots=plots_of(found, styles),
        tables=tables_of(found),
        caption=CAPTION,
        notes=list(notes_of(found)),
        light=variables("light"),
        dark=variables("dark"),
    )


def plots_of(found: BenchResult, styles: Mapping[str, Style]) -> list[Plot]:
    """Those with at least two sizes of some variant."""
    wanted = (
        ("prefill", "Prefill: time to the first token over prompt tokens", lambda name: not name.endswith("inside")),
        ("generate", "Generation: time to the last token over answer tokens", lambda name: True),
        ("batch", "Decoding: tokens/s over requests at the same time", lambda name: name.endswith("decode")),
        ("batch", "With prompts: tokens/s over requests at the same time", lambda name: not name.endswith("decode")),
    )
    plots = []
    for family, title, chosen in wanted:
        lines = {
            one.label: [series for series in one.family(family) if chosen(series.measure.name)]
            for one in found.measured
        }
        if any(len(line) > 1 for line in lines.values()):
            plots.append(_plot(title, lines, styles))
    return plots


def _plot(title: str, lines: Mapping[str, Sequence[Series]], styles: Mapping[str, Style]) -> Plot:
    """Both axes are logarithmic; a bar is a 95 % interval."""
    middles = [
        (label, series.measure, middle)
        for label, line in lines.items()
        for series in line
        if (middle := middle_of(series)) is not None and middle.median > 0
    ]
    unit = time_unit(middle.median for _, _, middle in middles) if middles[0][1].unit == "s" else SAME_TIME
    rows: list[dict[str, Any]] = [
        {
            "name": label,
            "size": measure.size,
            "value": middle.median * unit.scale,
            "low": None if middle.low is None else middle.low * unit.scale,
            "high": None if middle.high is None else middle.high * unit.scale,
        }
        for label, measure, middle in middles
    ]
    names = list(lines)
    sizes = sorted({row["size"] for row in rows})
    colours = {"domain": names, "range": [styles[name].colour for name in names]}
    shapes = {"domain": names, "range": [styles[name].shape for name in names]}
    places = {"type": "log", "domain": [sizes[0], sizes[-1]]}
    ticks = {"values": sizes, "grid": False, "labelOverlap": True, "format": ",d"}
    values = {"type": "log", "domain": _domain(rows), "nice": False}
    value = quantitative("value", title=unit.name, scale=values)
    spec: Spec = {
        "data": rows_of(rows),
        "width": WIDTH,
        "height": HEIGHT,
        "encoding": {
            "x": quantitative("size", title=None, scale=places, axis=ticks),
            "color": nominal("name", scale=colours, legend=None),
        },
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {"y": quantitative("low", scale=values), "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": value}},
            {
                "mark": {"type": "point", "size": 45, "filled": True, "opacity": 1},
                "encoding": {"y": value, "shape": nominal("name", scale=shapes, legend=None)},
            },
        ],
    }
    return Plot(title, drawn(spec).svg)


def _domain(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    ends = [row[name] for row in rows for name in ("value", "low", "high") if row[name]]
    return [min(ends) * 0.9, max(ends) * 1.1] if ends else [math.e, 10 * math.e]
