"""Colours: an engine, a GPU or a run has the same colour on every panel, and percentiles differ by their dashes.

Grafana's automatic colours belong to series, so p50 and p99 of one engine differ. Known engines have their own
colour here; other labels of runs get the colour that Grafana derives from their name. All colours are legible on
Grafana's light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GREEN, ORANGE, RED, BLUE, GREY, PURPLE = "#3d9950", "#e0752d", "#d64545", "#3f83d6", "#8e8e8e", "#a16bd6"
TRANSPARENT = "transparent"

# From each share on, its colour.
ATTAINED = ((None, RED), (0.95, ORANGE), (0.99, GREEN))
FAILURE_STEPS = ((None, GREEN), (0.001, ORANGE), (0.01, RED))

ENGINES = {
    "vllm": BLUE,
    "candle": ORANGE,
    "burn": "#b8405e",
    "mistralrs": "#2a9d8f",
    "transformers": "#8f6bd9",
    "tensorrt-llm": "#6a994e",
    "tgi": "#c08a00",
    "sglang": "#d0579f",
    "llamacpp": "#a0713c",
    "lmrs": "#4c7d9c",
    "fake": "#6d7fe0",
}
BY_ENGINE: Mapping[str, str] = {f"/^{engine}( |$)/": colour for engine, colour in ENGINES.items()}
BY_GPU: Mapping[str, str] = {
    f"/GPU {digit}\\b/": colour
    for digit, colour in enumerate(
        (BLUE, ORANGE, "#2a9d8f", "#d0579f", "#8f6bd9", "#c08a00", "#6a994e", "#b8405e")  # machines have up to eight
    )
}
BY_REASON: Mapping[str, str] = {  # by the reason of throttling
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
