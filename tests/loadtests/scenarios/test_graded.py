"""The scenario `graded`: an engine with a broken batch path is caught, a sound one is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.document import Table
from enginebench.analysis.frame import frame_of
from enginebench.analysis.sections.answers import answers
from enginebench.analysis.sections.candidates import by_load
from enginebench.analysis.summary.run_summary import summarise
from enginebench.analysis.write.cells import show
from tests.support.loadtests.locust_process import ROOT, start
from tests.support.servers.served import running

SERVER = ROOT / "tests/support/servers/graded_engine.py"


@pytest.mark.parametrize(("batch", "worse"), [("sound", False), ("broken", True)])
def test_an_engine_that_gets_worse_under_load_is_caught(tmp_path: Path, batch: str, worse: bool) -> None:
    """The engine cannot answer 40 of the 200 questions. With 16 users, nearly all requests run together with others."""
    with running([sys.executable, str(SERVER), batch]) as server:
        locust = start(server, tmp_path, scenario=ROOT / "loadtests/graded.py").finish()
    summary = summarise(load_run(locust.run))
    graded = {
        finding.stage.label: finding
        for finding in summary.findings
        if finding.kind == "graded_under_load" and finding.stage
    }
    alone, loaded = graded["1 user"], graded["16 users"]
    assert (alone.severity, alone.evidence) == ("note", "160 of 200 graded answers were correct")
    assert loaded.severity == ("warn" if worse else "note")
    frame = frame_of([summary])
    by_user, by_sixteen = frame.graded["graded"]
    assert (by_user.correct, by_user.p) == (160, None)
    assert (by_sixteen.questions, by_sixteen.pairs, by_sixteen.alone) == (200, 200, 160)
    if worse:
        assert by_sixteen.lost > 100
        assert by_sixteen.p is not None
        assert by_sixteen.p < 1e-6
    else:
        assert (by_sixteen.lost, by_sixteen.gained, by_sixteen.p) == (0, 0, 1.0)
    (table,) = [block for block in answers(frame).blocks if isinstance(block, Table) and block.key == "graded"]
    assert [show(cell).line for cell in table.rows[0][:3]] == ["graded", "1 user", "160 of 200"]
    assert [column.title for column in by_load(frame).columns][-1] == "correct"
    assert show(by_load(frame).rows[0][-1]).text == "160 of 200"
    stored = frame.table.filter(metric="correct", statistic="lost: count", stage="16 users")["value"].to_list()
    assert stored == [by_sixteen.lost]
