"""Classes of requests in the report: each with its own objectives, and in the mix against itself alone."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from analysis.compare.winner import compare
from analysis.data.load import load_run
from analysis.report.classes import Classes, classes_of_runs
from analysis.report.page import render
from analysis.report.terminal import print_report
from analysis.summary.run_summary import RunSummary, summarise
from records.request import RequestRecord
from records.stage import SECOND
from tests.support.analysis.synthetic import FAILED, meta_of, record, stages_of, write_run

MS = SECOND // 1000
NAMES = ("20 users, mixed", "15 users, chat alone", "5 users, batch alone")
STAGES = stages_of((20, 15, 5), 10.0, names=NAMES)
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
def classes(summary: RunSummary) -> Classes:
    found = classes_of_runs([summary])
    assert found is not None
    return found


def test_a_class_in_the_mix_stands_beside_itself_alone(classes: Classes) -> None:
    assert [(row.name, row.stage, row.requests, row.failed) for row in classes.rows] == [
        ("batch", NAMES[0], 300, 0), ("batch", NAMES[2], 300, 1),
        ("chat", NAMES[0], 300, 0), ("chat", NAMES[1], 300, 0),
    ]  # fmt: skip
    assert classes.headers == (("TTFT p50", ""), ("TTFT p95", ""), ("TPOT p95", ""), ("goodput", "req/s"))
    by_place = {(row.name, row.stage): [number.value for number, _ in row.cells] for row in classes.rows}
    for (kind, stage), seconds in SECONDS.items():
        assert by_place[kind, NAMES[stage]][:2] == pytest.approx([seconds, seconds])


def test_each_class_is_judged_by_its_own_objectives(classes: Classes) -> None:
    answers = {(row.name, row.stage): (row.answer, row.attainment) for row in classes.rows}
    assert answers["chat", NAMES[0]] == ("missed", "ttft_p95=0.25: 0 %")
    assert answers["chat", NAMES[1]] == ("met", "ttft_p95=0.25: 100 %")
    assert answers["batch", NAMES[0]] == ("met", "ttft_p95=2: 100 %")
    assert answers["batch", NAMES[2]][1] == "ttft_p95=2: 99.7 %", "a failure is no good request"
    goodput = {(row.name, row.stage): row.cells[-1][0].value for row in classes.rows}
    assert goodput["chat", NAMES[0]] == 0
    assert goodput["chat", NAMES[1]] == pytest.approx(300 / 7)
    assert goodput["batch", NAMES[2]] == pytest.approx(299 / 7)


def test_what_a_class_loses_in_the_mix_is_said_in_a_sentence(classes: Classes) -> None:
    batch, chat = classes.sentences
    assert chat.startswith(f"fake, chat at {NAMES[0]}, compared with {NAMES[1]}: TTFT p95 3.00× [3.00, 3.00] (300 ms")
    assert f"batch at {NAMES[0]}, compared with {NAMES[2]}: TTFT p95 1.0" in batch
    assert "TPOT p95 1.0" in chat


def test_the_page_and_the_terminal_show_them(summary: RunSummary, classes: Classes) -> None:
    page = html.unescape(re.sub(r"<(?!/?t[dr]|/?section|h2)[^>]*>", "", render([summary], compare([summary]))))
    (section,) = re.findall(r"<section>\s*<h2 id=\"classes\">.*?</section>", page, re.DOTALL)
    file = io.StringIO()
    print_report(Console(file=file, width=200, highlight=False), [summary], compare([summary]))
    for text in (section, file.getvalue()):
        assert all(sentence in re.sub(r"\s+", " ", text) for sentence in classes.sentences)
        assert re.search(r"300 ms.*800 ms|800 ms.*300 ms", text, re.DOTALL)
    assert section.count("<tr") == 5
    assert "ttft_p95=2: 99.7 %" in section


def test_a_run_without_classes_has_no_such_section(tmp_path: Path) -> None:
    plain = [record(k, 2 * SECOND + k * 10 * MS) for k in range(100)]
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stages_of((1,), 10.0)), plain)))
    assert classes_of_runs([summary]) is None
    assert "Classes of requests" not in render([summary], compare([summary]))
