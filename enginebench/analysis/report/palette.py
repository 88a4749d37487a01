"""The mark and the colour of each engine in the charts of the old reports; the colours are `write/palette.py`'s."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from enginebench.analysis.write.palette import ENGINES, PAGE_COLOURS, variables

__all__ = ["ENGINES", "PAGE_COLOURS", "SHAPES", "Style", "styles_of", "variables"]
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


@dataclass(frozen=True, slots=True)
class Style:
    """How one engine looks, in every chart and table."""

    shape: str
    slot: int

    @property
    def colour(self) -> str:
        return f"var(--e{self.slot})"


def styles_of(labels: Iterable[str]) -> dict[str, Style]:
    """A style per engine in the order of first appearance; beyond sixteen, colours repeat with other marks."""
    distinct = dict.fromkeys(labels)
    return {
        label: Style(SHAPES[(index + index // len(ENGINES)) % len(SHAPES)], index % len(ENGINES))
        for index, label in enumerate(distinct)
    }
