"""The cold start of a server and its phases, from a run's events, what its server told, and the first request."""

from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.frame import frame_of
from enginebench.analysis.reports import report_document
from enginebench.analysis.sections.start import start
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.analysis.write.cells import show
from enginebench.analysis.write.sentence import sentence
from enginebench.records.run import LISTENING, READY, STARTED, UNCACHED, RunEvent
from enginebench.records.stage import SECOND
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run

OURS = {"server": 1.0, "process": 0.5, "imports": 2.0, "weights": 3.0, "compile": 1.0, "warm_up": 0.4}
READY_AFTER = 8.0  # seconds
PHASES = ("server", "process", "imports", "load", "weights", "compile", "warm_up", "answer")


def run_of(
    folder: Path, label: str = "fake", users: int = 1, startup: Any = OURS, ready: float = READY_AFTER
) -> RunSummary:
    """A server is launched 20 s before the run; the first of 40 requests gets its token after 100 ms."""
    stages = stages_of((users, 4), 5.0)
    launched = -20 * SECOND
    instants = {STARTED: 0.0, LISTENING: 2.0, READY: ready, UNCACHED: -0.1}
    events = tuple(RunEvent(launched + int(after * SECOND), what) for what, after in instants.items())
    records = [record(k, k * SECOND // 4, stage=k // 20) for k in range(40)]
    meta = meta_of(stages, label, startup=startup, events=events, scenario="cold_start")
    return summarise(load_run(write_run(folder, meta, records)))


@pytest.mark.parametrize(
    ("startup", "users", "phases", "cold_start"),
    [
        pytest.param(OURS, 1, (1.0, 0.5, 2.0, None, 3.0, 1.0, 0.4, 0.1), 8.1, id="our server tells its phases"),
        pytest.param({}, 1, (None, 2.0, None, 6.0, None, None, None, 0.1), 8.1, id="another's are seen from outside"),
        pytest.param(OURS, 2, (1.0, 0.5, 2.0, None, 3.0, 1.0, 0.4, None), None, id="two users at once"),
    ],
)
def test_the_first_stage_has_the_cold_start_and_its_phases(
    tmp_path: Path, startup: Any, users: int, phases: tuple[float | None, ...], cold_start: float | None
) -> None:
    summary = run_of(tmp_path, users=users, startup=startup)
    first, second = summary.stages
    assert tuple(first.value(f"start_{phase}") for phase in PHASES) == pytest.approx(phases)
    assert first.value("cold_start") == pytest.approx(cold_start)
    assert second.value("cold_start") is None
    assert summary.uncached


def test_the_report_answers_with_the_fastest_start(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / "slow", "slow"), run_of(tmp_path / "fast", "fast", startup={}, ready=4.0)]
    frame = frame_of(runs)
    document = report_document(frame)
    assert sentence(document.answer) == ("From the launch to the first answer it takes fast 4.10 s and slow 8.10 s.")
    assert document.candidates is not None
    titles = [column.title for column in document.candidates.columns]
    rows = {show(row[0]).text: dict(zip(titles, map(show, row), strict=True)) for row in document.candidates.rows}
    assert [rows["slow"][title].text for title in ("cold start", "weights", "load")] == ["8.10 s", "3.00 s", ""]
    assert rows["fast"]["file cache"].text == "cold"
    assert not start(frame).blocks  # the first screen has the table
    stored = document.frame.filter(metric="cold_start", engine="slow").drop_nulls("value")["value"].to_list()
    assert stored == pytest.approx([8.1, 8.1])  # of the run, and of all runs of the engine
