"""When stages warm up, are measured, are held and end: the control driven by hand, a report at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginebench.records.load import TRACE, Rate, Users
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from loadtests.harness.schedule.control import LEAD, StageControl, StageProgress, together

S = SECOND
TIMED = StagePlan(Users(4), Extent(2.0), Extent(8.0), bound=20.0)
COUNTED = StagePlan(Users(4), Extent(10, "requests"), Extent(100, "requests"), bound=20.0)
ALL_SERVED = StageProgress(stage=0, boundary=0, users=4, served=4, answered=10)


def begun(*plan: StagePlan) -> StageControl:
    control = StageControl(plan)
    assert control.current is None
    control.begin(0)
    return control


def in_window(plan: StagePlan = TIMED, at: int = 2 * S) -> StageControl:
    control = begun(plan)
    assert control.update(at, ALL_SERVED)
    assert control.stages[0].steady_start == at
    return control


def in_hold(plan: StagePlan = TIMED) -> StageControl:
    control = in_window(plan)
    assert control.update(10 * S, replace(ALL_SERVED, boundary=2 * S))
    assert control.stages[0].steady_end == 10 * S
    return control


def test_a_stage_in_time_goes_through_warm_up_window_and_hold() -> None:
    control = begun(TIMED)
    assert not control.update(2 * S - 1, ALL_SERVED)
    assert control.update(2 * S, ALL_SERVED)
    assert not control.update(10 * S - 1, replace(ALL_SERVED, boundary=2 * S))
    assert control.update(10 * S, replace(ALL_SERVED, boundary=2 * S, outstanding=3))
    held = replace(ALL_SERVED, boundary=10 * S, outstanding=3)
    assert not control.update(11 * S, held)
    assert control.update(12 * S, replace(held, outstanding=0))
    assert control.stages == [Stage(0, TIMED, 0, 2 * S, 10 * S, 12 * S)]
    assert control.over
    assert not control.update(13 * S, held), "after the last stage nothing changes"


def test_a_window_in_time_has_its_planned_length_however_late_the_control_looks() -> None:
    control = in_window(at=3 * S)
    control.update(15 * S, replace(ALL_SERVED, boundary=3 * S))
    assert control.stages[0].steady_end == 11 * S


@pytest.mark.parametrize(
    ("plan", "reports", "unserved"),
    [
        pytest.param(TIMED, [(5, 4, 3), (6, 3, 3), (7, 4, 4)], 0, id="every user has had an answer, and has started"),
        pytest.param(
            replace(TIMED, load=Users(2)), [(3, 4, 2), (4, 2, 2)], 0, id="users of the stage before have left"
        ),
        pytest.param(TIMED, [(19, 4, 1), (20, 4, 1)], 3, id="its bound"),
        pytest.param(replace(TIMED, warm_up=Extent(30.0)), [(29, 4, 1), (30, 4, 1)], 3, id="not before its own length"),
    ],
)
def test_the_warm_up_is_prolonged_until(plan: StagePlan, reports: list[tuple[int, int, int]], unserved: int) -> None:
    """The last of these reports ends it: seconds, users, and how many of them were served."""
    control = begun(plan)
    changed = [control.update(at * S, replace(ALL_SERVED, users=users, served=served)) for at, users, served in reports]
    assert changed == [False] * (len(reports) - 1) + [True]
    assert (control.stages[0].steady_start, control.stages[0].unserved_users) == (reports[-1][0] * S, unserved)


OPEN = StagePlan(Rate(8.0), Extent(2.0), Extent(8.0), bound=20.0)


def test_an_open_stage_begins_at_an_instant_known_ahead_once_all_processes_are_ready() -> None:
    control = begun(OPEN, OPEN)
    assert (control.begun, control.next_boundary()) == ((), None)
    assert not control.update(9 * S, StageProgress(stage=0, boundary=0))
    assert control.update(10 * S, StageProgress(stage=0, boundary=0, ready=True))
    start = 10 * S + LEAD
    assert control.begun == (Stage(0, OPEN, start),)
    assert not control.update(start + 2 * S - 1, StageProgress(stage=0, boundary=0, ready=True))
    late = start + 2 * S + 7_000_000  # the control looks a little later
    assert control.update(late, StageProgress(stage=0, boundary=0, ready=True))
    assert control.stages[0].steady_start == start + 2 * S, "without users to be served, and to the nanosecond"
    assert control.update(start + 11 * S, StageProgress(stage=0, boundary=start + 2 * S, ready=True))
    assert control.stages[0].steady_end == start + 10 * S
    assert control.update(start + 12 * S, StageProgress(stage=0, boundary=start + 10 * S, ready=True))
    assert control.stages[0].end == control.stages[1].start == start + 12 * S + LEAD, "arrivals go on until the next"


@pytest.mark.parametrize(
    ("at", "ends"),
    [
        pytest.param(None, [], id="before the processes were ready"),
        pytest.param(1 * S, [1 * S + LEAD], id="between the decision and the start"),
    ],
)
def test_an_open_run_can_be_stopped_before_it_has_begun(at: int | None, ends: list[int]) -> None:
    control = begun(OPEN)
    if at is not None:
        control.update(at, StageProgress(stage=0, boundary=0, ready=True))
    control.stop(1 * S + 1)
    assert control.over
    assert [stage.end for stage in control.begun] == ends


def test_a_stage_that_was_announced_and_never_began_leaves_no_trace() -> None:
    control = begun(OPEN, OPEN)
    control.update(0, StageProgress(stage=0, boundary=0, ready=True))
    for now, known in ((LEAD + 2 * S, 0), (LEAD + 10 * S, LEAD + 2 * S), (LEAD + 11 * S, LEAD + 10 * S)):
        control.update(now, StageProgress(stage=0, boundary=known, ready=True))
    assert len(control.stages) == 2
    control.stop(LEAD + 11 * S + 5)
    assert [stage.end for stage in control.begun] == [LEAD + 11 * S + 5]


def test_the_hold_ends_at_its_bound_and_says_how_many_requests_were_unanswered() -> None:
    control = in_hold()
    held = replace(ALL_SERVED, boundary=10 * S, outstanding=2)
    assert not control.update(30 * S - 1, held)
    assert control.update(30 * S, held)
    assert (control.stages[0].end, control.stages[0].unanswered) == (30 * S, 2)


def test_a_report_from_before_a_boundary_says_nothing_about_what_comes_after_it() -> None:
    control = in_hold()
    assert not control.update(11 * S, replace(ALL_SERVED, boundary=2 * S, outstanding=0)), "it still counts the window"
    assert control.update(11 * S, replace(ALL_SERVED, boundary=10 * S, outstanding=0))


def test_a_report_on_another_stage_is_ignored() -> None:
    control = begun(TIMED, TIMED)
    assert not control.update(5 * S, replace(ALL_SERVED, stage=1))
    assert not control.update(5 * S, replace(ALL_SERVED, stage=-1))


def test_a_window_in_requests_ends_right_after_the_last_of_them_was_scheduled() -> None:
    control = begun(COUNTED)
    assert not control.update(1 * S, replace(ALL_SERVED, answered=9))
    assert control.update(2 * S, ALL_SERVED)
    counted = replace(ALL_SERVED, boundary=2 * S, scheduled=100, last_scheduled=7 * S)
    assert not control.update(7 * S, replace(counted, boundary=0)), "that report counts another interval"
    assert not control.update(7 * S, replace(counted, scheduled=99))
    assert control.update(8 * S, counted)
    assert control.stages[0].steady_end == 7 * S + 1, "the hundredth is inside, whatever came after it is not"


def test_a_stage_of_recorded_sessions_lasts_until_all_was_played_in_every_process() -> None:
    """Not until so many requests were scheduled: retries come on top, and a lost process sends none of its share."""
    control = begun(StagePlan(Rate(1.0, TRACE), Extent(0.0), Extent(6, "requests"), bound=20.0))
    control.update(S, StageProgress(stage=0, boundary=0, ready=True))
    start = S + LEAD
    assert control.update(start, StageProgress(stage=0, boundary=0, ready=True))
    on = StageProgress(stage=0, boundary=start, scheduled=9, last_scheduled=8 * S)
    assert not control.update(9 * S, on)
    assert not control.update(9 * S, together([replace(on, played=True), on]))
    assert control.update(9 * S, together([replace(on, played=True), replace(on, played=True, last_scheduled=7 * S)]))
    assert (control.stages[0].steady_start, control.stages[0].steady_end) == (start, 8 * S + 1)


def test_a_stage_appended_while_the_last_one_is_on_follows_it_and_one_after_the_end_does_not() -> None:
    control = in_hold()
    control.plan.append(replace(TIMED, name="probe 2"))
    control.update(12 * S, replace(ALL_SERVED, boundary=10 * S))
    assert control.current == Stage(1, replace(TIMED, name="probe 2"), 12 * S)
    control.stop(13 * S)
    control.plan.append(TIMED)
    assert not control.update(20 * S, replace(ALL_SERVED, stage=1))
    assert [stage.end for stage in control.stages] == [12 * S, 13 * S]


@pytest.mark.parametrize(
    ("control", "at", "expected"),
    [
        pytest.param(begun(TIMED), 1, (None, None, 1), id="in the warm-up: nothing was measured"),
        pytest.param(in_window(), 5, (2, None, 5), id="in the window, which was not measured for as long as planned"),
        pytest.param(in_hold(), 11, (2, 10, 11), id="in the hold: the window is whole"),
    ],
)
def test_a_run_that_is_stopped_cuts_the_stage_that_is_on(
    control: StageControl, at: int, expected: tuple[int | None, ...]
) -> None:
    control.stop(at * S)
    (stage,) = control.stages
    boundaries = (stage.steady_start, stage.steady_end, stage.end)
    assert boundaries == tuple(None if second is None else second * S for second in expected)
    assert control.over


@pytest.mark.parametrize(
    ("control", "at"),
    [
        pytest.param(begun(TIMED), 2 * S, id="a warm-up in seconds"),
        pytest.param(begun(COUNTED), 0, id="a warm-up in requests: any time"),
        pytest.param(in_window(), 10 * S, id="a window in seconds"),
        pytest.param(in_window(COUNTED), None, id="a window in requests: when they are scheduled"),
        pytest.param(in_hold(), 30 * S, id="a hold: its bound"),
    ],
)
def test_the_next_boundary(control: StageControl, at: int | None) -> None:
    assert control.next_boundary() == at
    control.stop(50 * S)
    assert control.next_boundary() is None


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param([], {"stage": -1}, id="no process yet"),
        pytest.param(
            [StageProgress(1, 5, 2, 2, 30, 20, 1, 900), StageProgress(1, 5, 3, 1, 10, 15, 2, 700)],
            {"stage": 1, "boundary": 5, "users": 5, "served": 3, "answered": 40, "scheduled": 35, "outstanding": 3,
             "last_scheduled": 900},
            id="sums, and the latest request",
        ),
        pytest.param(
            [StageProgress(1, 5, 2), StageProgress(0, 9, 3)], {"stage": 0, "boundary": 5, "users": 5},
            id="as far as the one that lags behind has got",
        ),
        pytest.param(
            [StageProgress(1, 5, ready=True), StageProgress(1, 5)], {"stage": 1, "boundary": 5},
            id="not ready before each of them is",
        ),
    ],
)  # fmt: skip
def test_reports_of_several_processes_are_added_up(reports: list[StageProgress], expected: dict[str, Any]) -> None:
    assert together(reports) == StageProgress(**{"stage": 0, "boundary": 0} | expected)
