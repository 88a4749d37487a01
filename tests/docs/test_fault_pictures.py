"""The pictures of the dashboards: colours, units and gaps are those of the panel and of Prometheus' answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from docs.pictures.__main__ import LARGEST
from docs.pictures.answers import Answers, Series, Span
from docs.pictures.charts import colour_of, dash_of, heatmap, lines, written
from docs.pictures.faults import FALLS, FAULTS, LEVEL, RISES, Claim
from docs.pictures.page import _table, page_of
from grafana.palette import BY_ENGINE, GREY
from grafana.queries import DASHBOARDS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/observability.md").read_text()
FAKE = BY_ENGINE["/^[e-j]/i"]
SPAN = Span(1000.0, 1003.0, 1006.0)


def panel(page: str, title: str) -> dict[str, Any]:
    (found,) = (one for one in DASHBOARDS[page]["panels"] if one["title"] == title)
    return dict(found)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        pytest.param(0.0123, "s", "12.3 ms", id="less than a second"),
        pytest.param(1.5, "s", "1.5 s", id="more than a second"),
        pytest.param(0.985, "percentunit", "98.5 %", id="a share"),
        pytest.param(66 * 2**30, "bytes", "66 GiB", id="memory"),
        pytest.param(1.98e9, "hertz", "1.98 GHz", id="a clock rate"),
        pytest.param(1234.4, "suffix: tok/s", "1,234 tok/s", id="a unit with a name of its own"),
        pytest.param(3.0, "short", "3", id="a number"),
    ],
)
def test_a_tile_has_the_unit_of_its_panel(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_lines_have_the_colours_and_dashes_of_their_panel() -> None:
    latency = panel("engine", "TTFT in the server")
    assert [colour_of(latency, f"fake p{q}") for q in (50, 95, 99)] == [FAKE] * 3
    assert [dash_of(latency, f"fake p{q}") for q in (50, 95, 99)] == [[1, 6], [8, 6], [1, 0]]
    assert (colour_of(latency, "SLO"), dash_of(latency, "SLO")) == (GREY, [2, 6])


@pytest.mark.parametrize(
    ("page", "title", "value", "text"),
    [
        pytest.param("load-test", "TTFT (user) p99", 0.25, "250 ms", id="a time"),
        pytest.param(
            "load-test", "TTFT (user) p99", 1000.0, "over 1 % failed", id="the percentile falls among failures"
        ),
        pytest.param("engine", "Engine", 0.0, "not ready", id="a state"),
    ],
)
def test_a_tile_names_values_as_its_panel_does(page: str, title: str, value: float, text: str) -> None:
    answers = Answers(answering((1000, str(value)), (1006, str(value))), SPAN)
    board = {**DASHBOARDS[page], "panels": [panel(page, title)], "annotations": {}}
    assert f">{text}</div>" in page_of(board, answers, "nothing")


def test_a_panel_is_drawn_with_its_names_its_unit_and_its_limit() -> None:
    lag = panel("compare", "Send lag p99, A and B")
    series = [Series("A: fake", {}, [0.001, 0.002, None, 0.004, 0.02, 0.02, 0.02])]
    svg = lines(lag, series, SPAN, [], (440, 220))
    assert "A: fake" in svg
    assert re.search(r">20 ms<", svg), "the axis"
    assert svg.count('stroke-dasharray="8,6"') == 1, "the limit at 5 ms"


def test_a_heatmap_has_the_requests_of_each_bucket() -> None:
    counts = {"0.1": [2.0] * 7, "0.2": [5.0] * 7, "+Inf": [5.0] * 7}
    series = [Series(edge, {"le": edge}, values) for edge, values in counts.items()]
    svg = heatmap(panel("engine", "TTFT distribution"), series, SPAN, [], (440, 220))
    assert "100 ms" in svg
    assert "200 ms" in svg
    assert "inf" not in svg.lower(), "no request was in the last bucket"


def answering(*samples: tuple[float, str]) -> httpx.Client:
    """A Prometheus with the same series for every query."""

    def answer(request: httpx.Request) -> httpx.Response:
        values = [[at, text] for at, text in samples]
        result = [{"metric": {"engine": "fake", "le": "0.1"}, "values": values}] if samples else []
        return httpx.Response(200, json={"status": "success", "data": {"result": result}})

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://prometheus")


def test_what_prometheus_does_not_know_is_a_gap() -> None:
    answers = Answers(answering((1000, "1"), (1002, "NaN"), (1003, "+Inf"), (1005, "0")), SPAN)
    (series,) = answers.of(panel("engine", "KV cache in use"))
    assert series.name == "fake"
    assert series.values == [1.0, None, None, None, None, 0.0, None]
    assert series.last == 0.0
    assert series.mean(0, 3) == 1.0
    assert series.mean(1, 5) is None


def test_a_panel_without_data_says_why() -> None:
    html = page_of(DASHBOARDS["gpu"], Answers(answering(), SPAN), "nothing")
    panels = [one for one in DASHBOARDS["gpu"]["panels"] if one["type"] != "row"]
    assert html.count("<div class='empty'>No GPU is reported: ") == 1
    assert html.count("<div class='empty'>–") == len(panels) - 1


def test_a_table_has_a_row_for_each_stage_and_its_columns_in_their_order() -> None:
    html = page_of(DASHBOARDS["compare"], Answers(answering(), SPAN, run_a="a", run_b="b"), "nothing")
    assert html.count("<div class='empty'>There are no two load tests") == 1
    table = panel("load-test", "TTFT (user) p99 against load")
    labels = {"run": "r", "engine": "fake"}
    found = [
        Series(f"{stage} {ref}", labels | {"stage": stage}, [None, value], ref)
        for ref, values in {"A": (2.0, 4.0), "B": (0.25, 0.5)}.items()
        for stage, value in zip(("2 users", "4 users"), values, strict=True)
    ]
    text = re.sub(r"<[^>]+>", "|", _table(table, found))
    assert re.findall(r"[^|]+", text)[:8] == [
        *("run", "engine", "stage", "users or req/s", "TTFT (user) p99", "TPOT p99", "E2E (user) p99", "output"),
    ]
    assert "|4 users||4||500 ms|" in text


@pytest.mark.parametrize(
    ("does", "before", "during", "holds"),
    [
        pytest.param(RISES, None, 0.1, True, id="it was absent before"),
        pytest.param(RISES, 1.0, 1.2, False, id="a fifth more is noise"),
        pytest.param(FALLS, 1.0, 0.5, True, id="it falls by half"),
        pytest.param(FALLS, 1.0, None, False, id="no answer shows nothing"),
        pytest.param(LEVEL, 1.0, 1.5, True, id="half more is level: the machine is busy"),
        pytest.param(LEVEL, 1.0, 2.0, False, id="twice as much is not"),
    ],
)
def test_what_the_guide_says_is_compared_with_the_answers(
    does: str, before: float | None, during: float | None, holds: bool
) -> None:
    assert Claim("load-test", "any", "any", does).holds(before, during) is holds


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_pictures_in_the_guide(name: str) -> None:
    for page in FAULTS[name].pages:
        path = f"images/grafana/{name}-{page}.png"
        assert f"({path})" in GUIDE
        assert (ROOT / "docs" / path).stat().st_size <= LARGEST["grafana"]


def test_every_claim_names_a_panel() -> None:
    for fault in FAULTS.values():
        assert {claim.page for claim in fault.claims} <= set(fault.pages)
        assert all(panel(claim.page, claim.panel) for claim in fault.claims)
