"""Where TTFT goes: a bar for each engine at every stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.report.axis import Axis
from analysis.report.charts.drawing import (
    INK,
    MUTED,
    PAGE,
    Chart,
    Drawn,
    Spec,
    colours,
    drawn,
    nominal,
    quantitative,
    rows_of,
    tooltips,
)
from analysis.report.charts.scales import WIDTH
from analysis.units import format_seconds, format_share
from analysis.verdict.stages.knee import mean_parts

PART_OPACITIES = (0.16, 0.4, 0.68, 1.0)  # client, queue, prefill, delivery, in the engine's own colour


def ttft_parts(engines: Sequence[Drawn], axis: Axis) -> Chart | None:
    """What share of its mean TTFT each engine spent where, at every stage. `None` where no server reported it."""
    lines: list[dict[str, Any]] = []  # a heading for each stage, and under it a bar for each engine
    bars: list[dict[str, Any]] = []
    for place in axis.places:
        known = [(one, parts) for one in engines if (parts := mean_parts(one.contender, place.label)) is not None]
        if known:
            lines.append({"row": len(lines), "text": place.label, "heading": True, "total": ""})
        for one, parts in known:
            start = 0.0
            for opacity, (part, length) in zip(PART_OPACITIES, parts.lengths.items(), strict=True):
                share = length / (parts.total or 1.0)
                texts = {"name": one.name, "place": place.label, "part": part, "text": format_seconds(length)}
                numbers = {"row": len(lines), "opacity": opacity, "a": 100 * start, "b": 100 * (start + share)}
                bars.append(texts | numbers | {"share": format_share(share)})
                start += share
            text = format_seconds(parts.total)
            lines.append({"row": len(lines), "text": one.name, "heading": False, "total": text})
    if not bars:
        return None
    domain = [line["row"] for line in lines]
    y: Spec = {"field": "row", "type": "ordinal", "title": None, "axis": None, "scale": {"domain": domain}}
    off = dict.fromkeys(("domain", "ticks", "grid"), False)
    shares: Spec = {"values": [0, 25, 50, 75, 100], "labelExpr": "datum.value + ' %'", **off}
    bar = {
        "data": rows_of(bars),
        "mark": {"type": "bar", "height": 13, "stroke": PAGE, "strokeWidth": 0.75},
        "encoding": {
            "y": y,
            "x": quantitative("a", title=None, scale={"domain": [0, 100]}, axis=shares),
            "x2": {"field": "b"},
            "color": colours(engines),
            "opacity": quantitative("opacity", scale=None, legend=None),
            "tooltip": tooltips(engine="name", at="place", part="part", mean="text", share="share"),
        },
    }
    ink = {"condition": {"test": "datum.heading", "value": INK}, "value": MUTED}
    names = {
        "data": rows_of(lines),
        "mark": {"type": "text", "align": "right", "dx": -8, "fontSize": 12, "limit": 150},
        "encoding": {"y": y, "x": {"datum": 0}, "text": nominal("text"), "color": ink},
    }
    sums = {
        "data": rows_of(lines),
        "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12, "color": INK},
        "encoding": {"y": y, "x": {"datum": 100}, "text": nominal("total")},
    }
    return drawn({"layer": [bar, names, sums], "width": WIDTH - 60, "height": 20 * len(lines)})
