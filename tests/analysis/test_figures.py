"""Figures: titles as tables have them, each latency once, and one unit on each axis."""

import re
from collections import Counter
from pathlib import Path

import pytest

from enginebench.analysis.document import Figure
from enginebench.analysis.frame import Frame, frame_of
from enginebench.analysis.sections.figures import figures, first_figure, limits_used
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.analysis.write.svg import svg
from enginebench.records.slo import parse_objectives
from tests.support.analysis.synthetic import Engine, simulate
from tests.support.present import present


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Frame:
    run = simulate(tmp_path_factory.mktemp("runs") / "run", Engine("fast"), (2, 4), 10.0)
    return frame_of(summaries_of([str(run)], run.parent, parse_objectives(["ttft_p95=0.15"])))


@pytest.fixture(scope="module")
def drawn(frame: Frame) -> list[Figure]:
    first = present(first_figure(frame))
    return [first, *figures(frame)]


def test_a_latency_is_called_as_in_tables_and_drawn_once(drawn: list[Figure]) -> None:
    """The SLO's TTFT counts from the instant a request was due, and is drawn in the place of the other."""
    titles = Counter(figure.title for figure in drawn)
    assert drawn[0].title == "TTFT p95"
    assert titles["TTFT p95"] == titles["TTFT p99"] == titles["TPOT p50"] == 1
    assert "TTFT at 4 users, by percentile of the answered requests" in titles
    assert max(titles.values()) == 1
    assert not [title for title in titles if "(user)" in title]
    assert len({figure.key for figure in drawn}) == len(drawn)


def test_with_several_limits_the_first_chart_is_above_1_if_and_only_if_the_slo_is_missed(tmp_path: Path) -> None:
    """Eight users wait for four slots, so TTFT misses its limit; TPOT is always within."""
    run = simulate(tmp_path / "run", Engine("a", slots=4, prefill=0.05, tpot=0.01), (1, 2, 8), 20.0)
    slo = parse_objectives(["ttft_p95=0.1,tpot_p95=0.02,failures=0.5"])
    frame = frame_of(summaries_of([str(run)], run.parent, slo))
    figure = present(first_figure(frame))
    assert (figure.title, figure.limit) == ("How close to the SLO", 1.0)
    (series,) = figure.series
    engine = frame.engine("a")
    for point in series.points:
        values = [engine.value(point.label, "ttft_user", "p95"), engine.value(point.label, "tpot", "p95")]
        assert point.y == pytest.approx(max((values[0] or 0) / 0.1, (values[1] or 0) / 0.02))
        assert point.status is (Status.MET if (point.y or 0) <= 1 else Status.MISSED)
        assert (point.low, point.high) == (None, None), "marks say what is confirmed, by the share of requests"
    assert [point.status for point in series.points] == [Status.MET, Status.MET, Status.MISSED]
    unusual = frame_of(summaries_of([str(run)], run.parent, parse_objectives(["ttft_p98=0.1,tpot_p95=0.02"])))
    drawn = limits_used(unusual)
    assert drawn is None or not any(series.points for series in drawn.series), "TTFT p98 is not computed"


def test_a_distribution_has_the_percentiles_across_and_the_latency_upwards(frame: Frame, drawn: list[Figure]) -> None:
    figure = next(figure for figure in drawn if figure.key == "ttft_user-distribution")
    (series,) = figure.series
    upwards = {point.x: point.y for point in series.points if point.y is not None}
    assert upwards[0.5] == pytest.approx(frame.engine("fast").value("4 users", "ttft_user", "p50"))
    assert list(upwards.values()) == sorted(upwards.values())
    assert figure.y.unit == "s"
    ticks = re.findall(r"<text [^>]*>([^<]*)</text>", svg(figure))
    assert {"TTFT, ms", "percentile", "least", "p50", "p90"} <= set(ticks)


def test_a_run_from_start_to_end_has_one_figure_for_each_unit(frame: Frame, drawn: list[Figure]) -> None:
    over_time = {figure.y.unit: figure for figure in drawn if figure.kind == "time"}
    assert set(over_time) == {"requests", "tokens/s"}
    flow = frame.runs[0].flow
    for unit, values in (("requests", flow.in_flight), ("tokens/s", flow.throughput)):
        (series,) = over_time[unit].series
        assert [point.y for point in series.points] == list(values)
        assert [span.title for span in over_time[unit].spans] == ["2 users", "4 users"]
