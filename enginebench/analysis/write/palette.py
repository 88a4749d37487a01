"""Colours of the report, for light and dark pages.

Charts and the style sheet use CSS variables, which the page defines once for light and once for dark screens. People
with colour blindness can distinguish the engines' colours too (the first four after Okabe & Ito 2008), and every chart
has the engines' names. All colours are legible as text on their page: contrast above 4.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Colour:
    light: str
    dark: str


PAGE = Colour("#fdfdfc", "#15181d")
PAGE_COLOURS = {
    "page": PAGE,
    "ink": Colour("#1c2127", "#e7e9ec"),
    "muted": Colour("#5c6570", "#9ba5b1"),
    "grid": Colour("#e6e8eb", "#2b3038"),
    "shade": Colour("#eff1f3", "#21262d"),  # steady windows
    "good": Colour("#0b7d61", "#45c4a2"),
    "warn": Colour("#8a5a00", "#f0c060"),
    "warn-shade": Colour("#fdf6e6", "#2d2616"),
    "bad": Colour("#b3261e", "#ff9d94"),
    "bad-shade": Colour("#fdf0ee", "#331d1c"),
}

ENGINES = (
    Colour("#0a67b5", "#63adf2"),  # blue
    Colour("#c74d06", "#f28e4a"),  # vermilion
    Colour("#0b7d61", "#45c4a2"),  # green
    Colour("#97408c", "#dc90d2"),  # purple
    Colour("#6e282b", "#f94173"),  # maroon
    Colour("#443081", "#8771de"),  # indigo
    Colour("#115667", "#4e9397"),  # petrol
    Colour("#675626", "#e6c99a"),  # ochre
    Colour("#b71532", "#b97057"),  # red
    Colour("#853fd8", "#ebb9f7"),  # violet
    Colour("#cd3976", "#da5ab6"),  # rose
    Colour("#6d0f69", "#f770ef"),  # magenta
    Colour("#211eb4", "#3a81f6"),  # ultramarine
    Colour("#4b46ae", "#6287c2"),  # slate
    Colour("#a15556", "#ee5e23"),  # rust
    Colour("#8b0f49", "#f6a3af"),  # crimson
)


def variables(side: Literal["light", "dark"]) -> dict[str, str]:
    named = PAGE_COLOURS | {f"e{slot}": colour for slot, colour in enumerate(ENGINES)}
    return {name: getattr(colour, side) for name, colour in named.items()}


def slots_of(names: Iterable[str]) -> dict[str, int]:
    """Number the colours of engines in the order of first appearance; beyond sixteen, colours repeat."""
    return {name: index % len(ENGINES) for index, name in enumerate(dict.fromkeys(names))}
