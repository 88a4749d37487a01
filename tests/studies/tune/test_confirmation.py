"""The confirmation names a winner only on the evidence of fresh pairs, and says how many are missing."""

import math
import random

import pytest

from enginebench.analysis.answer import TuneOutcome
from enginebench.studies.tune.confirmation import confirm, pairs_for


def differences(n: int, mean: float, spread: float = 0.04, seed: int = 3) -> list[float]:
    rng = random.Random(seed)
    return [mean + rng.gauss(0, spread * math.sqrt(2)) for _ in range(n)]


@pytest.mark.parametrize(("spread", "pairs"), [(0.005, 6), (0.02, 6), (0.04, 6), (0.05, 9), (0.07, 12), (0.3, 12)])
def test_the_number_of_pairs_follows_from_the_spread(spread: float, pairs: int) -> None:
    assert pairs_for(spread) == pairs


def test_six_pairs_of_equal_sign_confirm() -> None:
    judged = confirm([0.2, 0.25, 0.22, 0.18, 0.21, 0.2], 0.03, 6)
    assert judged.outcome is TuneOutcome.CONFIRMED
    assert judged.ratio.value == pytest.approx(math.exp(0.208), rel=0.01)
    assert judged.ratio.value is not None
    assert judged.ratio.low is not None
    assert 1.15 < judged.ratio.low < judged.ratio.value


@pytest.mark.parametrize(("done", "missing"), [(0, 6), (5, 1), (7, 5)])
def test_nothing_is_said_between_two_looks(done: int, missing: int) -> None:
    judged = confirm(([0.3, -0.1] * 10)[:done], 0.1, 6)
    assert (judged.outcome, judged.more) == (TuneOutcome.OPEN, missing)


def test_an_advantage_that_is_too_small_needs_more_rounds() -> None:
    judged = confirm([0.07, -0.05, 0.04] * 6, 0.04, 6)
    assert judged.outcome is TuneOutcome.NOT_CONFIRMED
    assert judged.more == 61
    assert judged.ratio.n == 18


def test_no_advantage_ends_at_the_first_look() -> None:
    judged = confirm([0.01, -0.01] * 9, 0.03, 6)
    assert judged.outcome is TuneOutcome.NONE
    assert judged.ratio.value == pytest.approx(1.0, abs=0.001)
    assert judged.ratio.n == 6


def test_an_outlying_pair_does_not_hide_a_clear_winner() -> None:
    pairs = [*differences(11, 0.25), -1.0]
    assert confirm(pairs, 0.04, 12).outcome is TuneOutcome.CONFIRMED


def test_equal_variants_are_seldom_confirmed() -> None:
    outcomes = [confirm(differences(18, 0.0, seed=seed), 0.04, 6).outcome for seed in range(300)]
    assert outcomes.count(TuneOutcome.CONFIRMED) / 300 <= 0.06


def test_a_slower_leader_is_never_confirmed() -> None:
    assert confirm(differences(18, -0.3), 0.04, 6).outcome is TuneOutcome.NONE
