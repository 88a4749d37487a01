"""Classes of requests in the report: each with its own objectives, and in the mix against itself alone."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.console import TextTable
from enginebench.analysis.data.load import load_run
from enginebench.analysis.report.classes import class_sentences, class_table, judge_class
from enginebench.analysis.report.markdown import markdown
from enginebench.analysis.report.page import render
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.metrics import BY_NAME
from enginebench.records.request import RequestRecord
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND
from enginebench.records.view import EMPTY, ClassView, Judgement
from tests.support.analysis.compared import judged, run, view
from tests.support.analysis.printed import printed, reported
from tests.support.analysis.synthetic import FAILED, meta_of, record, stages_of, write_run

MS = SECOND // 1000
NAMES = ("20 users, mixed", "15 users, chat alone", "5 users, batch alone")
ASKS: tuple[dict[str, str], ...] = ({}, {"request_class": "chat"}, {"request_class": "batch"})
STAGES = tuple(
    replace(stage, plan=replace(stage.plan, asks=asks))
    for stage, asks in zip(stages_of((20, 15, 5), 10.0, names=NAMES), ASKS, strict=True)
)
OBJECTIVES = {"chat": "ttft_p95=0.25", "batch": "ttft_p95=2"}
SECONDS = {("chat", 0): 0.3, ("chat", 1): 0.1, ("batch", 0): 0.8, ("batch", 2): 0.8}  # TTFT by class and stage
A_FAILURE = 7  # the number of a request


def requests() -> list[RequestRecord]:
    """300 of each class in each of its stages, of 20 users; every latency is that of its class and stage."""
    found: list[RequestRecord] = []
    for (kind, stage), seconds in SECONDS.items():
        for k in range(300):
            at = STAGES[stage].start + 2 * SECOND + k * 23 * MS
            first = at + round(seconds * SECOND)
            stamps = {"t_first": first, "t_first_out": first, "read_first": first, "t_headers": first}
            end = {"t_last": first + 40 * MS, "t_end": first + 40 * MS}
            failed = FAILED | {"t_end": at + MS} if (kind, stage, k) == ("batch", 2, A_FAILURE) else {}
            fields = {"stage": stage, "user": k % 20, "request_class": kind, "t_send": at} | stamps | end | failed
            found.append(record(len(found), at, **fields))
    return sorted(found, key=lambda one: one.t_sched)


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    meta = meta_of(STAGES, workload={**meta_of(STAGES).workload, "class_objectives": OBJECTIVES})
    return summarise(load_run(write_run(tmp_path_factory.mktemp("run") / "run", meta, requests())))


@pytest.fixture(scope="module")
def classes(summary: RunSummary) -> TextTable:
    table = class_table([summary])
    assert table is not None
    return table


def test_a_class_in_the_mix_stands_beside_itself_alone(classes: TextTable) -> None:
    assert [(*row[:2], *row[3:5]) for row in classes.rows] == [
        ("batch", NAMES[0], "300", "0"), ("batch", NAMES[2], "300", "1"),
        ("chat", NAMES[0], "300", "0"), ("chat", NAMES[1], "300", "0"),
    ]  # fmt: skip
    assert classes.headers[5:10] == ("TTFT p50", "TTFT p95", "TTFT p99", "TPOT p50", "TPOT p95")
    medians = {(row[0], row[1]): row[5] for row in classes.rows}
    for (kind, stage), seconds in SECONDS.items():
        assert medians[kind, NAMES[stage]].startswith(f"{1000 * seconds:.0f} ms")


def test_each_class_is_judged_by_its_own_objectives(classes: TextTable) -> None:
    judged = {(row[0], row[1]): row[-2:] for row in classes.rows}
    assert judged["chat", NAMES[0]] == ("missed", "TTFT p95 ≤ 250 ms: 0 %")
    assert judged["chat", NAMES[1]] == ("met", "TTFT p95 ≤ 250 ms: 100 %")
    assert judged["batch", NAMES[0]] == ("met", "TTFT p95 ≤ 2.00 s: 100 %")
    assert judged["batch", NAMES[2]][1] == "TTFT p95 ≤ 2.00 s: 99.7 %", "a failure is no good request"


def test_a_class_that_misses_its_objective_is_a_missed_objective_of_the_report(summary: RunSummary) -> None:
    assert summary.objectives == ()
    assert reported([summary]).objectives == "missed"
    alone = replace(summary, stages=summary.stages[1:])
    assert reported([alone]).objectives == "met"


def of_class(*judgements: Judgement | None) -> EngineRuns:
    """A repeat for each, with a class `chat` that was judged so, or without it."""
    metrics = dict.fromkeys(BY_NAME, EMPTY)
    views = [(ClassView("chat", 400, 0, metrics, None, (each,)),) if each is not None else () for each in judgements]
    return EngineRuns("a", tuple(run("a", [view(20, {}, classes=each)], k) for k, each in enumerate(views)))


def test_repeats_of_a_class_are_judged_together() -> None:
    """96.6 % of 400 is not enough evidence for 95 %; four times that is, unless a fifth repeat had no request of it."""
    objective = Objective("ttft", 0.95, 0.5)
    once = judged(objective, 0.966, 400)
    assert [each.answer for each in judge_class(of_class(once), "20 users", "chat")] == ["not enough evidence"]
    four = of_class(*[once] * 4)
    assert [each.answer for each in judge_class(four, "20 users", "chat")] == ["met"]
    assert reported(four.runs).objectives == "met"
    table = class_table(four.runs)
    assert table is not None
    assert table.rows[0][-2:] == ("met", "TTFT p95 ≤ 500 ms: 96.6 %")
    (lacking,) = judge_class(of_class(*[once] * 4, None), "20 users", "chat")
    assert (lacking.answer, lacking.share.why) == ("not enough evidence", "no request in the window of 1 of 5 runs")


def test_a_class_of_which_nothing_was_asked_is_not_passed_over(tmp_path: Path) -> None:
    """Of the mix the server answered chat alone; where chat is alone, no batch was to be asked."""
    meta = meta_of(STAGES, workload={**meta_of(STAGES).workload, "class_objectives": OBJECTIVES})
    chat = [one for one in requests() if one.request_class == "chat"]
    summary = summarise(load_run(write_run(tmp_path / "run", meta, chat)))
    answers = {
        (stage.label, view.name): [judgement.answer for judgement in view.judgements]
        for stage in summary.stages
        for view in stage.classes
    }
    assert answers == {
        (NAMES[0], "batch"): ["not enough evidence"], (NAMES[0], "chat"): ["missed"],
        (NAMES[1], "chat"): ["met"],
        (NAMES[2], "batch"): ["not enough evidence"],
    }  # fmt: skip


def test_goodput_counts_what_met_the_objectives_of_the_class(summary: RunSummary) -> None:
    goodput = {(view.name, stage.label): view.goodput for stage in summary.stages for view in stage.classes}
    expected = {("chat", NAMES[0]): 0, ("chat", NAMES[1]): 300 / 7, ("batch", NAMES[2]): 299 / 7}
    for place, value in expected.items():
        found = goodput[place]
        assert found is not None
        assert found.value == pytest.approx(value)


def test_what_a_class_loses_in_the_mix_is_a_sentence(summary: RunSummary) -> None:
    batch, chat = class_sentences([summary])
    assert chat.startswith(f"fake, chat at {NAMES[0]}, compared with {NAMES[1]}: TTFT p95 3.0× (300 ms")
    assert f"batch at {NAMES[0]}, compared with {NAMES[2]}: TTFT p95 1.0" in batch
    assert "TPOT p95 1.0" in chat


def test_page_markdown_and_terminal_show_them(summary: RunSummary) -> None:
    report = reported([summary])
    page = html.unescape(re.sub(r"<(?!/?t[dr]|/?section|h2)[^>]*>", "", render(report)))
    (section,) = re.findall(r"<section>\s*<h2 id=\"classes\">.*?</section>", page, re.DOTALL)
    assert section.count("<tr") == 5
    for text in (section, printed(report, 200), markdown(report)):
        assert all(sentence in re.sub(r"\s+", " ", text) for sentence in class_sentences([summary]))
        assert re.search(r"300 ms.*800 ms|800 ms.*300 ms", text, re.DOTALL)
        assert "TTFT p95 ≤ 2.00 s: 99.7 %" in text


def test_a_run_without_classes_has_no_such_section(tmp_path: Path) -> None:
    plain = [record(k, 2 * SECOND + k * 10 * MS) for k in range(100)]
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stages_of((1,), 10.0)), plain)))
    assert class_table([summary]) is None
    assert "Classes of requests" not in render(reported([summary]))
