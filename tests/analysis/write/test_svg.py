"""Charts: what is drawn, and that no label covers another."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from enginebench.analysis.document import Axis, Figure, Point, Series, Span
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.analysis.write.scale import FONT, Box, Scale, scale_of, width_of
from enginebench.analysis.write.svg import HEIGHT, WIDTH, svg
from tests.support.analysis import documents
from tests.support.analysis.documents import load_figure
from tests.support.present import present

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: str) -> list[tuple[str, Box]]:
    """The texts of a chart with the room that each takes."""
    found = []
    for element in ElementTree.fromstring(drawing).iter(f"{SVG}text"):
        x, y, text = float(element.get("x", "0")), float(element.get("y", "0")), element.text or ""
        left = x - width_of(text) * {"middle": 0.5, "end": 1.0}.get(element.get("text-anchor", ""), 0.0)
        found.append((text, Box(left, y - FONT + 3, left + width_of(text), y)))
    return found


def crowded(engines: int, loads: tuple[float, ...] = (1.0, 8.0), kind: str = "load") -> Figure:
    """Engines with nearly equal values."""
    series = tuple(
        Series(
            f"engine with a long name {k}",
            tuple(Point(x, 0.2 + 0.001 * k + 0.01 * x, 0.15, 0.3, f"{x:g}") for x in loads),
        )
        for k in range(engines)
    )
    return replace(load_figure(series), kind=kind)  # type: ignore[arg-type]


FIGURES = {
    "quick": documents.quick().figure,
    "contenders": documents.contenders().figure,
    "burst": documents.burst().figure,
    "seven engines": crowded(7),
    "sixteen engines": crowded(16, (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0)),
    "pareto": crowded(7, (1.0, 2.0, 4.0, 8.0), "pareto"),
    "distribution": replace(crowded(3, (0.01, 0.5, 0.9, 0.99, 1.0), "distribution"), limit=None),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("standalone", [False, True])
def test_no_label_covers_another_or_leaves_the_picture(name: str, standalone: bool) -> None:
    figure = present(FIGURES[name])
    labels = texts(svg(figure, standalone=standalone))
    for k, (text, box) in enumerate(labels):
        assert box.left >= 0, text
        assert box.right <= WIDTH, text
        assert box.bottom <= HEIGHT, text
        for other, room in labels[k + 1 :]:
            assert box.overlap(room) < 1, f"{text} covers {other}"


def test_a_chart_names_its_axes_its_engines_and_its_limit() -> None:
    figure = present(FIGURES["contenders"])
    shown = {text for text, _ in texts(svg(figure))}
    assert {"TTFT p95, s (logarithmic)", "users", "8", "10", "24", "28", "a", "b", "SLO ≤ 0.6 s"} <= shown


def marks(drawing: str) -> list[str]:
    """The marks of the points, without the legend."""
    return re.findall(r'class="(mark[^"]*)"', drawing.partition('color="var(--muted)"')[0])


def test_unconfirmed_and_missed_points_differ_from_confirmed_ones() -> None:
    statuses = [(Status.MET, True), (Status.MET, False), (Status.MISSED, True), (Status.MISSED, False)]
    points = tuple(Point(k + 1.0, 0.1 * (k + 1), status=s, confirmed=c) for k, (s, c) in enumerate(statuses))
    drawing = svg(load_figure((Series("a", points),)))
    assert marks(drawing) == ["mark", "mark hollow", "mark cross", "mark hollow", "mark cross"]
    assert {"SLO met", "missed, not confirmed"} <= {text for text, _ in texts(drawing)}
    unknown = svg(load_figure((Series("a", (replace(points[0], status=Status.NOT_MEASURED),) * 2),)))
    assert "not measured" in {text for text, _ in texts(unknown)}
    confirmed = svg(load_figure((Series("a", points[:1] * 2),)))
    assert "SLO met" not in {text for text, _ in texts(confirmed)}, "equal marks need no legend"


def test_nothing_joins_loads_and_a_failed_one_is_at_the_top() -> None:
    points = (Point(1.0, 0.1), Point(2.0, 0.2), Point(4.0, math.inf), Point(8.0, math.inf))
    drawing = svg(load_figure((Series("a", points),)))
    assert 'class="step' not in drawing
    assert "failed" in {text for text, _ in texts(drawing)}
    assert "a at 4 users: failed" in drawing


def test_intervals_are_bars_and_points_tell_their_numbers() -> None:
    point = Point(8.0, 0.21, 0.19, 0.24, "8 users", Status.MET, False)
    drawing = svg(load_figure((Series("a", (point, replace(point, x=9.0))),)))
    assert drawing.count('class="bar"') == 2
    assert "a at 8 users: 210 ms [190 ms, 240 ms], met, not confirmed" in drawing


def test_labels_cannot_hold_markup() -> None:
    figure = replace(
        load_figure((Series("<script>", (Point(1, 1), Point(2, 2))), Series("b", (Point(1, 1),)))), title="<b>&"
    )
    ElementTree.fromstring(svg(figure, standalone=True))
    assert "<script" not in svg(figure)


def test_engines_keep_their_colours_and_can_be_hidden() -> None:
    figure = present(FIGURES["contenders"])
    drawing = svg(figure, {"a": 5, "b": 2})
    assert drawing.count('<g class="s5"') == drawing.count('<g class="s2"') == 2, "points and name"
    assert ":root" not in drawing, "a page has the colours"
    assert "--e5:" in svg(figure, {"a": 5, "b": 2}, standalone=True)


def test_an_empty_chart_is_drawn() -> None:
    ElementTree.fromstring(svg(load_figure(())))
    nothing = Figure("f", "t", "time", Axis("time", "s"), Axis("in flight"), (), spans=(Span(0.0, 1.0, "burst"),))
    ElementTree.fromstring(svg(nothing))


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 1, 0, 100), [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (Scale(0, 0, 0, 100), [0]),
        (Scale(0.05, 6, 0, 100, "log"), [0.05, 0.1, 0.2, 0.5, 1, 2, 5]),
        (Scale(0.001, 100, 0, 100, "log"), [0.001, 0.01, 0.1, 1, 10, 100]),
        (Scale(0, 0.995, 0, 100, "tail"), [0.0, 0.5, 0.9, 0.99]),
    ],
)
def test_ticks_are_round_numbers(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks() == pytest.approx(ticks)


def test_a_scale_holds_its_values_and_draws_others_at_its_edge() -> None:
    scale = scale_of([1.0, 100.0], 0, 100, "log")
    assert scale(10) == pytest.approx(50)
    assert (scale(0), scale(1e9)) == (0, 100)
    assert scale_of([math.inf], 0, 100).high > 0
    tail = scale_of([0.5, 0.99], 0, 100, "tail")
    assert tail(0.9) == pytest.approx(50)
