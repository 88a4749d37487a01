"""Classes of requests: their grammar, their shares of users and arrivals, and each of them alone."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import islice

import pytest

from enginebench.records.load import Rate, Users
from loadtests.harness.scenario import Scenario, rates, request_classes, users
from loadtests.harness.schedule.rates import arrival_times
from loadtests.harness.schedule.stages import in_seconds
from loadtests.harness.workload.classes import RequestClass, class_of, parse_classes, write_classes
from loadtests.harness.workload.lengths import parse_lengths
from tests.loadtests.workload.test_workload import PLAIN, asks

TEXT = "chat: weight=3 prompt=lognormal:60,0.5 output=8 slo=ttft_p95=0.5,tpot_p95=0.04; batch: weight=1 prompt=400"


def test_classes_are_read_and_written() -> None:
    chat, batch = parse_classes(TEXT)
    assert chat == RequestClass(
        "chat", 3, parse_lengths("lognormal:60,0.5"), parse_lengths("8"), "ttft_p95=0.5,tpot_p95=0.04"
    )
    assert batch == RequestClass("batch", 1, parse_lengths("400"))
    assert write_classes((chat, batch)) == TEXT


@pytest.mark.parametrize(
    "text", ["chat", "chat: weight=0", "chat: weight=x", "chat: size=3", ": weight=1", "a: weight=1; a: weight=2"]
)
def test_wrong_classes_get_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"classes are NAME: weight|a name of its own"):
        parse_classes(text)


def test_a_wrong_length_of_a_class_gets_the_lengths_sentence() -> None:
    with pytest.raises(ValueError, match=r"uniform:16-128.*not `uniform:9-3`"):
        parse_classes("chat: prompt=uniform:9-3")


def test_a_wrong_objective_of_a_class_gets_the_objectives_sentence() -> None:
    with pytest.raises(ValueError, match=r"such as ttft_p99=500ms.*not `ttft=0.5`"):
        parse_classes("chat: slo=ttft=0.5")


@pytest.mark.parametrize("count", [4, 10, 40, 1000])
def test_any_number_of_users_has_the_shares(count: int) -> None:
    drawn = Counter(class_of(number, parse_classes(TEXT)).name for number in range(count))
    assert abs(drawn["chat"] - 0.75 * count) <= 1.5


def test_a_user_stays_in_its_class_and_asks_what_the_class_asks() -> None:
    mixed = dataclasses.replace(PLAIN, classes=parse_classes("chat: weight=1 output=8; batch: prompt=400"))
    found = {}
    for user in range(8):
        asked = [one.record for one in asks(mixed, user=user, count=5)]
        ((name, prompt, output),) = {
            (one.request_class, one.planned_prompt_tokens, one.planned_output_tokens) for one in asked
        }
        found[name] = (prompt, output)
    assert found == {"chat": (40, 8), "batch": (400, 16)}


def test_each_class_runs_alone_with_its_share_of_the_load() -> None:
    scenario = Scenario(stages=users("20,40"), classes=request_classes(TEXT), isolate=True)
    planned = [(stage.label, stage.load, dict(stage.asks)) for stage in scenario.plan()]
    assert planned[:3] == [
        ("20 users, mixed", Users(20), {}),
        ("15 users, chat alone", Users(15), {"request_class": "chat"}),
        ("5 users, batch alone", Users(5), {"request_class": "batch"}),
    ]
    assert [load for _, load, _ in planned[3:]] == [Users(40), Users(30), Users(10)]
    alone = asks(dataclasses.replace(PLAIN, classes=parse_classes(TEXT)), count=3, request_class="batch")
    assert {(one.record.request_class, one.record.planned_prompt_tokens) for one in alone} == {("batch", 400)}


def test_in_an_open_loop_every_stage_alone_or_not_has_the_requests_asked_for() -> None:
    """Each stage has arrivals of its own, by its place among all stages."""
    classes = request_classes(TEXT)
    scenario = Scenario(rate=rates("8,16"), stage_requests=60, warm_up=(0.1, True), classes=classes, isolate=True)
    planned = in_seconds(scenario.plan(), seed=scenario.seed)
    assert [plan.load.value for plan in planned] == [8, 6, 2, 16, 12, 4]
    for index, plan in enumerate(planned):
        assert isinstance(plan.load, Rate)
        before, window = plan.warm_up.amount, plan.window.amount
        times = list(islice(arrival_times(plan.load, before, window, scenario.seed, index), 100))
        assert sum(at < before for at in times) == 6
        assert sum(before <= at < before + window for at in times) == 60


@pytest.mark.parametrize(
    ("profile", "alone"), [("2..20", ["1.5..15", "0.5..5"]), ("20x5+2x25", ["15x5+1.5x25", "5x5+0.5x25"])]
)
def test_a_class_alone_has_its_share_of_a_rate_that_changes(profile: str, alone: list[str]) -> None:
    scenario = Scenario(rate=rates(profile), classes=request_classes(TEXT), isolate=True)
    mixed, *found = [plan.load for plan in scenario.plan()]
    assert isinstance(mixed, Rate)
    assert mixed.profile == profile
    assert [load.profile for load in found if isinstance(load, Rate)] == alone
    assert [load.value for load in found] == pytest.approx([0.75 * mixed.value, 0.25 * mixed.value])


def test_isolation_needs_several_classes() -> None:
    with pytest.raises(ValueError, match="several --classes"):
        Scenario(isolate=True).plan()
