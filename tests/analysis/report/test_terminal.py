"""The report in terminals of all widths."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path

import pytest

from analysis.compare.winner import compare
from analysis.data.load import load_run
from analysis.report.page import render
from analysis.report.terminal import objective_lines
from analysis.summary.run_summary import RunSummary, summarise
from records.formatting import significant
from records.slo import parse_objectives
from tests.support.analysis.printed import printed


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
    assert "…" not in table[: table.index("A terminal of ")]


def test_it_names_a_width_at_which_the_intervals_are_shown(summaries: list[RunSummary]) -> None:
    """Long names of engines need more than 80 columns."""
    long = [dataclasses.replace(summary, label=f"{summary.label}-with-continuous-batching") for summary in summaries]
    found = re.search(r"A terminal of (\d+) columns", printed(long, 80))
    assert found is not None
    assert "Second lines: 95 %" in printed(long, int(found[1]))
    assert "Second lines: 95 %" not in printed(long, int(found[1]) - 1)


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


def test_repeats_are_judged_together(folders: tuple[Path, Path]) -> None:
    """What one repeat meets and another misses is not decided."""
    strict, lenient = (
        summarise(load_run(folders[0]), parse_objectives([f"ttft_p50={limit}"])) for limit in (0.001, 100)
    )
    (line,) = objective_lines([lenient, lenient])
    assert line == ("met", "transformers (2 runs), ttft_p50 ≤ 100 s: met at 4, 8 and 16 users")
    ((answer, _),) = objective_lines([strict, lenient])
    assert answer == "not enough evidence"
