"""Where a stage's steady window begins and ends, also of runs that were killed."""

import dataclasses
from pathlib import Path

import pytest

from enginebench.analysis.data.run_data import NotARun, load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Users
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from enginebench.records.telemetry import TelemetrySample
from tests.support.analysis.one_stage import STAGES, stage_of
from tests.support.analysis.synthetic import meta_of, plan_of, record, sent_line, stages_of, write_run


def test_a_killed_run_is_measured_as_far_as_it_got(tmp_path: Path) -> None:
    """Three stages of 10 s; the last record ends at 15 s, in the middle of the second window."""
    records = [record(k, k * SECOND // 4) for k in range(60)]
    first, second, third = stages_of((1, 2, 4), 10.0)
    second = dataclasses.replace(second, steady_end=None, end=None)
    meta = dataclasses.replace(meta_of((first, second)), plan=(first.plan, second.plan, third.plan))
    summary = summarise(load_run(write_run(tmp_path / "run", meta, records)))
    assert [(stage.label, stage.complete) for stage in summary.stages] == [("1 user", True), ("2 users", False)]
    assert summary.stages[1].end == pytest.approx(14.89)
    assert summary.stages[1].value("throughput") == pytest.approx(12, rel=0.05)
    (finding,) = (f for f in summary.findings if f.kind == "unfinished")
    assert "stopped before it reached 4 users and during 2 users" in finding.evidence


def test_a_run_that_was_stopped_is_measured_up_to_there(tmp_path: Path) -> None:
    """What it wrote afterwards, while it ended, is no part of the window: live views end it at the same instant."""
    (stage,) = stages_of((2,), 20.0)
    meta = meta_of((dataclasses.replace(stage, steady_end=None, end=14 * SECOND),))
    records = [record(k, k * SECOND // 4) for k in range(60)]
    (view,) = summarise(load_run(write_run(tmp_path / "run", meta, records))).stages
    assert (view.end, view.complete) == (14.0, False)


@pytest.mark.parametrize(
    ("seconds", "counted"),
    [
        pytest.param(20.0, [("1 user", 0), ("2 users", 2)], id="a longer stage takes the place of a brief one"),
        pytest.param(0.5, [("1 user", 0), ("2 users", 1)], id="but not one that was stopped before it was as long"),
    ],
)
def test_of_a_load_that_was_looked_at_briefly_the_longest_window_counts(
    tmp_path: Path, seconds: float, counted: list[tuple[str, int]]
) -> None:
    stages: list[Stage] = []
    records: list[RequestRecord] = []
    for index, (users, at) in enumerate(((1, 0), (2, 2), (2, 4))):
        plan = StagePlan(Users(users), Extent(0.0), Extent(20.0 if index == 2 else 2.0), brief=index < 2)
        stages.append(Stage(index, plan, at * SECOND, at * SECOND))
        end = round((at + (seconds if index == 2 else 2)) * SECOND)
        stages[-1] = dataclasses.replace(stages[-1], steady_end=None if seconds == 0.5 and index == 2 else end, end=end)
        records += [
            record(len(records) + k, t, stage=index)
            for k, t in enumerate(range(at * SECOND, end - SECOND // 5, SECOND // 5))
        ]
    summary = summarise(load_run(write_run(tmp_path / "run", meta_of(tuple(stages)), records)))
    assert [(stage.label, stage.index) for stage in summary.stages] == counted
    assert not any("nothing was measured" in finding.evidence for finding in summary.findings)


def test_the_window_is_the_recorded_one(tmp_path: Path) -> None:
    """A warm-up that was prolonged to 5 s, a window of ten requests that took 3 s."""
    plan = StagePlan(Users(1), Extent(2.0), Extent(10, "requests"))
    stage = stage_of(
        tmp_path,
        [record(k, k * SECOND // 2) for k in range(20)],
        stages=(Stage(0, plan, 0, 5 * SECOND, 8 * SECOND, 9 * SECOND),),
    )
    assert (stage.start, stage.end, stage.requests, stage.complete) == (5.0, 8.0, 6, True)


def test_a_window_without_a_known_length_is_measured_to_the_last_instant(tmp_path: Path) -> None:
    """A killed run may leave a plan of a day behind."""
    records = [record(k, k * SECOND // 10) for k in range(100)]
    day = Stage(0, plan_of(1, 0.0, 24 * 3600.0), 0, 0)
    stage = summarise(load_run(write_run(tmp_path / "run", meta_of((day,)), records))).stages[0]
    assert stage.end == pytest.approx(10.04)
    assert stage.value("throughput") == pytest.approx(30, rel=0.02)


def test_a_killed_process_ends_the_window_where_it_left_its_last_trace(tmp_path: Path) -> None:
    """The window is 2 s to 9 s. The process sent its last request at 6 s; its sample at 7 s is the last trace."""
    done = [record(k, k * SECOND) for k in range(6)]
    folder = write_run(tmp_path / "run", meta_of(STAGES), done, [TelemetrySample(t=7 * SECOND)])
    with (folder / "requests-0.jsonl").open("a") as file:
        file.write(sent_line(record(9, 6 * SECOND)))
    summary = summarise(load_run(folder))
    stage = summary.stages[0]
    assert (stage.end, stage.complete, stage.cut_off, stage.requests) == (7.0, False, 1, 5)
    lost = [finding for finding in summary.findings if finding.kind == "load_missing"]
    assert lost[0].evidence.startswith("the load generator wrote its last record 7.00 s after the start")


def test_a_run_that_was_stopped_in_its_warm_up_gets_a_sentence(tmp_path: Path) -> None:
    begun = dataclasses.replace(stages_of((1,), 100.0)[0], steady_start=None, steady_end=None, end=None)
    folder = write_run(tmp_path / "run", meta_of((begun,)), [record(0, SECOND)])
    with pytest.raises(NotARun, match="stopped before its first steady window"):
        summarise(load_run(folder))
