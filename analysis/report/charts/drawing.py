"""What all charts of a report share: who is drawn, in which colours, and the way from a description to SVG.

Altair describes them, vl-convert draws them; no script, no network. Colours are CSS variables of the page, so that one
drawing serves light and dark screens. Each chart is half a page wide, so that it is legible on a telephone too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from analysis.report.charts.palette import Style
from analysis.report.charts.scales import Scale
from analysis.units import Unit
from analysis.verdict.contenders import Contender

FONT = "Helvetica Neue, Helvetica, Arial, sans-serif"
PAGE, INK, MUTED, GRID, SHADE = (f"var(--{name})" for name in ("page", "ink", "muted", "grid", "shade"))


@dataclass(frozen=True, slots=True)
class Drawn:
    """An engine as the charts know it."""

    contender: Contender
    style: Style

    @property
    def name(self) -> str:
        return self.contender.label


def chart_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    return alt.Chart(alt.Data(values=list(rows)))  # type: ignore[no-untyped-call]  # generated classes


def heading(text: str, colour: str) -> alt.Title:
    return alt.Title(text, anchor="start", frame="group", fontSize=12.5, fontWeight=600, color=colour, offset=6)


def value_axis(scale: Scale, unit: Unit, side: str = "left", ticks: int = 6) -> alt.Axis:
    return alt.Axis(
        title=unit.name if side == "bottom" else None,
        values=scale.ticks(ticks),
        format=",.6~r",
        domain=False,
        ticks=False,
        labelPadding=6,
        labelOverlap=True,
    )


def colours(engines: Sequence[Drawn]) -> alt.Scale:
    return alt.Scale(domain=[one.name for one in engines], range=[one.style.colour for one in engines])


def shapes(engines: Sequence[Drawn]) -> alt.Scale:
    return alt.Scale(domain=[one.name for one in engines], range=[one.style.shape for one in engines])


def svg_of(chart: Any) -> str:
    configured = chart.configure(
        background="transparent",
        font=FONT,
        padding={"left": 4, "top": 6, "right": 8, "bottom": 4},
        autosize=alt.AutoSizeParams(type="pad"),
        aria=False,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelFontSize=12,
            titleFontSize=12,
            labelColor=MUTED,
            titleColor=MUTED,
            titleFontWeight="normal",
            domainColor=MUTED,
            tickColor=MUTED,
            gridColor=GRID,
        ),
    )
    return str(vl_convert.vegalite_to_svg(configured.to_dict(validate=False)))  # validating takes longer than drawing
