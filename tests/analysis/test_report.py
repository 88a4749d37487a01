"""What people see: the table in terminals of all widths, the page, and `enginebench report` as a command."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from analysis.cli import app
from analysis.report.axis import axis_of
from analysis.report.charts import captions
from analysis.report.charts.drawing import Drawn
from analysis.report.charts.lines import by_stage
from analysis.report.charts.palette import ENGINES, PAGE, PAGE_COLOURS, styles_of, variables
from analysis.report.charts.scales import WIDTH, logarithmic, scale_of, spread_apart
from analysis.report.page import render
from analysis.report.rows import percentile_column
from analysis.report.terminal import objective_lines, print_report
from analysis.run.load import load_run
from analysis.units import significant
from analysis.verdict.comparison import compare
from analysis.verdict.contenders import contenders_of, headline_ttft
from analysis.verdict.statistics import Estimate
from analysis.verdict.summary import RunSummary, summarise
from records.slo import parse_objectives
from tests.support.synthetic import Engine, meta_of, record, simulate, stages_of, write_run

ROOT = Path(__file__).parents[2]
TTFT_P95 = percentile_column("ttft", "p95").of
SLOW = Engine("transformers", slots=1, prefill=0.02, tpot=0.01)
QUICK = Engine("mistralrs", slots=8, prefill=0.03, tpot=0.015, failures=0.02)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    runs = tmp_path_factory.mktemp("runs")
    return simulate(runs / "slow", SLOW, (4, 8, 16), 12.0), simulate(runs / "quick", QUICK, (4, 8, 16), 12.0)


@pytest.fixture(scope="module")
def summaries(folders: tuple[Path, Path]) -> list[RunSummary]:
    return [summarise(load_run(folder)) for folder in folders]


def printed(summaries: list[RunSummary], width: int) -> str:
    file = io.StringIO()
    print_report(Console(file=file, width=width, highlight=False), summaries, compare(summaries))
    return file.getvalue()


@pytest.mark.parametrize(
    ("width", "interval"),
    [
        pytest.param(120, r"\[\d[\d.,]*, \d[\d.,]*\]", id="120 columns: intervals in brackets"),
        pytest.param(80, r"\d[\d.,]*–\d[\d.,]*", id="80 columns: intervals without brackets"),
        pytest.param(72, None, id="72 columns: the numbers alone"),
    ],
)
def test_the_table_fits_its_terminal(summaries: list[RunSummary], width: int, interval: str | None) -> None:
    text = printed(summaries, width)
    table = text[: text.index("\n\n")]
    assert max(len(line) for line in table.splitlines()) <= width
    assert "…" not in table
    for summary in summaries:
        assert table.count(summary.label) == 3
        for stage in summary.stages:
            assert significant(stage.throughput.value or 0) in table
    assert (interval is None) == (not re.search(r"\d–\d|\[\d", table))
    if interval is not None:
        assert len(re.findall(interval, table)) >= 12


def test_ttft_has_its_error_beside_it(summaries: list[RunSummary]) -> None:
    """Both runs are at loads for which the next heavier calibrated one had an error of 0.04 ms."""
    line = "TTFT ± 0.040 ms: the load generator's own error at p99"
    assert line in printed(summaries, 120)
    page = render(summaries, compare(summaries))
    assert line in html.unescape(page)
    assert page.count("<small>± 0.040 ms</small>") == 2, "on each card"
    blind = dataclasses.replace(summaries[1], client_error=None)
    assert "TTFT ± 0.040 ms (transformers): the load" in printed([summaries[0], blind], 120)
    assert "±" not in printed([blind], 120)


def test_a_narrow_terminal_loses_no_number(summaries: list[RunSummary]) -> None:
    table = printed(summaries, 40)
    assert "…" not in table[: table.index("A terminal of 80")]


def test_decimal_points_stand_in_line(summaries: list[RunSummary]) -> None:
    lines = [
        line for line in printed(summaries, 120).splitlines() if re.match(r"\s+\d*\s+(transformers|mistralrs)\s", line)
    ]
    ends = {max(match.start() for match in re.finditer(r"\.", line)) for line in lines if line.rstrip()[-2:-1] == "."}
    assert len(lines) == 6
    assert len(ends) <= 1


def test_the_last_line_is_the_sentence(summaries: list[RunSummary]) -> None:
    text = printed(summaries, 200)
    assert text.rstrip().splitlines()[-1] == compare(summaries).sentence
    assert compare(summaries).sentence.startswith("mistralrs served ")
    assert "in this run. No winner is named" in compare(summaries).sentence


class Page(HTMLParser):
    """Checks that tags nest, and collects what a page refers to."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id" and value:
                self.ids.append(value)
            if name in {"src", "href", "xlink:href", "action", "data"} and value:
                self.references.append(value)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(summaries: list[RunSummary]) -> str:
    return render(summaries, compare(summaries))


def test_the_page_needs_nothing_else(page: str) -> None:
    """No script, no network, no two elements with one id; small enough to mail."""
    parsed = Page()
    parsed.feed(page)
    parsed.close()
    assert parsed.open == []
    assert parsed.references == []
    assert {"script", "link", "img", "iframe", "object"} & set(parsed.tags) == set()
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert len(page.encode()) < 2_000_000


def test_every_chart_has_a_sentence_and_a_table(page: str) -> None:
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    assert (
        len(figures) == 11
    )  # TTFT, throughput, E2E, TPOT, memory, parts, three distributions, and the flow of each run
    for figure in figures:
        title = re.search(r"<h3>(.*?)</h3>", figure, re.DOTALL)
        assert title is not None
        assert f'<div role="img" aria-label="{title[1]}"' in figure
        assert figure.count("<tr>") > 2
        svg = re.search(r"<svg.*?</svg>", figure, re.DOTALL)
        assert svg is not None
        ElementTree.fromstring(svg[0])  # well-formed


def test_every_colour_of_a_chart_is_a_variable_of_the_page(page: str) -> None:
    """Light and dark screens define each of them."""
    svgs = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svgs)) - {"none", "transparent"}
    for side in ("light", "dark"):
        names = variables(side)
        assert used <= {f"var(--{name})" for name in names}
        assert all(f"--{name}: {colour};" in page for name, colour in names.items())


@pytest.mark.parametrize("side", ["light", "dark"])
def test_colours_are_legible_on_their_page(side: str) -> None:
    """Contrast above 4.5 (WCAG 2, AA): engines' names are written in their colours."""

    def luminance(colour: str) -> float:
        channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    background = luminance(getattr(PAGE, side))
    for colour in (*ENGINES, PAGE_COLOURS["ink"], PAGE_COLOURS["muted"]):
        lighter, darker = sorted((luminance(getattr(colour, side)), background), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) > 4.5


def test_what_a_server_says_is_text_not_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    records = [record(k, k * 10**8) for k in range(100)]
    records[50] = dataclasses.replace(records[50], outcome="http_error", detail=evil)
    meta = meta_of(stages_of((1,), 10.0), label=evil, model=evil, command=("enginebench", evil))
    summary = summarise(load_run(write_run(tmp_path, meta, records)))
    page = render([summary], compare([summary]))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_run_without_streams_timing_and_telemetry_has_a_page(tmp_path: Path) -> None:
    whole = {
        "streamed": False,
        "t_first": None,
        "t_first_out": None,
        "icl": (),
        "chunks": 0,
        "first_chunk_tokens": None,
    }
    records = [record(k, k * 10**8, **whole) for k in range(100)]
    meta = meta_of(stages_of((1,), 10.0), engine=None, model=None)
    summary = summarise(load_run(write_run(tmp_path, meta, records)))
    comparison = compare([summary])
    assert "half of the answers were complete within 140 ms" in comparison.sentence
    page = render([summary], comparison)
    assert page.count("<figure") == 4  # throughput, E2E, its distribution and the timeline; there is no first token
    assert "n/a" in page


def test_repeats_of_one_engine_are_one_line_and_one_row(summaries: list[RunSummary]) -> None:
    repeats = [dataclasses.replace(summaries[0], repeat=k) for k in range(3)]
    page = render(repeats, compare(repeats))
    assert page.count("<figure") == 10
    assert len(re.findall(r'<th scope="row" class="text"><i class="dot"[^>]*></i>transformers</th>', page)) == 3
    assert "<small>3 runs</small>" in page
    assert "transformers #3" in page, "the settings and details of every run"
    assert 'stroke="var(--e0)"' in page
    assert 'stroke="var(--e1)"' not in page
    assert "3 runs" in printed(repeats, 120)


def test_repeats_are_judged_together(folders: tuple[Path, Path]) -> None:
    """What one repeat meets and another misses is not decided."""
    strict, lenient = (
        summarise(load_run(folders[0]), parse_objectives([f"ttft_p50={limit}"])) for limit in (0.001, 100)
    )
    (line,) = objective_lines([lenient, lenient])
    assert line == ("met", "transformers (2 runs), ttft_p50 ≤ 100 s: met at 4, 8 and 16 users")
    ((answer, _),) = objective_lines([strict, lenient])
    assert answer == "not enough evidence"


def drawn(summaries: list[RunSummary]) -> list[Drawn]:
    styles = styles_of(summary.label for summary in summaries)
    return [Drawn(contender, styles[contender.label]) for contender in contenders_of(summaries)]


def test_titles_say_what_the_charts_show(summaries: list[RunSummary]) -> None:
    engines, axis = drawn(summaries), axis_of(summaries)
    said = captions.ttft(engines, axis, TTFT_P95)
    assert said == "mistralrs keeps TTFT p95 under 500 ms up to 16 users, transformers at no load"
    told = captions.throughput(engines, axis)
    assert re.fullmatch(r"mistralrs serves \d+ tokens/s at 16 users, transformers [\d.]+", told)
    assert captions.throughput(engines[:1], axis).endswith("; above 4 users its throughput grew no further")
    said = captions.parts(engines, axis)
    assert re.fullmatch(r"At 16 users 9\d(\.\d)? % of the TTFT of transformers is waiting for admission", said)
    said = captions.flow(engines[1])
    assert said == "mistralrs: output tokens/s, TTFT, TPOT and requests in flight were steady at every stage"


def test_a_caption_says_nothing_of_loads_that_were_not_measured(tmp_path: Path) -> None:
    """Twice the tokens at twice the users: what more users would bring is not known."""
    summary = summarise(load_run(simulate(tmp_path / "run", Engine("fake", slots=16), (2, 4, 8), 10.0)))
    assert re.fullmatch(
        r"fake serves \d+ tokens/s at 8 users", captions.throughput(drawn([summary]), axis_of([summary]))
    )


def test_what_was_too_short_to_test_is_not_called_steady(tmp_path: Path) -> None:
    slow = Engine("fake", slots=1, prefill=0.5, tpot=0.1)
    summary = summarise(load_run(simulate(tmp_path / "run", slow, (2,), 20.0)))
    said = captions.flow(drawn([summary])[0])
    assert "TTFT" not in said.replace("fake", "")


def test_an_engine_that_refuses_keeps_no_limit(tmp_path: Path) -> None:
    """It refuses every third request at once, and answers the others quickly."""
    good = summarise(load_run(simulate(tmp_path / "good", Engine("good", slots=8), (2, 4), 15.0)))
    refusing = summarise(load_run(simulate(tmp_path / "bad", Engine("bad", slots=8, failures=0.35), (2, 4), 15.0)))
    both = [refusing, good]
    said = captions.ttft(drawn(both), axis_of(both), TTFT_P95)
    assert said == "good keeps TTFT p95 under 100 ms up to 4 users, bad at no load"
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
    assert (axis.title, [place.text for place in axis.places], axis.of_loads) == (title, texts, False)
    table, page = printed([summary], 120), render([summary], compare([summary]))
    assert all(text in table for text in (title, *texts))
    assert all(f">{text}</text>" in page for text in texts)
    assert captions.ttft(drawn([summary]), axis, TTFT_P95).endswith(f"at {names[-1]}")
    assert captions.throughput(drawn([summary]), axis).endswith(f"at {names[-1]}")


def test_lines_that_end_at_different_stages_are_named_and_told_there(tmp_path: Path) -> None:
    """The name of a run that was stopped early stands where its line stops."""
    whole = simulate(tmp_path / "whole", Engine("whole"), (2, 6), 10.0)
    cut = simulate(tmp_path / "cut", Engine("cut", tpot=0.02), (2, 4), 10.0)
    summaries = [summarise(load_run(folder)) for folder in (whole, cut)]
    engines, axis = drawn(summaries), axis_of(summaries)
    drawing = by_stage(engines, axis, lambda stage: stage.throughput, duration=False)
    assert drawing is not None
    places = {text: float(x) for x, text in re.findall(r"translate\(([\d.]+),[^>]*>(whole|cut)<", drawing.svg)}
    assert places["whole"] - places["cut"] == pytest.approx(2 / 4.32 * WIDTH, rel=0.01)  # two users of 4, margins apart
    told = captions.tpot(engines, axis)
    assert re.fullmatch(r"A token of whole takes [\d.]+ ms at 6 users; a token of cut takes [\d.]+ ms at 4 users", told)


def test_a_token_that_slows_down_under_load_is_told_at_both_ends(tmp_path: Path) -> None:
    summary = summarise(load_run(simulate(tmp_path / "run", Engine("fake"), (2, 4), 10.0)))
    stages = tuple(
        dataclasses.replace(stage, latencies={"tpot": dataclasses.replace(stage.latencies["tpot"], p50=Estimate(tpot))})
        for stage, tpot in zip(summary.stages, (0.01, 0.05), strict=True)
    )
    slowed = dataclasses.replace(summary, stages=stages)
    said = captions.tpot(drawn([slowed]), axis_of([slowed]))
    assert said == "A token of fake takes 50.0 ms at 4 users (10.0 ms at 2 users)"


def test_scales_and_labels() -> None:
    assert scale_of([1.0, 5.0]).logarithmic is False
    assert scale_of([0.01, 5.0]).logarithmic is True
    assert scale_of([0.01, 5.0]).ticks() == pytest.approx([0.01, 0.03, 0.1, 0.3, 1, 3])
    assert logarithmic([20.0, 22.0]).ticks(4) == pytest.approx([20, 25])
    assert logarithmic([0.0, 3.0, 300.0]).ticks() == pytest.approx([5, 10, 20, 50, 100, 200])
    assert scale_of([9.0, 5.0]).ticks(6) == pytest.approx([0, 2, 4, 6, 8])
    scale = scale_of([0.01, 5.0])
    assert scale.value(scale.pixel(0.3)) == pytest.approx(0.3)
    assert spread_apart([10, 12, 100, 229], 15, 230) == [10, 25, 100, 229]
    assert spread_apart([220, 225, 230], 15, 230) == [200, 215, 230]


def test_a_margin_can_be_set(folders: tuple[Path, Path], tmp_path: Path) -> None:
    done = command(*folders, "--output", tmp_path / "page.html", "--margin", "1.2", "--json")
    assert json.loads(done.stdout)["comparison"]["margin"] == 1.2


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


REPORT_AND_LOOK = """
import sys
sys.argv = ["enginebench", "report"]
import enginebench
try:
    enginebench.main()
except SystemExit as ended:
    assert not ended.code, ended
others = {"gevent", "locust", "loadtests", "engines", "servers", "fastapi", "torch"}
assert not others & set(sys.modules), "a report needs records and analysis alone"
slow = {"scipy.stats", "scipy.signal", "scipy.optimize"}
assert not slow & set(sys.modules), "importing these takes a second"
"""


def test_without_arguments_the_newest_run_is_reported(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """Through the front door; and gevent is imported neither by the analysis nor while it works."""
    shutil.copytree(folders[0], tmp_path / "runs" / "a")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEBENCH")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", REPORT_AND_LOOK]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Report: runs/a/report.html" in done.stdout
    assert (tmp_path / "runs" / "a" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "runs" / "a" / "requests.parquet").exists()
    assert "transformers served" in done.stdout


def test_json_is_one_document(folders: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = command(*folders, "--json", "--output", page)
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert [run["label"] for run in document["runs"]] == ["transformers", "mistralrs"]
    assert document["comparison"]["winner"] is None
    assert document["comparison"]["stage"] == "16 users"
    assert document["objectives"] is None
    assert document["invalid"] is False
    assert document["report"] == str(page)
    assert [run["client_error"] for run in document["runs"]] == [0.00004, 0.00004]
    assert {stage["client_error"] for run in document["runs"] for stage in run["stages"]} <= {0.00002, 0.00004}
    kept = json.loads((folders[0] / "summary.json").read_text())
    assert {name: document["runs"][0][name] for name in kept} == kept


@pytest.mark.parametrize(("limit", "answer"), [("100", "met"), ("0.0001", "missed")])
def test_json_has_the_answer_to_the_objectives(folders: tuple[Path, Path], limit: str, answer: str) -> None:
    done = command(folders[0], "--json", "--slo", f"ttft_p50={limit}")
    assert json.loads(done.stdout)["objectives"] == answer
    assert done.exit_code == (answer != "met")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(["--slo", "ttft_p95=0.1"], 1, "missed", id="an objective that is missed"),
        pytest.param(["--slo", "ttft_p50=30"], 0, "met", id="an objective that is met"),
        pytest.param(["--slo", "ttft_p99=30"], 1, "not enough evidence", id="an objective that is not shown to be met"),
        pytest.param(["--slo", "nonsense"], 2, "an objective is METRIC_pN=SECONDS", id="an objective that is none"),
        pytest.param(["nowhere"], 2, "there is no run `nowhere`", id="a run that is not there"),
        pytest.param(["--tokenizer", "nowhere"], 0, "served", id="a tokenizer that is not needed is not looked for"),
    ],
)
def test_exit_codes(folders: tuple[Path, Path], arguments: list[str], code: int, sentence: str) -> None:
    runs = [] if arguments == ["nowhere"] else [folders[0]]
    done = command(*runs, *arguments)
    assert done.exit_code == code
    assert sentence in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_an_invalid_run_exits_with_2_unless_allowed(tmp_path: Path) -> None:
    records = [record(k, k * 10**8, t_send=k * 10**8 + 10**8) for k in range(200)]  # always 100 ms late
    late = write_run(tmp_path / "late", meta_of(stages_of((1,), 20.0)), records)
    done = command(late)
    assert done.exit_code == 2
    assert "invalid" in done.stdout
    assert "the load generator was late" in done.stdout
    assert command(late, "--allow-invalid").exit_code == 0
