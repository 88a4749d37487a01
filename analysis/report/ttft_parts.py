"""Where TTFT goes: a bar for each engine at every stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.compare.knee import mean_parts
from analysis.report.axis import Axis
from analysis.report.drawing import (
    INK,
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
from analysis.report.scales import WIDTH
from records.formatting import format_seconds, format_share

PART_OPACITIES = (0.16, 0.4, 0.68, 1.0)  # client, queue, prefill, delivery, in the engine's own colour


def ttft_parts(engines: Sequence[Drawn], axis: Axis) -> Chart | None:
    """What share of its mean TTFT each engine spent where, at every stage. `None` where no server reported it."""
    bars: list[dict[str, Any]] = []
    for place in axis.places:
        for one in engines:
            parts = mean_parts(one.contender, place.label)
            for order, (part, length) in enumerate(parts.lengths.items() if parts is not None else ()):
                share = length / (parts.total or 1.0) if parts is not None else 0.0
                texts = {"name": one.name, "place": place.label, "part": part, "text": format_seconds(length)}
                bars.append(texts | {"order": order, "value": 100 * share, "share": format_share(share)})
    if not bars:
        return None
    opacity: Spec = {"field": "order", "type": "ordinal", "scale": {"range": PART_OPACITIES}, "legend": None}
    shares: Spec = {"values": [0, 25, 50, 75, 100], "labelExpr": "datum.value + ' %'", "domain": False, "grid": False}
    bar: Spec = {
        "mark": {"type": "bar", "height": 13, "stroke": PAGE, "strokeWidth": 0.75},
        "encoding": {
            "y": nominal("name", title=None, axis={"domain": False, "ticks": False, "labelLimit": 150}),
            "x": quantitative("value", title=None, scale={"domain": [0, 100]}, axis=shares),
            "color": colours(engines),
            "opacity": opacity,
            "order": quantitative("order"),
            "tooltip": tooltips(engine="name", at="place", part="part", mean="text", share="share"),
        },
        "width": WIDTH - 60,
        "height": {"step": 20},
    }
    header = {"labelOrient": "top", "labelAnchor": "start", "labelColor": INK, "labelFontSize": 12}
    places = nominal("place", title=None, sort=list(axis.labels), header=header)
    apart = {"scale": {"y": "independent"}}
    return drawn({"data": rows_of(bars), "facet": {"row": places}, "spec": bar, "spacing": 6, "resolve": apart})
