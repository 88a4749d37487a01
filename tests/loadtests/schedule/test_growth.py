"""Which loads a test of one minute measures, against servers of known law."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from enginebench.records.slo import parse_objectives
from enginebench.records.stage import StagePlan
from enginebench.records.view import Distribution, Estimate, Judgement, StageView
from loadtests.harness.schedule.growth import Growth, meets

OBJECTIVES = parse_objectives(["ttft_p95=0.5,failures=0.01"])
ANSWER = 0.4  # seconds


def stage(users: float, ttft: float, failed: int = 0, seconds: float = 2.0, answer: float = ANSWER) -> StageView:
    def all_alike(value: float) -> Distribution:
        percentiles = {name: Estimate(value, n=100) for name in ("p50", "p90", "p95", "p99")}
        return Distribution(100, failed, value, 0.0, value, value, percentiles)

    return StageView(
        index=0,
        label=f"{users:g} users",
        load=users,
        load_unit="users",
        start=0.0,
        end=seconds,
        outcomes={"ok": 100 - failed} | ({"rejected": failed} if failed else {}),
        metrics={"ttft_user": all_alike(ttft), "e2e_user": all_alike(answer)},
        quantities={},
        judgements=tuple(
            Judgement(objective, Estimate(1 - failed / 100, n=100), "not confirmed")
            for objective in OBJECTIVES
            if objective.fault is not None
        ),
    )


def followed(law: Callable[[float], StageView]) -> tuple[list[StagePlan], float]:
    """The stages of a whole test, and how long they took."""
    growth, elapsed = Growth(OBJECTIVES, 60.0, 100), 0.0
    views: list[StageView] = []
    plans: list[StagePlan] = []
    plan: StagePlan | None = growth.first
    while plan is not None:
        assert plan.seconds is not None
        elapsed += plan.seconds + ANSWER
        plans.append(plan)
        views.append(replace(law(plan.load.value), end=plan.window.amount))
        plan = growth.following(views, elapsed)
    return plans, elapsed


@pytest.mark.parametrize(
    ("slots", "loads"),
    [
        pytest.param(16, [1, 2, 4, 8, 16, 32, 24, 16, 24], id="halved between 16 and 32 until the two are close"),
        pytest.param(1, [1, 2, 1, 2], id="nothing lies between one user and two"),
        pytest.param(0, [1, 1, 1], id="missed from the first user on"),
        pytest.param(500, [1, 2, 4, 8, 16, 32, 64, 100, 100], id="never missed: the most that are tried"),
    ],
)
def test_users_double_and_the_rest_is_spent_around_the_crossing(slots: int, loads: list[int]) -> None:
    plans, elapsed = followed(lambda users: stage(users, 0.04 if users <= slots else 1.9))
    assert [plan.load.value for plan in plans] == loads
    assert elapsed <= 60.0
    around = [plan.window.amount for plan in plans if not plan.brief]
    assert sum(around) > 25, "most of the minute is left for the crossing"
    assert around == sorted(around, reverse=True), "more of it for the lower of the two"


@pytest.mark.parametrize("answer", [1.5, 4.0, 15.0])
def test_slow_answers_end_in_time_all_the_same(answer: float) -> None:
    """Every user waits for its first answer before the window, and for the last one after it."""
    growth, elapsed = Growth(OBJECTIVES, 60.0, 100), 0.0
    views: list[StageView] = []
    plan: StagePlan | None = growth.first
    while plan is not None:
        users = plan.load.value
        view = stage(users, 0.1 if users < 8 else 0.9, seconds=plan.window.amount, answer=answer * max(1, users / 4))
        longest = view.metrics["e2e_user"].mean or 0.0
        elapsed += min(max(plan.warm_up.amount, longest), plan.bound) + plan.window.amount + min(longest, plan.bound)
        views.append(view)
        plan = growth.following(views, elapsed)
    assert elapsed <= 60.0


def test_failures_are_an_objective_like_others() -> None:
    plans, _ = followed(lambda users: stage(users, 0.04, failed=0 if users < 8 else 2))
    assert {plan.load.value for plan in plans[-2:]} == {6, 8}


def test_a_first_stage_that_a_cold_server_spoils_is_repeated() -> None:
    growth = Growth(OBJECTIVES, 60.0, 100)
    cold, warm = stage(1, 1.9), stage(1, 0.04)
    assert growth.following([cold], 2.5) == growth.first
    following = growth.following([cold, warm], 5.0)
    assert following is not None
    assert following.load.value == 2


def test_an_answer_of_a_minute_leaves_no_time_for_a_second_stage() -> None:
    growth = Growth(OBJECTIVES, 60.0, 100)
    assert growth.following([stage(1, math.inf, failed=100)] * 2, 62.0) is None


def test_what_was_long_and_is_missed_after_all_moves_the_crossing() -> None:
    """16 users meet the objective in two seconds and miss it in twenty."""
    views = [stage(users, 0.04) for users in (1, 2, 4, 8, 16)] + [stage(17, 1.9), stage(16, 0.6, seconds=20.0)]
    plan = Growth(OBJECTIVES, 60.0, 100).following(views, 40.0)
    assert plan is not None
    assert plan.load.value == 8


def test_one_slow_answer_of_nine_ends_no_growth() -> None:
    view = stage(1, 0.04)
    slow = Distribution(9, 0, 0.1, 0.0, 0.04, 2.0, {"p50": Estimate(0.04), "p95": Estimate(2.0)})
    assert meets(replace(view, outcomes={"ok": 9}, metrics={**view.metrics, "ttft_user": slow}), OBJECTIVES)
    assert not meets(replace(view, outcomes={"ok": 90}, metrics={**view.metrics, "ttft_user": slow}), OBJECTIVES)
