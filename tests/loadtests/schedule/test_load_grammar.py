"""Loads as people write them: users and requests per second, each stage with a length of its own if need be."""

from __future__ import annotations

import pytest

from enginebench.records.load import Burst, Profile, Rate, Segment, Users
from loadtests.harness.schedule.load_grammar import LoadStep, parse_rates, parse_users, write_steps
from loadtests.harness.schedule.rates import most_arrivals


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        pytest.param("10,20,40", (10, 20, 40), id="a list is taken as it is"),
        pytest.param("10-100:10", tuple(range(10, 101, 10)), id="a range climbs by its step and includes its end"),
        pytest.param("10-100", tuple(range(10, 101, 10)), id="without a step a range climbs by its start"),
        pytest.param("1, 2-6:2,50", (1, 2, 4, 6, 50), id="lists and ranges mix, blanks do not matter"),
        pytest.param("40,10", (40, 10), id="users may become fewer"),
    ],
)
def test_numbers_of_users(text: str, counts: tuple[int, ...]) -> None:
    steps = parse_users(text)
    assert steps == tuple(LoadStep(Users(count)) for count in counts)
    assert parse_users(write_steps(steps)) == steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        pytest.param("20x300,60x60,20x300", [(20, 300), (60, 60), (20, 300)], id="each has its own"),
        pytest.param("20x5m,60x60s,20x500ms", [(20, 300), (60, 60), (20, 0.5)], id="with units"),
        pytest.param("5, 10-20:10x7.5", [(5, None), (10, 7.5), (20, 7.5)], id="a range gives it to all of its stages"),
    ],
)
def test_stages_of_unequal_length(text: str, steps: list[tuple[int, float | None]]) -> None:
    users = parse_users(text)
    assert users == tuple(LoadStep(Users(count), seconds) for count, seconds in steps)
    assert parse_users(write_steps(users)) == users
    rates = parse_rates(text)
    assert rates == tuple(LoadStep(Rate(count), seconds) for count, seconds in steps)
    assert parse_rates(write_steps(rates)) == rates


def test_a_ramp_may_have_a_length_and_a_profile_lasts_as_long_as_its_stage() -> None:
    assert parse_rates("2..20x1m,20x5s+2x25s") == (
        LoadStep(Rate(11.0, profile=(Segment(2, 20),)), 60.0),
        LoadStep(Rate(5.0, profile=(Segment(20, 20, 5), Segment(2, 2, 25)))),
    )


@pytest.mark.parametrize(
    "text",
    ["", "ten", "0,10", "-5", "10-1", "10-20:0", "1.5", "20x", "20x0", "20x60x60", "x60", "20x5+2x25", "5m", "1h",
     "20x1m30s", "1,100-10:10"],
)  # fmt: skip
def test_wrong_numbers_of_users_get_a_sentence_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 10,20,40"):
        parse_users(text)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        pytest.param("2,4,8", (2, 4, 8), id="a list is taken as it is"),
        pytest.param("1-4:1", (1, 2, 3, 4), id="a range climbs by its step and includes its end"),
        pytest.param("0.5-2", (0.5, 1, 1.5, 2), id="without a step a range climbs by its start"),
        pytest.param("0.1-0.3:0.1", (0.1, 0.2, 0.3), id="decimal steps do not drift"),
        pytest.param("8, 2", (8, 2), id="blanks do not matter, and rates may fall"),
        pytest.param("", (), id="none"),
    ],
)
def test_constant_rates(text: str, rates: tuple[float, ...]) -> None:
    steps = parse_rates(text)
    assert steps == tuple(LoadStep(Rate(rate)) for rate in rates)
    assert parse_rates(write_steps(steps)) == steps


@pytest.mark.parametrize(
    ("text", "profile", "mean", "most"),
    [
        pytest.param("2..20", (Segment(2, 20),), 11.0, 40, id="a ramp"),
        pytest.param("20..0", (Segment(20, 0),), 10.0, 40, id="a ramp down to nothing"),
        pytest.param("20x5+2x25", (Segment(20, 20, 5), Segment(2, 2, 25)), 5.0, 40, id="two rates"),
        pytest.param("8x1+0x3", (Segment(8, 8, 1), Segment(0, 0, 3)), 2.0, 16, id="on and off"),
        pytest.param("5x10+burst50", (Segment(5, 5, 10), Burst(50)), 10.0, 60, id="bursts"),
        pytest.param("2..4x10+4x5", (Segment(2, 4, 10), Segment(4, 4, 5)), 10 / 3, 8, id="a ramp of its own length"),
    ],
)
def test_rates_that_change(text: str, profile: Profile, mean: float, most: float) -> None:
    (step,) = parse_rates(text)
    load = Rate(mean, profile=profile)
    assert step == LoadStep(load)
    assert (load.label, load.varies, most_arrivals(load, 2.0)) == (f"{text} req/s", True, most)
    assert parse_rates(write_steps([step])) == (step,)


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "many", "4-1", "1-4:0", "nan", "inf", "2..", "0..0", "20x", "0x5", "5x0", "1x2+", "5+2x3", "burst5",
     "5x1+burst0", "2m", "500ms", "1..2s"],
)  # fmt: skip
def test_wrong_rates_get_a_sentence_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"requests per second above 0, such as 2,4,8, 1-20:1"):
        parse_rates(text)
