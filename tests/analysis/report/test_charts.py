"""Charts: their scales, labels and colours, and what they show when a browser draws them."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis.compare.engine_runs import contenders_of, headline_ttft
from analysis.compare.winner import compare
from analysis.data.load import load_run
from analysis.report.axis import axis_of
from analysis.report.drawing import Drawn
from analysis.report.figures import Number, figures_of
from analysis.report.page import render
from analysis.report.palette import styles_of
from analysis.report.scales import WIDTH, scale_of
from analysis.summary.run_summary import RunSummary, summarise
from records.formatting import format_seconds
from records.view import Level
from tests.support.analysis.printed import printed
from tests.support.analysis.synthetic import Engine, meta_of, record, simulate, stages_of, write_run


def drawn(summaries: list[RunSummary]) -> list[Drawn]:
    styles = styles_of(summary.label for summary in summaries)
    return [Drawn(contender, styles[contender.label]) for contender in contenders_of(summaries)]


def test_a_sentence_names_few_of_many_engines(summaries: list[RunSummary]) -> None:
    quick = [dataclasses.replace(summaries[1], label=f"quick-{k}") for k in range(2)]
    slow = [dataclasses.replace(summaries[0], label=f"slow-{k}") for k in range(4)]
    marks = {(one.style.slot, one.style.shape) for one in drawn([*quick, *slow, *renamed(summaries[0], 12)])}
    assert len(marks) == 18, "no two engines look alike"
    comparison = compare([*quick, *slow])
    assert re.search(r": [^,]+× those of quick-1, [^,]+, [^,]+ and [\d.]+× to [\d.]+× those of the other 2 in this run",
                     comparison.sentence)  # fmt: skip


def renamed(summary: RunSummary, count: int) -> list[RunSummary]:
    return [dataclasses.replace(summary, label=f"another-{k}") for k in range(count)]


def test_a_percentile_among_refused_requests_is_failed(tmp_path: Path) -> None:
    """It refuses every third request at once, and answers the others quickly."""
    good = summarise(load_run(simulate(tmp_path / "good", Engine("good", slots=8), (2, 4), 15.0)))
    refusing = summarise(load_run(simulate(tmp_path / "bad", Engine("bad", slots=8, failures=0.35), (2, 4), 15.0)))
    both = [refusing, good]
    table = printed(both, 120)
    assert table.count("failed") > 6
    assert re.search(r"ok: \d\d\.\d", table)
    page = render(both, compare(both))
    assert "✕" in page
    assert re.search(r"<dd>failed<small>answered: [\d.]+ ms</small>", page), "on its card"
    assert '<span class="bad">failed</span><small>answered: ' in page


def test_the_users_ttft_makes_the_headlines_where_it_differs(tmp_path: Path, summaries: list[RunSummary]) -> None:
    """Every request was sent 20 ms late."""
    records = [record(k, k * 10**8, t_send=k * 10**8 + 2 * 10**7) for k in range(100)]
    late = summarise(load_run(write_run(tmp_path / "late", meta_of(stages_of((1,), 10.0)), records)))
    assert headline_ttft([late]) == "ttft_user"
    assert headline_ttft(summaries) == "ttft"
    assert "ms, user" in printed([late], 120)
    assert "ms, user" not in printed(summaries, 120)
    assert "<dt>TTFT (user) p95</dt>" in render([late], compare([late]))


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
    summary = summarise(load_run(simulate(tmp_path / "run", Engine("fake"), (1, 1), 10.0, names=names)))
    axis = axis_of([summary])
    assert (axis.title, [place.text for place in axis.places]) == (title, texts)
    table, page = printed([summary], 120), render([summary], compare([summary]))
    assert all(text in table for text in (title, *texts))
    assert all(f">{text}</text>" in page for text in texts)


def test_many_names_of_stages_are_thinned_out_until_they_are_legible(tmp_path: Path) -> None:
    """Forty names 20 pixels apart would take twice the chart's width of 400."""
    names = tuple(f"phase {k}" for k in range(40))
    summary = summarise(load_run(simulate(tmp_path / "run", Engine("fake"), (1,) * 40, 1.0, names=names)))
    (figure,) = (one for one in figures_of(drawn([summary]), axis_of([summary]), "ttft") if one.key == "throughput")
    assert re.findall(r">(phase \d+)</text>", figure.chart.svg) == list(names[::2])


def test_a_gpu_is_busy_for_at_most_all_of_the_time(tmp_path: Path) -> None:
    """96 %, 98 % and 100 % in three runs: 98 ± 4.303 · 2/√3, and no more than 100."""
    summary = summarise(load_run(simulate(tmp_path / "run", Engine("fake"), (2,), 10.0)))
    runs = [
        dataclasses.replace(
            summary,
            repeat=k,
            stages=tuple(
                dataclasses.replace(stage, telemetry={"gpu_utilisation": Level(share, share)})
                for stage in summary.stages
            ),
        )
        for k, share in enumerate((0.96, 0.98, 1.0))
    ]
    (figure,) = (one for one in figures_of(drawn(runs), axis_of(runs), "ttft") if one.key == "gpu")
    (row,) = figure.rows
    assert [one.text for one in row[2:] if isinstance(one, Number)] == ["98.0", "93.0", "100"]


def test_an_axis_of_values_far_apart_is_logarithmic() -> None:
    assert scale_of([1.0, 5.0]).logarithmic is False
    assert scale_of([0.01, 5.0]).logarithmic is True


@pytest.fixture(scope="module")
def in_browser(page: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a reader gets who points at the first chart, hides an engine and zooms."""
    folder = tmp_path_factory.mktemp("browser")
    file = folder / "page.html"
    before, end, after = page.rpartition("</body>")
    file.write_text(f"{before}<script>{LOOK}</script>{end}{after}")
    return look(file, folder)


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser")
LOOK = """
const marks = () => [...document.querySelectorAll("#ttft .live .mark-symbol path")];
const told = mark => {
  const [x, y] = [mark.getBoundingClientRect().x + 3, mark.getBoundingClientRect().y + 3];
  mark.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: x, clientY: y}));
  return document.querySelector(".vg-tooltip")?.innerText ?? "";
};
const zoomed = async () => {
  const chart = document.querySelector("#ttft .live"), view = views.find(view => chart.contains(view.container()));
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
Promise.all([...document.querySelectorAll(".chart")].map(draw)).then(async () => {
  const found = {charts: document.querySelectorAll(".drawn").length, told: told(marks()[0]), marks: marks().length};
  found.zoomed = await zoomed();
  document.querySelector(".engines button").click();
  await Promise.all(views.map(view => view.runAsync()));
  found.after = marks().length;
  document.title = JSON.stringify(found);
});
"""


def look(file: Path, folder: Path) -> dict[str, Any]:
    """What the page's own script has left in the title; it must have made no remark on the console."""
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    return dict(json.loads(html.unescape(title[1])))


@needs_browser
def test_a_browser_draws_every_chart_and_says_what_the_summary_says(
    in_browser: dict[str, Any], summaries: list[RunSummary]
) -> None:
    assert in_browser["charts"] == 12
    stage = summaries[0].stages[0]
    p95 = stage.latencies["ttft"].p95
    assert f"engine\ttransformers\nat\t4 users\nvalue\t{format_seconds(p95.value)}\n" in in_browser["told"]
    assert p95.why is not None
    assert p95.why in in_browser["told"]


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


def test_the_data_of_a_chart_are_the_summarys(page: str, summaries: list[RunSummary]) -> None:
    figure = re.search(r'<figure id="throughput">.*?<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert figure is not None
    rows = json.loads(figure[1])["data"]["values"]
    told = {(row["name"], row["place"]): (row["value"], row["low"], row["high"]) for row in rows}
    for summary in summaries:
        for stage in summary.stages:
            found = stage.throughput
            assert told[summary.label, stage.label] == (found.value, found.low, found.high)


def test_the_scalability_chart_has_the_band_of_the_law(page: str) -> None:
    figure = re.search(r'<figure id="scalability">.*?<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert figure is not None
    curves = json.loads(figure[1])["layer"][0]["data"]["values"]
    assert {one["name"] for one in curves} == {"transformers", "mistralrs"}
    for one in curves:
        assert all(low <= value <= high for low, value, high in zip(one["low"], one["value"], one["high"], strict=True))
        assert one["high"][-1] > one["low"][-1]
