"""TTFT by turn of a conversation, in the summary of a stage and as a chart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.compare.winner import compare
from analysis.data.load import load_run
from analysis.report.page import render
from analysis.summary.run_summary import RunSummary, summarise
from records.request import RequestRecord
from records.stage import SECOND
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run

MS = SECOND // 1000
TURNS = 4
RARE = 5  # conversations with one more turn: too few for a median with an interval


def summary_of(folder: Path) -> RunSummary:
    """Forty conversations; each turn adds 100 tokens and 30 ms."""
    found: list[RequestRecord] = []
    for session in range(40):
        for turn in range(TURNS + (session < RARE)):
            at = 2 * SECOND + session * 20 * MS + turn * SECOND
            first = at + (50 + 30 * turn) * MS
            stamps = {"t_first": first, "t_first_out": first, "read_first": first, "t_last": first + 40 * MS}
            tokens = {"prompt_tokens": 100 * (turn + 1), "session": str(session), "turn": turn, "user": session}
            found.append(record(len(found), at, t_send=at, t_headers=first, t_end=first + 40 * MS, **stamps, **tokens))
    found.sort(key=lambda one: one.t_sched)
    return summarise(load_run(write_run(folder / "run", meta_of(stages_of((40,), 10.0)), found)))


def test_each_turn_with_enough_requests_has_its_median(tmp_path: Path) -> None:
    (stage,) = summary_of(tmp_path).stages
    assert [(one.turn, one.requests, one.prompt_tokens) for one in stage.turns] == [
        (1, 40, 100), (2, 40, 200), (3, 40, 300), (4, 40, 400),
    ]  # fmt: skip
    assert [one.ttft.value for one in stage.turns] == pytest.approx([0.05, 0.08, 0.11, 0.14])
    assert all(one.ttft.low is not None for one in stage.turns)


def test_the_page_has_a_chart_of_them(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    (figure,) = re.findall(r'<figure id="turns">.*?</figure>', render([summary], compare([summary])), re.DOTALL)
    assert "Median TTFT of the turns of conversations at 40 users" in figure
    assert figure.count("<tr>") == 1 + TURNS
    assert '<data value="400.0">400</data>' in figure


def test_requests_of_one_turn_are_no_conversation(tmp_path: Path) -> None:
    alone = [record(k, 2 * SECOND + k * 10 * MS, turn=0, session=str(k)) for k in range(100)]
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(stages_of((1,), 10.0)), alone)))
    assert summary.stages[0].turns == ()
    assert 'id="turns"' not in render([summary], compare([summary]))
