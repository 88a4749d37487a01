"""The confirmation names a winner only on the evidence of fresh pairs, and says how many are missing."""

import math
import random
from statistics import median

import pytest
import scipy

from enginebench.analysis.answer import TuneOutcome
from enginebench.studies.tune.confirmation import ERROR, FAR, LOOKS, confirm
from tests.support.present import present


def differences(n: int, mean: float, spread: float = 0.04, seed: int = 3) -> list[float]:
    rng = random.Random(seed)
    return [mean + rng.gauss(0, spread * math.sqrt(2)) for _ in range(n)]


@pytest.mark.parametrize("n", LOOKS)
@pytest.mark.parametrize("seed", range(10))
def test_a_claim_is_that_of_the_signed_rank_test(n: int, seed: int) -> None:
    values = differences(n, 0.06 / math.sqrt(n / 10), seed=seed)
    p = scipy.stats.wilcoxon(values, alternative="greater", method="exact").pvalue
    assert (confirm(values, 0.04).outcome is TuneOutcome.CONFIRMED) == (p <= ERROR)


def test_the_interval_has_the_ratios_that_are_not_rejected() -> None:
    values = differences(20, 0.1)
    ratio = confirm(values, 0.04).ratio
    means = [(one + other) / 2 for k, one in enumerate(values) for other in values[k:]]
    assert ratio.value == pytest.approx(math.exp(median(means)))
    for end, error, side in ((present(ratio.low), ERROR, "greater"), (present(ratio.high), FAR * ERROR, "less")):
        for nudge, rejected in ((-1e-9, side == "greater"), (1e-9, side == "less")):
            moved = [value - math.log(end) - nudge for value in values]
            p = scipy.stats.wilcoxon(moved, alternative=side, method="exact").pvalue
            assert (p <= error) == rejected


def test_an_advantage_that_is_too_small_needs_more_rounds() -> None:
    judged = confirm([0.1, -0.07, 0.06, -0.01, 0.02] * 6, 0.04)
    assert judged.outcome is TuneOutcome.NOT_CONFIRMED
    assert 30 < present(judged.more) <= 150
    assert judged.ratio.n == 30


@pytest.mark.parametrize(
    ("values", "spread", "outcome"),
    [
        pytest.param([0.2, 0.25, 0.22, 0.18, 0.21, 0.2, 0.23], 0.03, TuneOutcome.CONFIRMED, id="seven of equal sign"),
        pytest.param([0.07, -0.04, 0.05, 0.03, -0.02] * 2, 0.04, TuneOutcome.OPEN, id="the next look decides"),
        pytest.param([0.01, -0.01] * 5, 0.03, TuneOutcome.NONE, id="no advantage ends at the first look"),
        pytest.param([*differences(19, 0.25), -1.0], 0.04, TuneOutcome.CONFIRMED, id="one pair is an outlier"),
        pytest.param(differences(30, -0.3), 0.04, TuneOutcome.NONE, id="a slower leader"),
    ],
)
def test_outcomes(values: list[float], spread: float, outcome: TuneOutcome) -> None:
    judged = confirm(values, spread)
    assert (judged.outcome, judged.ratio.n) == (outcome, len(values))


def test_equal_variants_are_seldom_confirmed() -> None:
    outcomes = [confirm(differences(20, 0.0, seed=seed), 0.04).outcome for seed in range(300)]
    assert outcomes.count(TuneOutcome.CONFIRMED) / 300 <= 0.03
