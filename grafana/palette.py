"""Colours: an engine, a GPU or a run has the same colour on every panel, and percentiles differ by their dashes.

Grafana's automatic colours belong to series, so p50 and p99 of one engine differ, and the third engine changes its
colour when the second is deselected. Here the start of a series' name decides. The patterns are disjoint, and one of
them matches every name; engines that people compare fall into different ones. All colours are legible on Grafana's
light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GREEN, ORANGE, RED, BLUE, GREY, PURPLE = "#3d9950", "#e0752d", "#d64545", "#3f83d6", "#8e8e8e", "#a16bd6"
TRANSPARENT = "transparent"

# From each share on, its colour.
ATTAINED = ((None, RED), (0.95, ORANGE), (0.99, GREEN))
FEW_FAIL = ((None, GREEN), (0.001, ORANGE), (0.01, RED))

BY_ENGINE: Mapping[str, str] = {
    r"/^[v-z]/i": BLUE,  # vllm
    r"/^[ac]/i": ORANGE,  # candle
    r"/^[bd]/i": "#b8405e",  # burn
    r"/^m/i": "#2a9d8f",  # mistralrs
    r"/^t(?![eg])/i": "#8f6bd9",  # transformers
    r"/^te/i": "#6a994e",  # tensorrt-llm
    r"/^tg/i": "#c08a00",  # tgi
    r"/^[q-s]/i": "#d0579f",  # sglang
    r"/^(k|l(?!m))/i": "#a0713c",  # llamacpp
    r"/^lm/i": "#4c7d9c",  # lmrs
    r"/^[e-j]/i": "#6d7fe0",  # fake
    r"/^([n-pu]|[^a-z])/i": "#7f8a99",  # any other name
}
BY_GPU: Mapping[str, str] = {
    f"/GPU {digit}\\b/": colour
    for digit, colour in enumerate(
        (BLUE, ORANGE, "#2a9d8f", "#d0579f", "#8f6bd9", "#c08a00", "#6a994e", "#b8405e")  # machines have up to eight
    )
}
BY_REASON: Mapping[str, str] = {  # of throttling
    r"/ power_cap$/": GREY,
    r"/ software_thermal$/": ORANGE,
    r"/ hardware_thermal$/": RED,
    r"/ hardware_slowdown$/": PURPLE,
    r"/ power_brake$/": BLUE,
}
BY_SIDE: Mapping[str, str] = {"/^A /": BLUE, "/^B /": ORANGE}

DOTTED, DASHED = ("dot", [1, 6]), ("dash", [8, 6])
DASHES = {"/ p50$/": DOTTED, "/ p95$/": DASHED}  # p99 is solid


def fixed(colour: str) -> dict[str, Any]:
    return {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}


def line_style(fill: str, dash: list[int]) -> dict[str, Any]:
    return {"id": "custom.lineStyle", "value": {"fill": fill, "dash": dash}}
