"""What runs next follows from the scores alone."""

from collections.abc import Callable

import pytest

from enginebench.analysis.answer import TuneOutcome
from enginebench.studies.tune.confirmation import LOOKS
from enginebench.studies.tune.course import Course

NAMES = ["default", "a", "b", "c"]
SPEEDS = {"default": 10.0, "a": 10.2, "b": 13.0, "c": 4.0}
Score = Callable[[str, int], float | None]


class Stopped(Exception):
    pass


def play(score: Score, stop: int = 1000) -> tuple[Course, list[str]]:
    """Return the course, and the variants that ran: "3 a" in round 3. It is stopped after some runs."""
    ran: list[str] = []

    def scored(number: int, name: str) -> float | None:
        if len(ran) == stop:
            raise Stopped
        ran.append(f"{number} {name}")
        return score(name, number)

    course = Course("default", "seed", scored)
    try:
        course.enter(NAMES[1:])
        course.run()
    except Stopped:
        pass
    return course, ran


def noisy(name: str, number: int) -> float:
    return SPEEDS[name] * (1 + 0.02 * ((7 * number + len(name)) % 5 - 2) / 2)


def test_the_winner_is_confirmed_in_fresh_rounds() -> None:
    course, ran = play(noisy)
    assert course.confirmation.outcome is TuneOutcome.CONFIRMED
    assert course.winner == "b"
    assert course.confirmation.ratio.value == pytest.approx(1.3, rel=0.05)
    assert len(course.pairs) == course.confirmation.ratio.n == LOOKS[0]
    assert {run.split()[1] for run in ran[-2 * LOOKS[0] :]} == {"b", "default"}
    assert course.rounds == len(course.race) + len(course.pairs)


def test_the_order_within_rounds_is_random() -> None:
    _, ran = play(noisy)
    assert {run.split()[1] for run in ran[-2 * LOOKS[0] :: 2]} == {"b", "default"}


def test_a_default_that_leads_needs_no_confirmation() -> None:
    course, _ = play(lambda name, number: noisy(name, number) * (2 if name == "default" else 1))
    assert (course.confirmation.outcome, course.left, course.winner) == (TuneOutcome.NONE, ["default"], "")
    assert course.pairs == []


def test_a_winner_that_fails_in_the_confirmation_never_wins() -> None:
    course, _ = play(lambda name, number: None if name == "b" and number > 7 else noisy(name, number))
    assert course.failed == {"b"}
    assert course.left in (["default"], ["a"])
    assert course.confirmation.outcome is not TuneOutcome.OPEN


def test_a_course_that_was_stopped_goes_on_the_same_way() -> None:
    _, whole = play(noisy)
    for stop in range(len(whole)):
        assert play(noisy, stop=stop)[1] == whole[:stop]


def test_a_batch_has_its_scores_relative_to_the_default() -> None:
    course = Course("default", "seed", lambda number, name: {"default": 2.0, "a": 4.0}.get(name))
    assert course.enter(["a", "b", "a"]) == [pytest.approx(0.693, abs=0.001), None, pytest.approx(0.693, abs=0.001)]
    assert course.variants == ["default", "a", "b"]
