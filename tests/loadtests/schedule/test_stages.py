"""From settings to stages: pure arithmetic."""

from typing import Any

import pytest

from enginebench.records.load import Users
from enginebench.records.stage import Extent, StagePlan
from loadtests.harness.schedule.load_grammar import parse_rates, parse_users
from loadtests.harness.schedule.stages import parse_warm_up, plan_stages, write_warm_up
from loadtests.harness.workload.lengths import parse_several


@pytest.mark.parametrize(
    ("text", "warm_up"),
    [
        pytest.param("5", (5.0, False), id="a number is seconds or requests"),
        pytest.param("2m", (120.0, False), id="a time"),
        pytest.param("20%", (0.2, True), id="a share is of the stage"),
        pytest.param("0", (0.0, False), id="none at all"),
        pytest.param(" 2.5 ", (2.5, False), id="blanks do not matter"),
    ],
)
def test_warm_ups(text: str, warm_up: tuple[float, bool]) -> None:
    assert parse_warm_up(text) == warm_up
    assert parse_warm_up(write_warm_up(warm_up)) == warm_up


@pytest.mark.parametrize("text", ["soon", "-1", "%", "nan", "inf", "100%", ""])
def test_wrong_warm_ups_get_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="such as 5s or 20%"):
        parse_warm_up(text)


def planned(
    users: str = "10",
    prompts: str = "40",
    answers: str = "16",
    *,
    seconds: float = 30.0,
    requests: int | None = None,
    warm_up: tuple[float, bool] = (0.2, True),
) -> tuple[StagePlan, ...]:
    variations = {"prompt_tokens": parse_several(prompts), "output_tokens": parse_several(answers)}
    return plan_stages(parse_users(users), variations, seconds=seconds, requests=requests, warm_up=warm_up)


def test_a_stage_for_each_load_warm_up_and_window_filling_its_seconds() -> None:
    assert planned("10,20") == (
        StagePlan(Users(10), Extent(6.0), Extent(24.0), bound=30.0),
        StagePlan(Users(20), Extent(6.0), Extent(24.0), bound=30.0),
    )
    assert [plan.label for plan in planned("10,20")] == ["10 users", "20 users"]


def test_stages_of_unequal_length_each_with_its_share_of_warm_up() -> None:
    stages = planned("20x300,60x60,20")
    assert [(plan.load, plan.warm_up.amount, plan.window.amount, plan.bound) for plan in stages] == [
        (Users(20), 60.0, 240.0, 300.0),
        (Users(60), 12.0, 48.0, 60.0),
        (Users(20), 6.0, 24.0, 30.0),
    ]
    assert [plan.label for plan in stages] == ["20 users", "60 users", "20 users"]
    rates = plan_stages(parse_rates("8x60,4"), {}, seconds=30.0, requests=None, warm_up=(5.0, False))
    assert [(plan.load.value, plan.seconds, plan.warm_up.amount) for plan in rates] == [
        (8.0, 60.0, 5.0),
        (4.0, 30.0, 5.0),
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"requests": 100}, "20x60 has its own length: leave --stage-requests out", id="requests"),
        pytest.param({"warm_up": (60.0, False)}, "a stage of 60 s has no time to measure", id="all warm-up"),
    ],
)
def test_a_length_that_does_not_go_with_the_rest_gets_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        planned("10,20x60", seconds=90.0, **changes)


@pytest.mark.parametrize(
    ("changes", "warm_up", "window", "bound"),
    [
        pytest.param({"warm_up": (5.0, False)}, Extent(5.0), Extent(25.0), 30.0, id="a warm-up in seconds"),
        pytest.param({"warm_up": (0.0, False)}, Extent(0.0), Extent(30.0), 30.0, id="no warm-up"),
        pytest.param({"seconds": 2.0}, Extent(0.4), Extent(1.6), 10.0, id="a short stage has the least bound"),
        pytest.param(
            {"requests": 100, "warm_up": (0.1, True)},
            *(Extent(10, "requests"), Extent(100, "requests"), 30.0),
            id="requests come on top of a share of them",
        ),
        pytest.param(
            {"requests": 100, "warm_up": (7.0, False)},
            *(Extent(7, "requests"), Extent(100, "requests"), 30.0),
            id="a warm-up in requests",
        ),
        pytest.param(
            {"requests": 5, "seconds": 300.0, "warm_up": (0.1, True)},
            *(Extent(0, "requests"), Extent(5, "requests"), 300.0),
            id="few requests; the stage's seconds are the bound",
        ),
    ],
)
def test_how_long_a_stage_lasts(changes: dict[str, Any], warm_up: Extent, window: Extent, bound: float) -> None:
    (plan,) = planned(**changes)
    assert (plan.warm_up.unit, plan.window.unit, plan.bound) == (warm_up.unit, window.unit, bound)
    assert (plan.warm_up.amount, plan.window.amount) == pytest.approx((warm_up.amount, window.amount))


def test_loads_prompts_and_answers_are_multiplied_the_loads_slowest() -> None:
    stages = planned("1,2", "10,50", "1,64")
    assert [stage.label for stage in stages] == [
        f"{users}, {prompt} prompt tokens, {answer} output tokens"
        for users in ("1 user", "2 users")
        for prompt in (10, 50)
        for answer in (1, 64)
    ]
    assert [stage.label for stage in planned("1", "10,50")] == ["10 prompt tokens", "50 prompt tokens"]
    assert stages[5].load == Users(2)
    assert stages[5].asks == {"prompt_tokens": "10", "output_tokens": "64"}


def test_a_distribution_of_lengths_is_one_stage() -> None:
    (stage,) = planned("10", "uniform:64-192", "lognormal:64,0.5")
    assert (stage.label, stage.asks) == ("10 users", {})


@pytest.mark.parametrize(
    ("seconds", "warm_up"),
    [
        pytest.param(10.0, (10.0, False), id="a warm-up that fills the stage leaves nothing to measure"),
        pytest.param(0.0, (0.0, False), id="a stage without length"),
        pytest.param(float("nan"), (0.0, False), id="not a number"),
        pytest.param(float("inf"), (0.0, False), id="without an end"),
    ],
)
def test_a_plan_that_measures_nothing_is_refused(seconds: float, warm_up: tuple[float, bool]) -> None:
    with pytest.raises(ValueError, match="stage"):
        planned(seconds=seconds, warm_up=warm_up)
