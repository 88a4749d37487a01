"""What runs next follows from the records alone."""

from collections.abc import Callable, Sequence

import pytest

from enginebench.analysis.answer import TuneOutcome
from enginebench.studies.tune.course import Course, course_of
from enginebench.studies.tune.folder import RunRecord

NAMES = ["default", "a", "b", "c"]
SPEEDS = {"default": 10.0, "a": 10.2, "b": 13.0, "c": 4.0}


def play(score: Callable[[str, int], float | None], batches: Sequence[int] = ()) -> tuple[Course, list[RunRecord]]:
    """Run to the end, and check that each step could have been the first of a new process."""
    records: list[RunRecord] = []
    while (course := course_of(records, NAMES, batches, 1)).following:
        name = course.following[0]
        value = score(name, course.round)
        reason = None if value is not None else "it hung."
        fresh = not course.in_race
        records.append(RunRecord(round=course.round, variant=name, score=value, reason=reason, fresh=fresh))
        assert len(records) < 100
    return course, records


def noisy(name: str, number: int) -> float:
    return SPEEDS[name] * (1 + 0.02 * ((7 * number + len(name)) % 5 - 2) / 2)


def test_the_winner_is_confirmed_in_fresh_rounds() -> None:
    course, records = play(noisy)
    assert course.confirmation.outcome is TuneOutcome.CONFIRMED
    assert course.left == ("b",)
    assert course.confirmation.ratio.value == pytest.approx(1.3, rel=0.05)
    fresh = [record for record in records if record.fresh]
    assert {record.variant for record in fresh} == {"b", "default"}
    assert len(fresh) == 2 * course.confirmation.ratio.n
    assert not {record.round for record in fresh} & {record.round for record in records if not record.fresh}


def test_pairs_of_each_look_may_be_chosen() -> None:
    _, records = play(noisy)
    race = [record for record in records if not record.fresh]
    assert [course_of(race, NAMES, (), 1, pairs).confirmation.more for pairs in (0, 20)] == [6, 20]


def test_the_order_within_rounds_is_random() -> None:
    _, records = play(noisy)
    firsts = {record.round: record.variant for record in reversed(records) if record.fresh}
    assert set(firsts.values()) == {"b", "default"}


def test_a_default_that_leads_needs_no_confirmation() -> None:
    course, records = play(lambda name, number: noisy(name, number) * (2 if name == "default" else 1))
    assert (course.confirmation.outcome, course.left) == (TuneOutcome.NONE, ("default",))
    assert not any(record.fresh for record in records)


def test_a_variant_that_fails_is_dropped_with_its_reason() -> None:
    course, records = play(lambda name, number: None if name == "b" else noisy(name, number))
    assert course.failed == {"b": "it hung."}
    assert [record.variant for record in records].count("b") == 1
    assert course.left == ("default",) or course.left == ("a",)


def test_a_winner_that_fails_in_the_confirmation_never_wins() -> None:
    course, _ = play(lambda name, number: None if name == "b" and number > 6 else noisy(name, number))
    assert "b" in course.failed
    assert course.left != ("b",)


def test_a_default_that_fails_ends_the_race() -> None:
    course, records = play(lambda name, number: None if name == "default" else noisy(name, number))
    assert (course.failed, course.following) == ({"default": "it hung."}, ())
    assert len(records) == 4


def test_proposals_run_in_batches_next_to_the_default() -> None:
    course, records = play(noisy, batches=[2, 1])
    assert {record.variant for record in records if record.round == 0} == {"default", "a", "b"}
    assert {record.variant for record in records if record.round == 1} == {"default", "c"}
    assert course.left == ("b",)


def test_an_interrupted_round_is_completed() -> None:
    _, records = play(noisy)
    for cut in range(len(records)):
        before = course_of(records[:cut], NAMES, (), 1)
        assert (before.round, before.following[0]) == (records[cut].round, records[cut].variant)
