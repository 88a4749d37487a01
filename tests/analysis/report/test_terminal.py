"""The report in terminals of all widths."""

from __future__ import annotations

import dataclasses
import html
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from enginebench.analysis.compare.tables import LEFT_OUT
from enginebench.analysis.console import TextTable, print_table
from enginebench.analysis.data.load import load_run
from enginebench.analysis.report.document import numbers_of
from enginebench.analysis.report.markdown import markdown
from enginebench.analysis.report.page import render
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.formatting import significant
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Estimate, Judgement
from tests.support.analysis.printed import printed, reported
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run


def stage_table_of(text: str) -> str:
    """From its upper rule to its lower one."""
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if re.match(r"\s*users +engine", line)) - 1
    last = next(
        index for index, line in enumerate(lines) if re.match(r"Second lines|A terminal of|failed:|TTFT ±", line)
    )
    return "\n".join(lines[first:last])


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
    table = stage_table_of(text)
    assert max(len(line) for line in table.splitlines()) <= width
    assert "…" not in table
    for summary in summaries:
        assert table.count(summary.label) == 3
        for stage in summary.stages:
            assert significant(stage.value("throughput") or 0) in table
    assert (interval is None) == (not re.search(r"\d–\d|\[\d", table))
    if interval is not None:
        assert len(re.findall(interval, table)) >= 12


def test_ttft_has_its_error_beside_it(summaries: list[RunSummary]) -> None:
    """Both runs are at loads for which the next heavier calibrated one had an error of 0.04 ms."""
    line = "TTFT ± 0.040 ms: the load generator's own error at p99"
    assert line in printed(summaries, 120)
    assert line in html.unescape(render(reported(summaries)))
    stages = [
        dataclasses.replace(s, quantities={**s.quantities, "client_error": Estimate(None)}) for s in summaries[1].stages
    ]
    blind = dataclasses.replace(summaries[1], stages=tuple(stages))
    assert "TTFT ± 0.040 ms (transformers): the load" in printed([summaries[0], blind], 120)
    assert "±" not in printed([blind], 120)


def test_a_narrow_terminal_loses_no_number(summaries: list[RunSummary]) -> None:
    assert "…" not in stage_table_of(printed(summaries, 40))


def test_it_names_a_width_at_which_the_intervals_are_shown(summaries: list[RunSummary]) -> None:
    """Long names of engines need more than 80 columns."""
    long = [dataclasses.replace(summary, label=f"{summary.label}-with-continuous-batching") for summary in summaries]
    found = re.search(r"A terminal of (\d+) columns", printed(long, 80))
    assert found is not None
    assert "Second lines: 95 %" in printed(long, int(found[1]))
    assert "Second lines: 95 %" not in printed(long, int(found[1]) - 1)


def test_decimal_points_stand_in_line(summaries: list[RunSummary]) -> None:
    table = stage_table_of(printed(summaries, 120))
    lines = [line for line in table.splitlines() if re.match(r"\s+\d*\s+(transformers|mistralrs)\s", line)]
    ends = {max(match.start() for match in re.finditer(r"\.", line)) for line in lines if line.rstrip()[-2:-1] == "."}
    assert len(lines) == 6
    assert len(ends) <= 1


def test_the_answer_is_first_and_the_caveats_follow_the_numbers(summaries: list[RunSummary]) -> None:
    report = reported(summaries)
    text = printed(report, 400)
    assert text.splitlines()[0] == report.headline
    assert report.headline.startswith("mistralrs served ")
    assert "at 16 users in this run. TTFT p95: mistralrs 300 ms" in report.headline
    assert "No winner is named: a winner needs 3 repeats of each." in report.headline
    caveats = re.search(r"^\d+ caveats?$", text, re.MULTILINE)
    assert caveats is not None
    assert text.index("Second lines") < caveats.start()
    paged = printed(dataclasses.replace(report, report="runs/report.html"), 400)
    assert re.search(r"^\d+ caveats? \(report\): \w", paged, re.MULTILINE)
    assert "→" not in paged, "the page has the remedies"
    assert "▁" in text or "█" in text, "a picture of the throughput over the loads"


def test_many_engines_have_one_table_over_all_loads(summaries: list[RunSummary]) -> None:
    """Eleven engines at three loads, a line each; the page has the rest."""
    engines = [dataclasses.replace(summaries[k % 2], label=f"engine-{k}", run_id=f"run-{k}") for k in range(11)]
    text = printed(dataclasses.replace(reported(engines), report="runs/report.html"), 80)
    assert len(text.splitlines()) <= 85
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "verdict" in text
    assert text.count("Every load") == 1
    loads = text[text.index("Every load") :]
    assert all(loads.count(f" {engine.label} ") == 3 for engine in engines[2:]), "a row at each load"
    assert "Second lines" not in text
    assert "A terminal of" not in text
    assert "The report also has TTFT, TPOT and the other metrics at every load" in " ".join(text.split())
    assert re.search(r"^\d+ caveats? \(report\): \w", text, re.MULTILINE)


def test_a_cell_is_a_number_or_a_dash_and_the_reason_stands_once(summaries: list[RunSummary]) -> None:
    text = printed(summaries, 200)
    assert "n/a" not in text
    assert text.count("No interval: ") == 1
    assert re.search(r"No interval: .*TTFT p99 \(\d+ < 368", text)
    assert re.search(r"\((\d+) < (\d+)\b.* \1 < \2: \1 independent observations, and the interval needs \2\.", text)
    assert "<" not in stage_table_of(text)


def test_a_matrix_is_shown_where_it_is_short_and_some_pair_is_met(summaries: list[RunSummary]) -> None:
    report = reported(summaries)
    assert all(capacity.met is None for capacity in report.matrix)
    assert "within pairs of limits" not in printed(report, 120), "of no pair a load is known"
    met = tuple(dataclasses.replace(capacity, met=4.0) for capacity in report.matrix)
    assert "within pairs of limits" in printed(dataclasses.replace(report, matrix=met), 120)
    many = reported([dataclasses.replace(summaries[0], label=f"engine-{k}") for k in range(4)])
    assert "within pairs of limits" not in printed(many, 120)
    assert "within pairs of limits" in render(many)


def test_unknown_tokens_are_a_dash_and_a_finding(tmp_path: Path) -> None:
    """Not 0 tokens/s: the server sends no usage, and no tokenizer counted the answers."""
    unknown = {"output_tokens": None, "token_source": None, "first_chunk_tokens": None}
    records = [record(k, k * 10**8, **unknown) for k in range(200)]
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stages_of((1,), 20.0)), records)))
    report = reported([summary])
    (row,) = (line for line in printed(report, 160).splitlines() if re.match(r"\s+1\s+fake", line))
    assert row.split()[-2:] == ["–", "–"], "neither time per token nor tokens per second"
    assert "the tokens of the answers are unknown" in printed(report, 160)
    assert [remark for remark in report.caveats if "tokens" in remark.evidence] != []
    numbers = numbers_of(report).filter(metric="throughput")
    assert numbers["value"].to_list() == [None]


def test_how_much_longer_a_run_would_take_to_decide(summaries: list[RunSummary]) -> None:
    """97 % of 280 requests met it, where 95 % are asked for: twice as many would tell."""
    (objective,) = parse_objectives(["ttft_p95=0.2"])
    share = Estimate(0.97, 0.943, 0.986, 280, effective=280.0)
    judgement = Judgement(objective, share, "not enough evidence")
    stage = dataclasses.replace(summaries[0].stages[0], judgements=(judgement,))
    run = dataclasses.replace(summaries[0], stages=(stage,), objectives=(objective,))
    report = reported([run])
    ((answer, text),) = report.judged
    assert answer == "not enough evidence"
    assert re.search(r"4 users \(97 % within, ≈ \d[\d.]* (s|min) more would decide\)", text)
    for surface in (printed(report, 120), markdown(report), html.unescape(render(report))):
        assert text in re.sub(r"\s+", " ", surface)


def test_sentences_in_cells_are_broken_into_lines() -> None:
    why = "fell among failures in 5 of 5 runs (baseline: 0 of 5)"
    row = ("critical", "mistralrs", "100 users", "TTFT p99", "42.5 ms", "failed", why, "0.001")
    headers = ("", "engine", "stage", "metric", "baseline", "now", "change", "p")
    file = io.StringIO()
    print_table(Console(file=file, width=80, highlight=False), TextTable("", headers, (row,), (0, 1, 2, 3)))
    assert max(map(len, file.getvalue().splitlines())) <= 80
    assert set(why.split()) <= set(file.getvalue().split()), "no word is broken"


def test_eighty_columns_hold_every_load_with_its_verdict() -> None:
    headers = ("load", "engine", "SLO", "output tokens/s", "ratio", "p", "verdict", "same answers")
    row = (
        "1 user",
        "transformers",
        "undecided",
        "17.2 [13.8, 20.6]",
        "1.36× [1.03, 1.79]",
        "0.175",
        "not shown",
        "9 of 9",
    )
    file = io.StringIO()
    table = TextTable("Every load", headers, (row,), (0, 1, 2, 6), "")
    print_table(Console(file=file, width=80, highlight=False), table, LEFT_OUT)
    assert max(map(len, file.getvalue().splitlines())) <= 80
    assert all(cell in file.getvalue() for cell in ("1.36× [1.03, 1.79]", "0.175", "not shown"))
    assert "A wider terminal and --json also have same answers and output tokens/s." in file.getvalue()
