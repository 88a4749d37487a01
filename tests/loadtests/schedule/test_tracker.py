"""What one process knows of its users and requests: of the stage that is on, and of the window from its boundaries."""

from dataclasses import replace

import pytest

from enginebench.records.load import Users
from enginebench.records.request import RequestRecord
from enginebench.records.stage import Extent, Stage, StagePlan
from loadtests.harness.schedule import tracker as module
from loadtests.harness.schedule.control import StageProgress
from loadtests.harness.schedule.tracker import StageTracker
from tests.support.records import record

STAGE = Stage(0, StagePlan(Users(2), Extent(1.0), Extent(5.0)), 0)
WINDOW = replace(STAGE, steady_start=100)
HOLD = replace(WINDOW, steady_end=200)


def request(number: int, at: int = 0, user: int | None = None) -> RequestRecord:
    return record(number, t_sched=at, user=user)


def tracker_in(stage: Stage) -> StageTracker:
    tracker = StageTracker()
    tracker.enter(stage)
    return tracker


def test_before_the_first_stage_there_is_nothing_to_report() -> None:
    tracker = StageTracker()
    assert tracker.progress() == StageProgress(-1, 0)
    assert not tracker.waits_for_requests


def test_users_are_served_by_their_first_answer_of_the_stage() -> None:
    tracker = tracker_in(STAGE)
    tracker.user_started(1)
    tracker.user_started(2)
    tracker.request_scheduled(request(1, 10))
    tracker.request_scheduled(request(2, 11))
    tracker.request_ended(request(1, user=1))
    tracker.request_scheduled(request(3, 20))
    tracker.request_ended(request(3, user=1))
    assert tracker.progress() == StageProgress(0, 0, users=2, served=1, answered=2)
    tracker.enter(replace(STAGE, index=1))
    assert tracker.progress() == StageProgress(1, 0, users=2, served=0, answered=0), "every stage serves them anew"


def test_a_user_that_left_is_neither_there_nor_served() -> None:
    tracker = tracker_in(STAGE)
    tracker.user_started(1)
    tracker.request_scheduled(request(1, 10))
    tracker.user_stopped(1)
    tracker.request_ended(request(1, user=1))
    assert tracker.progress() == StageProgress(0, 0, users=0, served=0, answered=1)


def test_the_window_counts_what_is_scheduled_in_it_also_before_the_news_of_it_came() -> None:
    tracker = tracker_in(STAGE)
    for number, at in enumerate((50, 99, 100, 130)):
        tracker.request_scheduled(request(number, at))
    assert tracker.progress().scheduled == 0
    tracker.enter(WINDOW)
    assert (tracker.progress().scheduled, tracker.progress().last_scheduled) == (2, 130)
    tracker.request_scheduled(request(9, 160))
    tracker.request_scheduled(request(10, 150))
    assert (tracker.progress().scheduled, tracker.progress().last_scheduled) == (4, 160)


def test_outstanding_is_what_was_scheduled_in_the_window_and_has_no_answer() -> None:
    tracker = tracker_in(STAGE)
    for number, at in enumerate((99, 100, 199, 200)):
        tracker.request_scheduled(request(number, at))
    tracker.enter(WINDOW)
    assert tracker.progress().outstanding == 0, "the window's end is not known yet"
    tracker.enter(HOLD)
    assert (tracker.progress().boundary, tracker.progress().outstanding) == (200, 2)
    tracker.request_ended(request(1, user=1))
    assert tracker.progress().outstanding == 1
    tracker.request_ended(request(0, user=1))
    assert tracker.progress().outstanding == 1, "that one was scheduled before the window"
    tracker.request_ended(request(2, user=1))
    assert tracker.progress().outstanding == 0


def test_requests_of_the_stage_before_count_in_no_later_window() -> None:
    tracker = tracker_in(HOLD)
    tracker.request_scheduled(request(1, 150))
    tracker.enter(replace(STAGE, index=1, start=300))
    tracker.enter(replace(STAGE, index=1, start=300, steady_start=400))
    assert (tracker.progress().scheduled, tracker.progress().last_scheduled) == (0, 0)


def test_a_boundary_that_comes_late_still_finds_the_requests_since() -> None:
    tracker = tracker_in(STAGE)
    late, requests = module.RECENT, 50
    for number in range(requests):
        tracker.request_scheduled(request(number, 100 + number * late // requests))
    tracker.enter(WINDOW)
    assert tracker.progress().scheduled == requests
    for number in range(requests, 1000):
        tracker.request_scheduled(request(number, 100 + number * late // requests))
    assert len(tracker._recent) == requests + 1, "those of before are forgotten"


@pytest.mark.parametrize(
    ("stage", "waits"),
    [
        pytest.param(STAGE, True, id="a warm-up: until all users are served"),
        pytest.param(WINDOW, False, id="a window in seconds"),
        pytest.param(replace(WINDOW, plan=replace(WINDOW.plan, window=Extent(5, "requests"))), True, id="in requests"),
        pytest.param(HOLD, True, id="a hold: until the window is answered"),
    ],
)
def test_what_a_boundary_waits_for(stage: Stage, waits: bool) -> None:
    assert tracker_in(stage).waits_for_requests is waits
