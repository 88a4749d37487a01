"""The engines' colours are legible, and each differs from all others, also for people with colour-blindness."""

import itertools
import math

import pytest

from enginebench.analysis.write.palette import ENGINES, PAGE, PAGE_COLOURS, slots_of

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]

# What is seen of linear sRGB, with all cones, without those for red, without those for green
# (Machado, Oliveira & Fernandes 2009, severity 1).
VISIONS = {
    "all": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
}
# Oklab, in which equal distances look equally different (Ottosson 2020).
CONES = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
OKLAB = ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))


def times(matrix: Matrix, vector: Vector) -> Vector:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def linear(colour: str) -> Vector:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return tuple(c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)


@pytest.mark.parametrize("side", ["light", "dark"])
def test_colours_are_legible_on_their_page(side: str) -> None:
    """Contrast above 4.5 (WCAG 2, AA): engines' names are written in their colours."""

    def luminance(colour: str) -> float:
        (share,) = times(((0.2126, 0.7152, 0.0722),), linear(colour))
        return share

    background = luminance(getattr(PAGE, side))
    for colour in (*ENGINES, PAGE_COLOURS["ink"], PAGE_COLOURS["muted"]):
        lighter, darker = sorted((luminance(getattr(colour, side)), background), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) > 4.5


@pytest.mark.parametrize("side", ["light", "dark"])
@pytest.mark.parametrize(("vision", "least"), [("all", 0.08), ("protanopia", 0.035), ("deuteranopia", 0.035)])
def test_no_two_engines_look_alike(side: str, vision: str, least: float) -> None:
    def seen(colour: str) -> Vector:
        light = (min(max(c, 0.0), 1.0) for c in times(VISIONS[vision], linear(colour)))
        return times(OKLAB, tuple(math.cbrt(c) for c in times(CONES, tuple(light))))

    all_of_them = [seen(getattr(colour, side)) for colour in ENGINES]
    assert min(math.dist(one, other) for one, other in itertools.combinations(all_of_them, 2)) > least


def test_colours_go_by_first_appearance_and_repeat_after_sixteen() -> None:
    assert slots_of(["b", "a", "b"]) == {"b": 0, "a": 1}
    assert list(slots_of(f"engine-{k}" for k in range(18)).values())[-2:] == [0, 1]
