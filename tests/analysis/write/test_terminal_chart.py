import math
from dataclasses import replace

from enginebench.analysis.document import Axis, Figure, Point, Series, Span
from enginebench.analysis.write.terminal_chart import chart
from tests.support.analysis import documents
from tests.support.analysis.documents import load_figure

ENGINES = load_figure(
    (
        Series("vLLM", (Point(1.0, 0.1), Point(8.0, 0.21))),
        Series("llama.cpp", (Point(1.0, 0.2), Point(8.0, 0.71), Point(16.0, 2.0))),
        Series("burn\x1b", (Point(8.0, math.inf),)),
    )
)
BARS = """\
TTFT p95 at 8 users, SLO ≤ 600 ms
vLLM       ▇▇▇▇▇▇▇▇▇                ┊      210 ms
llama.cpp  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇┊▇▇▇▇  710 ms
burn       ░░░░░░░░░░░░░░░░░░░░░░░░░┊░░░░  failed"""


def test_engines_are_bars_at_the_highest_load_of_all_of_them() -> None:
    assert "\n".join(chart(ENGINES, 50)) == BARS


def test_an_engine_without_a_value_at_that_load_has_a_dash() -> None:
    series = (*ENGINES.series[:2], Series("burn", (Point(1.0, 0.1), Point(8.0, None))))
    assert chart(replace(ENGINES, series=series), 50)[3].split() == ["burn", "┊", "–"]


def test_a_limit_far_above_all_bars_stands_in_the_title_alone() -> None:
    lines = chart(replace(ENGINES, limit=9.0), 60)
    assert lines[0] == "TTFT p95 at 8 users, SLO ≤ 9 s"
    assert "┊" not in "".join(lines)


def test_one_engine_is_a_plot_and_a_failed_percentile_is_at_its_top() -> None:
    points = (Point(1.0, 0.05), Point(2.0, 0.1), Point(4.0, math.inf))
    lines = chart(load_figure((Series("a", points),)), 40)
    assert lines[1].startswith(" 600 ms ┤")
    assert lines[1].endswith("▲")
    assert lines[-1].split() == ["1", "2", "4"]


def test_stages_without_numbers_have_their_names() -> None:
    points = (Point(0.0, 0.05), Point(1.0, 0.1))
    figure = load_figure((Series("a", points),))
    figure = replace(figure, x=replace(figure.x, names=("0", "1024")))
    assert chart(figure, 40)[-1].split() == ["0", "1024"]
    assert chart(figure, 18) == [], "too narrow"


def test_a_burst_is_drawn_on_the_axis_of_time() -> None:
    figure = documents.burst().figure
    assert figure is not None
    lines = chart(figure, 60)
    assert "▒" in lines[-2]
    assert lines[-1].split() == ["0", "30", "199"]


def test_nothing_is_drawn_of_too_little() -> None:
    assert chart(load_figure((Series("a", (Point(1.0, 0.05),)),)), 80) == []
    assert chart(load_figure(()), 80) == []
    apart = load_figure((Series("a", (Point(1.0, 0.1),)), Series("b", (Point(2.0, 0.1),))))
    assert chart(apart, 80) == [], "the engines have no load in common"
    zero = Figure("f", "t", "load", Axis("load", "users"), Axis("x"), (Series("a", (Point(1, 0), Point(2, 0))),))
    assert chart(zero, 80) == []
    assert chart(replace(ENGINES, kind="pareto"), 80) == []


def test_many_loads_are_labelled_as_far_as_there_is_room() -> None:
    points = tuple(Point(float(k), 0.1 + k, label=f"{k} users") for k in range(1, 65))
    lines = chart(load_figure((Series("a", points),)), 60)
    assert max(map(len, lines)) < 60
    assert lines[-1].split()[0] == "1"
    spans = replace(load_figure((Series("a", points),)), kind="time", spans=(Span(-5.0, 500.0, "all"),))
    assert max(map(len, chart(spans, 60))) < 60
