"""The chart of a terminal: what is drawn where."""

from __future__ import annotations

import math

import pytest

from loadtests.harness.command.chart import WIDTH, Point, chart

POINTS = [Point(load, seconds) for load, seconds in ((1, 0.04), (2, 0.04), (4, 0.05), (8, 0.1), (16, 0.3), (32, 1.9))]


def test_the_crossing_of_the_limit_stands_between_the_two_loads() -> None:
    title, *rows, axis, ticks = chart("TTFT p95", POINTS, 0.5, "users")
    assert title == "TTFT p95, limit 500 ms"
    crossing = {row.index("┊") for row in rows}
    assert len(crossing) == 1
    assert ticks.index("16") < crossing.pop() < ticks.index("32")
    assert [row for row in rows if "┄" in row] == [row for row in rows if row.lstrip().startswith("500 ms")]
    assert axis.endswith(" users")
    assert axis.count("┬") == len(POINTS)


def test_higher_latencies_stand_higher() -> None:
    rows = chart("TTFT p95", POINTS, None, "users")[1:-2]
    marks = {
        column: height for height, row in enumerate(reversed(rows)) for column, mark in enumerate(row) if mark == "●"
    }
    heights = [marks[column] for column in sorted(marks)]
    assert len(heights) == len(POINTS)
    assert heights == sorted(heights)
    assert (heights[0], heights[-1]) == (0, len(rows) - 1)


def test_where_nothing_crosses_nothing_is_marked() -> None:
    assert not any("┊" in line for line in chart("TTFT p95", POINTS, 5.0, "users"))
    assert not any("┊" in line for line in chart("TTFT p95", POINTS, 0.01, "users")), "missed from the first load on"


def test_a_percentile_among_failures_is_at_the_top() -> None:
    rows = chart("TTFT p95", [*POINTS, Point(64, math.inf)], None, "users")[1:]
    assert rows[0].rstrip().endswith("▲")


@pytest.mark.parametrize("loads", [range(1, 100), range(10, 110, 10), (1, 100), (63, 64)])
def test_it_fits_into_80_columns(loads: range) -> None:
    lines = chart("TTFT p95", [Point(load, 0.01 * load) for load in loads], 0.3, "req/s")
    assert lines
    assert max(map(len, lines)) <= WIDTH


def test_one_load_is_no_chart_and_of_a_load_the_last_point_counts() -> None:
    assert chart("TTFT p95", POINTS[:1], 0.5, "users") == []
    assert chart("TTFT p95", [*POINTS, Point(16, 0.3)], 0.5, "users") == chart("TTFT p95", POINTS, 0.5, "users")
