"""The page: one file that needs nothing else, and says what the numbers are."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.data.load import load_run
from enginebench.analysis.report.axis import axis_of
from enginebench.analysis.report.figure import Figure
from enginebench.analysis.report.figures import figures_of
from enginebench.analysis.report.page import render
from enginebench.analysis.report.palette import variables
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from tests.support.analysis.printed import printed, reported
from tests.support.analysis.synthetic import (
    FAILED,
    NOTHING_CAME,
    Engine,
    meta_of,
    record,
    simulate,
    stages_of,
    write_run,
)


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


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_page_needs_nothing_else(page: str) -> None:
    """No network, no two elements with one id; small enough to mail."""
    parsed = Page()
    parsed.feed(page)
    parsed.close()
    assert parsed.open == []
    assert parsed.references == []
    assert {"link", "img", "iframe", "object"} & set(parsed.tags) == set()
    assert "@import" not in without_scripts(page)
    assert not re.search(r"url\((?!#)", without_scripts(page))
    assert len(parsed.ids) == len(set(parsed.ids))
    assert len(page.encode()) < 2_000_000


def test_every_chart_has_a_sentence_and_a_table(page: str, summaries: list[RunSummary]) -> None:
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    assert [f'<figure id="{figure.key}">' in page for figure in figures_in(summaries)] == [True] * len(figures)
    assert page.index("<figure") < page.index("Results by stage"), "one picture before the numbers"
    for figure in figures:
        title = re.search(r"<h3>(.*?)</h3>", figure, re.DOTALL)
        assert title is not None
        assert f'<div class="chart" role="img" aria-label="{title[1]}"' in figure
        assert figure.count("<tr>") > 2


def figures_in(summaries: list[RunSummary]) -> list[Figure]:
    report = reported(summaries)
    return list(figures_of(report.runs, report.comparison, axis_of(report.runs), report.decision.laws))


def test_every_colour_of_a_chart_is_a_variable_of_the_page(page: str, summaries: list[RunSummary]) -> None:
    """Light and dark screens define each of them."""
    svgs = "".join(figure.chart.svg for figure in figures_in(summaries))
    used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svgs)) - {"none", "transparent"}
    for side in ("light", "dark"):
        names = variables(side)
        assert used <= {f"var(--{name})" for name in names}
        assert all(f"--{name}: {colour};" in page for name, colour in names.items())


def test_what_a_server_says_is_text_not_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    records = [record(k, k * 10**8) for k in range(100)]
    records[50] = msgspec.structs.replace(records[50], outcome="http_error", detail=evil)
    meta = meta_of(stages_of((1,), 10.0), label=evil, model=evil, command=("enginebench", evil), run_id="a-run")
    summary = summarise(load_run(write_run(tmp_path, meta, records)))
    page = render(reported([summary]))
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
    assert r"\u003cscript\u003ealert(1)" in page, "in the charts' data"


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
    report = reported([summary])
    assert "with E2E p50" in report.headline
    assert "140 ms" in report.headline
    page = render(report)
    assert "<figure" in page
    assert "of TTFT" not in page


def test_repeats_of_one_engine_are_one_line_and_one_row(summaries: list[RunSummary]) -> None:
    repeats = [dataclasses.replace(summaries[0], repeat=k) for k in range(3)]
    page = render(reported(repeats))
    assert len(re.findall(r'<th scope="row" class="text"><i class="dot"[^>]*></i>transformers</th>', page)) == 3
    assert "<small>3 runs</small>" in page
    assert "transformers #3" in page, "the settings and details of every run"
    assert '"var(--e0)"' in page
    assert '"var(--e1)"' not in page
    assert "3 runs" in printed(repeats, 120)


def test_a_share_of_failures_is_of_the_requests_that_were_not_cut_off(tmp_path: Path) -> None:
    """Eight answers, two refusals and ten that the end of the run cut off: 20 % failed, wherever it is said."""
    stages = stages_of((1,), 40.0)
    assert stages[0].steady_start is not None
    begin, second = stages[0].steady_start + 1, 10**9
    outcomes: list[dict[str, Any]] = [{}] * 8 + [FAILED] * 2 + [NOTHING_CAME | {"outcome": "cut_off"}] * 10
    records = [record(k, begin + k * second, **changes) for k, changes in enumerate(outcomes)]
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stages), records, [])))
    page, table = render(reported([summary])), printed([summary], 160)
    assert '<data value="2">2</data><small>20 %</small>' in page
    assert "20 %" in table
    assert "10 %" not in page + table


def test_what_failed_altogether_has_no_interval_of_failures(tmp_path: Path) -> None:
    summary = summarise(load_run(simulate(tmp_path / "run", Engine("fake", failures=1.0), (2, 4), 12.0)))
    page, table = render(reported([summary])), printed([summary], 160)
    assert not re.search(r"failed, failed|failed–failed|failed to failed|–, failed|answered: –", page + table)


def test_one_request_is_one(tmp_path: Path) -> None:
    stages = stages_of((1,), 10.0)
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stages), [record(0, 3 * 10**9)], [])))
    page = render(reported([summary]))
    assert "<span>1 request measured</span>" in page
    assert "1 request succeeded in the steady window" in page
