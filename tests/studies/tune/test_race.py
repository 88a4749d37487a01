"""The race drops what is worse, whatever the machine's drift and single outlying runs."""

import math
import random

import pytest

from enginebench.studies.tune.race import fit, survivors

NAMES = [f"v{k:02d}" for k in range(12)]


def rounds(effects: dict[str, float], number: int, drift: float = 0.0, spread: float = 0.02) -> list[dict[str, float]]:
    rng = random.Random(7)
    return [{name: e + drift * r + rng.gauss(0, spread) for name, e in effects.items()} for r in range(number)]


def test_a_drift_of_the_machine_is_not_an_effect() -> None:
    effects = {"a": 0.0, "b": 0.1, "c": 0.3}
    steady, drifting = (fit(rounds(effects, 6, drift), list(effects)) for drift in (0.0, 0.5))
    assert [s.variant for s in drifting.standings] == ["c", "b", "a"]
    for before, after in zip(steady.standings, drifting.standings, strict=True):
        assert after.effect - drifting.standings[0].effect == pytest.approx(before.effect - steady.standings[0].effect)
    assert 0.01 < drifting.spread < 0.05


def test_an_outlying_run_weighs_little() -> None:
    runs = rounds({"a": 0.0, "b": 0.1}, 8)
    clean = fit(runs, ["a", "b"]).standings
    runs[3]["b"] -= 2.0
    leader, following = fit(runs, ["a", "b"]).standings
    assert leader.variant == "b"
    assert leader.effect - following.effect == pytest.approx(clean[0].effect - clean[1].effect, abs=0.03)


@pytest.mark.parametrize(
    ("runs", "before", "left"), [(1, 40, 20), (2, 12, 6), (3, 10, 8), (3, 5, 4), (3, 3, 3), (4, 3, 1)]
)
def test_the_worse_half_of_many_is_dropped_and_the_worst_quarter_of_few(runs: int, before: int, left: int) -> None:
    names = [f"v{k:02d}" for k in range(before)]
    standings = fit(rounds(dict.fromkeys(names, 0.0), runs, spread=0.04), names)
    assert survivors(standings, names) == [standing.variant for standing in standings.standings[:left]]


def test_hopeless_variants_are_dropped_after_their_second_run() -> None:
    effects = {"best": 0.0, "near": -0.01, "hopeless": -1.0}
    assert len(survivors(fit(rounds(effects, 1), list(effects)), list(effects))) == 3
    assert survivors(fit(rounds(effects, 2), list(effects)), list(effects)) == ["best", "near"]


def test_a_dropped_variant_does_not_come_back() -> None:
    standings = fit(rounds({"best": 0.1, "a": 0.0, "b": 0.0}, 4), ["best", "a", "b"])
    assert "best" not in survivors(standings, ["a", "b"])


def test_batches_share_a_variant() -> None:
    batches = [{"v00": 0.0, "v01": 0.3, "v02": 0.0}, {"v00": 5.0, "v03": 5.0, "v04": 5.1}]
    assert survivors(fit(batches, NAMES[:5]), NAMES[:5])[:2] == ["v01", "v04"]


def test_a_chance_needs_no_second_run() -> None:
    leader, following = fit([{"a": 0.0, "b": math.log(1.04)}], ["a", "b"]).standings
    assert (leader.variant, leader.chance) == ("b", 0.5)
    assert 0.1 < following.chance < 0.4
