"""A stage knows its label and its length, and an instant belongs to the stage that is on."""

from enginebench.records.load import Users
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
