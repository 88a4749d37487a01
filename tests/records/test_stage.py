"""A stage knows its label and its length, and an instant belongs to the stage that is on."""

import math

import pytest

from enginebench.records.load import Burst, Profile, Rate, Segment, Users
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan, stage_at
from tests.support.records import plan


def test_a_length_is_known_beforehand_only_in_seconds() -> None:
    assert plan(seconds=30.0, warm_up=6.0).seconds == 30.0
    assert StagePlan(Users(1), Extent(10, "requests"), Extent(100, "requests")).seconds is None
    assert StagePlan(Users(1), Extent(5), Extent(100, "requests")).seconds is None


def test_an_instant_belongs_to_the_stage_that_is_on() -> None:
    stages = (Stage(0, plan(), 0, 1, 9, 10 * SECOND), Stage(1, plan(), 10 * SECOND))
    found = [stage_at(stages, t) for t in (-1, 0, 10 * SECOND - 1, 10 * SECOND, 99 * SECOND)]
    assert [stage and stage.index for stage in found] == [None, 0, 0, 1, 1], "a stage that is on has no end yet"
    assert stage_at((Stage(0, plan(), 0, 1, 9, 10),), 10) is None


RAMP, LOW = Segment(2, 6, 10), Segment(4, 4, 30)


@pytest.mark.parametrize(
    ("profile", "seconds", "expected"),
    [
        ((RAMP, LOW), 60.0, (RAMP, LOW)),
        ((RAMP, LOW), 25.0, (RAMP, Segment(4, 4, 15))),
        ((RAMP, LOW), 10.0, (RAMP,)),
        ((RAMP, LOW), 5.0, (Segment(2, 4, 5),)),
        ((LOW, Burst(50)), 30.0, (LOW,)),
        ((LOW, Burst(50)), 31.0, (LOW, Burst(50))),
        ((Segment(2, 20),), 5.0, (Segment(2, 20),)),
        ((RAMP, LOW), math.inf, (RAMP, LOW)),
        ((), 5.0, ()),
    ],
)
def test_a_stage_that_is_shorter_than_its_profile_plays_a_part_of_it(
    profile: Profile, seconds: float, expected: Profile
) -> None:
    assert Rate.changing(profile).played(seconds) == expected
