"""Charts: the numbers in their specifications, and what they show when a browser draws them."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginebench.analysis.compare.capacity import SloCapacity
from enginebench.analysis.compare.comparison import Comparison, compare
from enginebench.analysis.data.load import load_run
from enginebench.analysis.plan.scalability import CurvePoint, Scalability
from enginebench.analysis.report.axis import axis_of
from enginebench.analysis.report.charts import WIDTH, Row, value_scale, vega_script
from enginebench.analysis.report.figure import Figure, Number
from enginebench.analysis.report.figures import figures_of
from enginebench.analysis.report.load_charts import capacity_title
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.formatting import significant
from enginebench.records.formula import Between, Field
from enginebench.records.metrics import REQUEST_METRICS, Metric, Shown, columns
from enginebench.records.slo import parse_objectives
from enginebench.records.view import BEYOND_OBSERVED, FAILED, Distribution, Estimate, Level, StageView, TurnView
from tests.support.analysis.synthetic import Engine, simulate

SLO = parse_objectives(["ttft_p95=0.5,tpot_p95=0.05"])
LOADS = (4, 8, 16)
ENGINES = (
    Engine("transformers", slots=1, prefill=0.02, tpot=0.01),
    Engine("mistralrs", slots=8, prefill=0.03, tpot=0.015),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunSummary]:
    """Two engines at three loads."""
    folder = tmp_path_factory.mktemp("runs")
    return [summarise(load_run(simulate(folder / engine.label, engine, LOADS, 12.0))) for engine in ENGINES]


def figures(
    runs: list[RunSummary], capacities: tuple[SloCapacity, ...] = (), laws: Mapping[str, Scalability] | None = None
) -> dict[str, Figure]:
    comparison: Comparison = dataclasses.replace(compare(runs), capacities=capacities)
    return {figure.key: figure for figure in figures_of(runs, comparison, axis_of(runs), laws or {})}


def rows_of(figure: Figure) -> list[Row]:
    """Of all its panels."""
    spec = figure.chart.spec
    return [row for panel in spec.get("concat", [spec]) for row in panel["data"]["values"]]


def layers_with(figure: Figure, field: str) -> list[Row]:
    """The rows of the layers that have data of their own with such a field."""
    layers = [layer["data"]["values"] for layer in figure.chart.spec["layer"] if "data" in layer]
    return next((rows for rows in layers if field in rows[0]), [])


def changed(run: RunSummary, **of_stages: Any) -> RunSummary:
    """With other values in all of its stages; a function gets the stage."""

    def other(stage: StageView) -> StageView:
        values = {name: value(stage) if callable(value) else value for name, value in of_stages.items()}
        return dataclasses.replace(stage, **values)

    return dataclasses.replace(run, stages=tuple(map(other, run.stages)))


def percentiles(estimate: Estimate) -> Distribution:
    return Distribution(100, 0, None, None, None, None, dict.fromkeys(("p50", "p95", "p99"), estimate))


def capacity(engine: str, met: float | None, missed: float | None = 16.0) -> SloCapacity:
    return SloCapacity(engine, "users", SLO, (), met, missed, (), None)


def test_every_declared_column_has_a_chart_of_the_summarys_numbers(runs: list[RunSummary]) -> None:
    drawn = figures(runs)
    assert {column.key.replace(" ", "-") for column in columns("chart")} <= drawn.keys()
    rows = {(row["engine"], row["stage"]): row for row in rows_of(drawn["throughput"])}
    assert len(rows) == len(ENGINES) * len(LOADS)
    for run in runs:
        for stage in run.stages:
            row, estimate = rows[run.label, stage.label], stage.estimate("throughput")
            assert (row["load"], row["value"]) == (stage.load, estimate.value)
            assert (row["low"], row["high"]) == (estimate.low, estimate.high)


def test_a_metric_that_is_declared_appears_without_another_line(
    runs: list[RunSummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Metric(
        "wait", "wait", Between(Field("t_send"), Field("t_first")), "attempted", "a wait", shown=Shown(chart=("p95",))
    )
    monkeypatch.setattr("enginebench.records.metrics.REQUEST_METRICS", (*REQUEST_METRICS, new))
    waited = [
        changed(run, metrics=lambda s: {**s.metrics, "wait": percentiles(Estimate(2.5, 2.0, 3.0))}) for run in runs
    ]
    figure = figures(waited)["wait-p95"]
    assert figure.title == "Wait p95, in seconds"
    assert {(row["value"], row["low"], row["high"]) for row in rows_of(figure)} == {(2.5, 2.0, 3.0)}


def test_limits_and_capacities_are_those_of_the_slo(runs: list[RunSummary]) -> None:
    """Only percentiles from the objective's on: a median below the limit says nothing about it."""
    judged = [dataclasses.replace(run, objectives=SLO) for run in runs]
    drawn = figures(judged, (capacity("transformers", 4.0), capacity("mistralrs", 8.0)))
    limited = [
        key
        for key, figure in drawn.items()
        if figure.title.endswith(": mistralrs holds 8 users within the SLO, transformers 4")
    ]
    assert limited == ["ttft-p95", "ttft-p99", "tpot-p99"]
    assert next(iter(drawn)) == "ttft-p95", "what the SLO limits comes first"
    assert layers_with(drawn["ttft-p99"], "value") == [{"text": "TTFT p95 ≤ 500 ms", "value": 0.5}]
    held = [(row["engine"], row["load"], row["text"]) for row in layers_with(drawn["ttft-p99"], "load")]
    assert held == [
        ("transformers", 4, "4 users (16 miss them)"),
        ("mistralrs", 8, "8 users (16 miss them)"),
    ]
    assert drawn["tpot-p50"].title == "TPOT p50, in milliseconds"


def test_a_title_claims_no_capacity_that_is_not_known(runs: list[RunSummary]) -> None:
    judged = [dataclasses.replace(run, objectives=SLO) for run in runs]
    drawn = figures(judged, (capacity("transformers", None), capacity("mistralrs", None)))
    assert drawn["ttft-p99"].title == "TTFT p99, in seconds"
    assert layers_with(drawn["ttft-p99"], "load") == []
    assert not any("within the SLO" in figure.title for figure in figures(runs).values())
    assert capacity_title([capacity("a", 2.0), capacity("b", 4.5)]) == "b holds 4.50 users within the SLO, a 2"


@pytest.mark.parametrize(
    ("estimate", "value", "interval"),
    [
        pytest.param(Estimate(0.3, 0.2, 0.4), (300, 200, 400), "200 ms to 400 ms", id="among the values observed"),
        pytest.param(Estimate(0.3, 0.2, math.inf), (300, 200, None), "200 ms to failed", id="the end among failures"),
        pytest.param(Estimate(0.3, 0.2, math.inf, 9, BEYOND_OBSERVED), (300, 200, None), "200 ms to ∞", id="no bound"),
        pytest.param(Estimate(0.3, why="9 < 59"), (300, None, None), "none (9 < 59)", id="no interval"),
        pytest.param(
            Estimate(math.inf, 0.2, math.inf, why=FAILED), (None, None, None), "200 ms to failed", id="failed"
        ),
    ],
)
def test_what_failed_or_has_no_bound_is_no_number(
    runs: list[RunSummary], estimate: Estimate, value: tuple[float | None, ...], interval: str
) -> None:
    """The first stage; the others have 300 ms, so that there is a chart."""
    others = percentiles(Estimate(0.3, 0.25, 0.35))

    def metrics(stage: StageView) -> dict[str, Distribution]:
        return {
            **stage.metrics,
            **dict.fromkeys(("ttft", "ttft_user"), others if stage.index else percentiles(estimate)),
        }

    figure = figures([changed(runs[0], metrics=metrics)])["ttft-p95"]
    row = rows_of(figure)[0]
    assert (row["value"], row["low"], row["high"]) == pytest.approx(value)
    assert (row["failed"], row["interval"]) == (estimate.value == math.inf, interval)
    assert ("✕" in figure.chart.svg) is row["failed"]
    assert ("cross at the top" in figure.note) is row["failed"]


def test_a_pareto_line_steps_through_measured_points(runs: list[RunSummary]) -> None:
    """Users' speed, and output: the second load beats the first in both, and nothing beats the third."""
    points = {4: (20.0, 100.0), 8: (25.0, 300.0), 16: (10.0, 400.0)}

    def quantities(stage: StageView) -> dict[str, Estimate]:
        speed, output = points[int(stage.load)]
        return {**stage.quantities, "user_throughput": Estimate(speed), "throughput": Estimate(output)}

    figure = figures([changed(runs[0], quantities=quantities)])["pareto"]
    rows = rows_of(figure)
    assert [(row["speed"], row["output"], row["frontier"]) for row in rows] == [
        (20, 100, False), (25, 300, True), (10, 400, True),
    ]  # fmt: skip
    assert [row["load"] for row in rows] == ["4", "8", "16"]
    line = figure.chart.spec["layer"][0]
    assert line["mark"]["interpolate"] == "step-before", "at 20 tokens/s a user, 300 were measured, and not 333"
    assert {"filter": "datum.frontier"} in line["transform"]
    assert "per replica" in figure.title


@pytest.mark.parametrize(
    ("gpus", "per", "share"),
    [
        pytest.param((2, 1), "GPU", (2, 1), id="all servers say how many they have"),
        pytest.param((2, None), "replica", (1, 1), id="one does not"),
    ],
)
def test_output_is_per_gpu_where_gpus_are_known(
    runs: list[RunSummary], gpus: tuple[int | None, ...], per: str, share: tuple[int, int]
) -> None:
    known = [
        run if count is None else changed(run, gauges={"gpus": Level(count, count)})
        for run, count in zip(runs, gpus, strict=True)
    ]
    figure = figures(known)["pareto"]
    assert figure.title == f"Output tokens/s per {per} against tokens/s per user"
    for run, divisor in zip(runs, share, strict=True):
        outputs = [row["output"] for row in rows_of(figure) if row["engine"] == run.label]
        assert outputs == pytest.approx([(stage.value("throughput") or 0) / divisor for stage in run.stages])


def test_runs_at_one_load_have_no_trade_off(runs: list[RunSummary]) -> None:
    assert "pareto" not in figures([dataclasses.replace(run, stages=run.stages[:1]) for run in runs])


def test_device_memory_stands_beside_the_hosts(runs: list[RunSummary]) -> None:
    """20 GB on the GPU and half a GB in the engine's process. The engine without a GPU has none of it."""
    gpu, cpu = changed(runs[0], gauges=lambda s: {**s.gauges, "gpu_memory_bytes": Level(20e9, 22e9)}), runs[1]
    figure = figures([gpu, cpu])["memory"]
    panels = {(row["gauge"], row["engine"]): row["value"] for row in rows_of(figure)}
    device, host = dict.fromkeys(gauge for gauge, _ in panels)
    assert device.endswith(", GB")
    assert panels == {
        (device, gpu.label): 20, (host, gpu.label): pytest.approx(0.5), (host, cpu.label): pytest.approx(0.5),
    }  # fmt: skip


def test_a_gpu_is_busy_for_at_most_all_of_the_time(runs: list[RunSummary]) -> None:
    """96 %, 98 % and 100 % in three runs: 98 ± 4.303 · 2/√3, and no more than 100."""
    repeats = [
        dataclasses.replace(changed(runs[0], gauges={"gpu_utilisation": Level(share, share)}), repeat=k)
        for k, share in enumerate((0.96, 0.98, 1.0))
    ]
    for row in rows_of(figures(repeats)["gauges"]):
        assert (row["value"], row["low"], row["high"]) == pytest.approx((98.0, 93.03, 100.0), abs=0.01)


def test_a_run_has_time_lines_of_every_gauge_it_has(runs: list[RunSummary]) -> None:
    count = len(runs[0].flow.in_flight)
    clock = (1.5e9, None, *[1.2e9] * (count - 2))
    flow = dataclasses.replace(runs[0].flow, gauges={"gpu_clock_hertz": clock, "gpu_utilisation": (0.5,) * count})
    figure = figures([dataclasses.replace(runs[0], flow=flow)])["flow-0"]
    in_flight, tokens, speed, busy = figure.chart.spec["vconcat"]
    values = [panel["data"]["values"][0]["value"] for panel in (in_flight, tokens, speed, busy)]
    assert values[0][:-1] == pytest.approx(flow.in_flight, rel=1e-5)
    assert values[1][:-1] == pytest.approx(flow.throughput, rel=1e-5)
    assert values[2][:3] == [1.5, None, 1.2]
    assert set(values[3]) == {50}
    assert [panel["title"]["text"].rpartition(", ")[2] for panel in (speed, busy)] == ["GHz", "%"]
    assert len(figure.rows) == count
    assert figure.rows[1][3] == Number(None, "–")


def test_every_declared_distribution_has_its_curves(runs: list[RunSummary]) -> None:
    drawn = figures(runs)
    declared = [metric.name for metric in REQUEST_METRICS if metric.shown.curve]
    assert "stall" in declared
    for name in declared:
        figure = drawn[f"{name}-curves"]
        panel = figure.chart.spec["concat"][0]
        row, curve = panel["data"]["values"][0], runs[0].stages[0].curves[name]
        scale = row["time"][-1] / curve[-1]
        assert any(scale == pytest.approx(known, rel=1e-5) for known in (1, 1e3))
        assert row["time"] == pytest.approx([curve[0] * scale, *(time * scale for time in curve)], rel=1e-5)
        assert (row["share"][0], row["share"][1], row["share"][-1]) == (0, 1, 100)
        assert len(figure.rows) == len(ENGINES) * len(LOADS)


def law(most: float) -> Scalability:
    curve = tuple(CurvePoint(n, Estimate(10 * n, 9 * n, 11 * n)) for n in (1.0, 4.0, 16.0))
    values = {"rate": 10.0, "contention": 0.1, "coherency": 0.0, "peak": 20.0, "most": most}
    parameters = {name: Estimate(value, value, value) for name, value in values.items()}
    return cast(Scalability, SimpleNamespace(**parameters, curve=curve))


def test_a_fitted_maximum_is_named_so(runs: list[RunSummary]) -> None:
    measured = max(stage.value("throughput") or 0.0 for stage in runs[0].stages)
    laws = {"transformers": law(2 * measured), "mistralrs": law(1.0)}
    figure = figures(runs, laws=laws)["scalability"]
    names = [row[1] for row in figure.rows]
    assert names.count("fitted maximum, tokens/s, above all that was measured") == 1
    assert names.count("fitted maximum, tokens/s") == 1
    first = figure.rows[0]
    assert (first[:2], first[2]) == (
        ("transformers", "measured maximum, tokens/s"),
        Number(measured, significant(measured)),
    )
    (curve, _) = layers_with(figure, "in_flight")
    assert (curve["in_flight"][-1], curve["value"][-1], curve["low"][-1], curve["high"][-1]) == (16, 160, 144, 176)


def test_parts_of_ttft_are_shares_of_their_sum(runs: list[RunSummary]) -> None:
    figure = figures(runs)["parts"]
    stage = runs[0].stages[0]
    parts = [row for row in rows_of(figure) if (row["engine"], row["stage"]) == ("transformers", stage.label)]
    assert [row["part"] for row in parts] == ["client", "queue", "prefill", "delivery"]
    assert sum(row["share"] for row in parts) == pytest.approx(1)
    lengths = [stage.value(f"ttft_{row['part']}") or 0.0 for row in parts]
    assert parts[1]["share"] == pytest.approx(lengths[1] / sum(lengths))
    opacities = re.findall(r'stroke="var\(--page\)"[^>]* opacity="([\d.]+)"', figure.chart.svg)
    assert list(dict.fromkeys(opacities)) == ["0.16", "0.4", "0.68", "1"]


def test_turns_are_those_that_every_run_has(runs: list[RunSummary]) -> None:
    turns = tuple(TurnView(k, 40, 100.0 * k, Estimate(0.05 * k)) for k in (1, 2, 3))
    repeats = [changed(runs[0], turns=turns), dataclasses.replace(changed(runs[0], turns=turns[:2]), repeat=1)]
    figure = figures(repeats)["turns"]
    assert [(row["load"], row["value"]) for row in rows_of(figure)] == pytest.approx([(1, 50), (2, 100)])
    assert [row[2] for row in figure.rows] == [Number(80, "80")] * 2


@pytest.mark.parametrize(
    ("names", "title", "texts"),
    [
        pytest.param(("short", "long"), "stage", ["short", "long"], id="names"),
        pytest.param(("10 prompt tokens", "200 prompt tokens"), "prompt tokens", ["10", "200"], id="numbers in names"),
        pytest.param(("200 tokens", "10 tokens"), "stage", ["200 tokens", "10 tokens"], id="not in order"),
    ],
)
def test_named_stages_have_an_axis_of_names(
    tmp_path: Path, names: tuple[str, ...], title: str, texts: list[str]
) -> None:
    run = summarise(load_run(simulate(tmp_path / "run", Engine("fake"), (1, 1), 10.0, names=names)))
    axis, drawn = axis_of([run]), figures([run])
    assert (axis.title, [place.text for place in axis.places]) == (title, texts)
    assert re.findall(rf">({'|'.join(texts)})</text>", drawn["throughput"].chart.svg) == texts
    assert "pareto" not in drawn, "these are no loads"


def test_many_names_of_stages_are_thinned_out_until_they_are_legible(runs: list[RunSummary]) -> None:
    """Forty slanted names have 10 pixels each, and need about 40."""
    first = runs[0].stages[0]
    stages = tuple(dataclasses.replace(first, index=k, label=f"phase {k}", named=True) for k in range(40))
    figure = figures([dataclasses.replace(runs[0], stages=stages)])["throughput"]
    visible = [
        text for text in re.findall(r"<text[^>]*>phase \d+</text>", figure.chart.svg) if 'opacity="0"' not in text
    ]
    assert 3 <= len(visible) <= 10


def test_an_axis_of_values_far_apart_is_logarithmic() -> None:
    assert value_scale([1.0, 5.0])["type"] == "linear"
    assert value_scale([0.01, 5.0])["type"] == "log"
    assert value_scale([0.0, 0.01, 5.0])["clamp"], "an interval that begins at zero reaches the end of the axis"


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser")
SCRIPT = Path(__file__).parents[3] / "enginebench/analysis/report/templates/charts.js.j2"
LOOK = """
const marks = () => [...document.querySelectorAll("#ttft-p95 .live .mark-symbol path")];
const told = mark => {
  const [x, y] = [mark.getBoundingClientRect().x + 3, mark.getBoundingClientRect().y + 3];
  mark.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: x, clientY: y}));
  return document.querySelector(".vg-tooltip")?.innerText ?? "";
};
const zoomed = async () => {
  const chart = document.querySelector("#ttft-p95 .live"), view = views.find(view => chart.contains(view.container()));
  chart.scrollIntoView({block: "center"});
  const box = chart.querySelector("svg .background").getBoundingClientRect();
  const [x, y] = [box.x + 0.4 * box.width, box.y + 0.6 * box.height], found = [];
  const send = async (event, target = document.elementFromPoint(x, y)) => {
    target.dispatchEvent(event);
    await view.runAsync();
  };
  const at = more => ({bubbles: true, cancelable: true, view: window, clientX: x, clientY: y, ...more});
  const note = () => found.push(view.scale("x").domain());
  note();
  await send(new WheelEvent("wheel", at({deltaY: -100}))); note();
  await send(new WheelEvent("wheel", at({deltaY: -100, ctrlKey: true}))); note();
  await send(new PointerEvent("pointerdown", at({button: 0})));
  await send(new PointerEvent("pointermove", at({clientX: x + 40})), window);
  await send(new PointerEvent("pointerup", at({clientX: x + 40})), window); note();
  await send(new MouseEvent("dblclick", at({}))); note();
  return found;
};
drawn.then(async () => {
  const found = {charts: document.querySelectorAll(".drawn").length, told: told(marks()[0]), marks: marks().length};
  found.zoomed = await zoomed();
  document.querySelector(".engines button").click();
  await Promise.all(views.map(view => view.runAsync()));
  found.after = marks().length;
  document.title = JSON.stringify(found);
});
"""


@pytest.fixture(scope="module")
def in_browser(runs: list[RunSummary], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a reader gets who points at the first chart, zooms it and hides an engine. The page's own script has left it
    in the title, and must have made no remark on the console."""
    folder = tmp_path_factory.mktemp("browser")
    body = "".join(
        f'<figure id="{key}"><div class="chart"><div class="live"></div>'
        f'<script type="application/json">{json.dumps(figure.chart.spec)}</script></div></figure>'
        for key, figure in figures(runs).items()
    )
    buttons = f'<p class="engines"><button aria-pressed="true" data-name="{runs[0].label}"></button></p>'
    scripts = "".join(f"<script>{part}</script>" for part in (vega_script(), SCRIPT.read_text(), LOOK))
    file = folder / "page.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><title></title>{buttons}{body}{scripts}")
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
        "--disable-background-networking", "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom",
        file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    return dict(json.loads(html.unescape(title[1])))


@needs_browser
def test_a_browser_draws_every_chart_and_says_what_the_summary_says(
    in_browser: dict[str, Any], runs: list[RunSummary]
) -> None:
    assert in_browser["charts"] == len(figures(runs))
    row = rows_of(figures(runs)["ttft-p95"])[0]
    assert f"engine\ttransformers\nat\t4 users\nvalue\t{row['text']}\ninterval\t{row['interval']}" in in_browser["told"]


@needs_browser
def test_an_engine_is_hidden_by_its_name(in_browser: dict[str, Any]) -> None:
    assert (in_browser["marks"], in_browser["after"]) == (6, 3)


@needs_browser
def test_a_chart_is_stretched_moved_and_put_back(in_browser: dict[str, Any]) -> None:
    """The wheel alone scrolls the page; with Ctrl it stretches the axes, dragging moves them, a double click resets."""
    start, wheel, ctrl_wheel, dragged, back = in_browser["zoomed"]
    assert wheel == start
    assert start[0] < ctrl_wheel[0] < ctrl_wheel[1] < start[1]
    assert dragged[1] - dragged[0] == pytest.approx(ctrl_wheel[1] - ctrl_wheel[0])
    assert dragged[0] == pytest.approx(ctrl_wheel[0] - 40 / WIDTH * (ctrl_wheel[1] - ctrl_wheel[0]), rel=0.05)
    assert back == start
