"""The confirmation names a winner only on the evidence of fresh pairs, and says how many are missing."""

import math
import random

import pytest
import scipy

from enginebench.analysis.answer import TuneOutcome
from enginebench.studies.tune.confirmation import ERROR, FAR, LOOKS, confirm


def differences(n: int, mean: float, spread: float = 0.04, seed: int = 3) -> list[float]:
    rng = random.Random(seed)
    return [mean + rng.gauss(0, spread * math.sqrt(2)) for _ in range(n)]


def test_seven_pairs_of_equal_sign_confirm() -> None:
    judged = confirm([0.2, 0.25, 0.22, 0.18, 0.21, 0.2, 0.23], 0.03)
    assert judged.outcome is TuneOutcome.CONFIRMED
    assert judged.ratio.value == pytest.approx(math.exp(0.21), rel=0.01)
    assert judged.ratio.low is not None
    assert 1.19 < judged.ratio.low < math.exp(0.21)
    assert judged.ratio.n == 7


@pytest.mark.parametrize("n", LOOKS)
@pytest.mark.parametrize("seed", range(10))
def test_a_claim_is_that_of_the_signed_rank_test(n: int, seed: int) -> None:
    values = differences(n, 0.06 / math.sqrt(n / 10), seed=seed)
    p = scipy.stats.wilcoxon(values, alternative="greater", method="exact").pvalue
    assert (confirm(values, 0.04).outcome is TuneOutcome.CONFIRMED) == (p <= ERROR)


def test_the_interval_has_the_ratios_that_are_not_rejected() -> None:
    values = differences(20, 0.1)
    ratio = confirm(values, 0.04).ratio
    assert ratio.low is not None
    assert ratio.high is not None
    for end, error, side in ((ratio.low, ERROR, "greater"), (ratio.high, FAR * ERROR, "less")):
        for nudge, rejected in ((-1e-9, side == "greater"), (1e-9, side == "less")):
            moved = [value - math.log(end) - nudge for value in values]
            p = scipy.stats.wilcoxon(moved, alternative=side, method="exact").pvalue
            assert (p <= error) == rejected


def test_between_looks_the_next_one_decides() -> None:
    assert confirm([0.07, -0.04, 0.05, 0.03, -0.02] * 2, 0.04).outcome is TuneOutcome.OPEN


def test_an_advantage_that_is_too_small_needs_more_rounds() -> None:
    judged = confirm([0.1, -0.07, 0.06, -0.01, 0.02] * 6, 0.04)
    assert judged.outcome is TuneOutcome.NOT_CONFIRMED
    assert judged.more is not None
    assert 30 < judged.more <= 150
    assert judged.ratio.n == 30


def test_no_advantage_ends_at_the_first_look() -> None:
    judged = confirm([0.01, -0.01] * 5, 0.03)
    assert judged.outcome is TuneOutcome.NONE
    assert judged.ratio.value == pytest.approx(1.0, abs=0.001)


def test_an_outlying_pair_does_not_hide_a_clear_winner() -> None:
    assert confirm([*differences(19, 0.25), -1.0], 0.04).outcome is TuneOutcome.CONFIRMED


def test_equal_variants_are_seldom_confirmed() -> None:
    outcomes = [confirm(differences(20, 0.0, seed=seed), 0.04).outcome for seed in range(300)]
    assert outcomes.count(TuneOutcome.CONFIRMED) / 300 <= 0.03


def test_a_slower_leader_is_never_confirmed() -> None:
    assert confirm(differences(30, -0.3), 0.04).outcome is TuneOutcome.NONE
