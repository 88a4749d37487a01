"""The stage plan: pure arithmetic, checked to the nanosecond."""

import pytest

from loadtests.harness.schedule.stages import cut_stages, parse_margin, parse_steps, plan_stages, stage_at
from records.request import Stage

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        pytest.param("10,20,40", (10, 20, 40), id="a list is taken as it is"),
        pytest.param("10-100:10", tuple(range(10, 101, 10)), id="a range climbs by its step and includes its end"),
        pytest.param("10-100", tuple(range(10, 101, 10)), id="without a step a range climbs by its start"),
        pytest.param("1, 2-6:2,50", (1, 2, 4, 6, 50), id="lists and ranges mix, blanks do not matter"),
        pytest.param("40,10", (40, 10), id="users may become fewer"),
    ],
)
def test_steps(text: str, steps: tuple[int, ...]) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["", "ten", "0,10", "-5", "10-1", "10-20:0", "1.5"])
def test_wrong_steps_get_a_sentence_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 10,20,40"):
        parse_steps(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("5", 5.0, id="a number is seconds"),
        pytest.param("20%", 6.0, id="a share is of the stage"),
        pytest.param("0", 0.0, id="none at all"),
    ],
)
def test_margins(text: str, seconds: float) -> None:
    assert parse_margin(text, stage_seconds=30.0) == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "%", "nan", "inf"])
def test_wrong_margins_get_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="warm-up or cool-down"):
        parse_margin(text, 30.0)


def test_stages_lie_end_to_end_and_only_their_middle_is_steady() -> None:
    assert plan_stages((10, 20), stage_seconds=30, warm_up=6, cool_down=3) == (
        Stage(0, 10, start=0, steady_start=6 * S, steady_end=27 * S, end=30 * S),
        Stage(1, 20, start=30 * S, steady_start=36 * S, steady_end=57 * S, end=60 * S),
    )


@pytest.mark.parametrize(
    ("stage_seconds", "warm_up", "cool_down"),
    [
        pytest.param(10, 6, 4, id="margins that fill the stage leave nothing steady"),
        pytest.param(0, 0, 0, id="a stage without length"),
        pytest.param(float("nan"), 0, 0, id="not a number"),
    ],
)
def test_a_plan_without_a_steady_part_is_refused(stage_seconds: float, warm_up: float, cool_down: float) -> None:
    with pytest.raises(ValueError, match="stage"):
        plan_stages((1,), stage_seconds, warm_up, cool_down)


def test_a_moment_belongs_to_the_stage_that_has_begun() -> None:
    stages = plan_stages((10, 20), 30, 0, 0)
    found = [stage_at(stages, t) for t in (-1, 0, 30 * S - 1, 30 * S, 60 * S - 1, 60 * S)]
    assert [stage and stage.index for stage in found] == [None, 0, 0, 1, 1, None]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(45, [(0, 6, 27, 30), (30, 36, 45, 45)], id="in a steady part, which is shortened"),
        pytest.param(32, [(0, 6, 27, 30), (30, 32, 32, 32)], id="in a warm-up: that stage was never steady"),
        pytest.param(30, [(0, 6, 27, 30)], id="between two stages"),
        pytest.param(100, [(0, 6, 27, 30), (30, 36, 57, 60)], id="after all: nothing is cut"),
    ],
)
def test_a_run_that_is_stopped_keeps_the_stages_it_had(end: int, expected: list[tuple[int, ...]]) -> None:
    stages = cut_stages(plan_stages((10, 20), 30, 6, 3), end * S)
    assert [(s.start // S, s.steady_start // S, s.steady_end // S, s.end // S) for s in stages] == expected
