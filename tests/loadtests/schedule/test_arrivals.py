"""Arrival processes have the rate and the burstiness that their names promise."""

from itertools import accumulate, islice, takewhile
from random import Random
from statistics import fmean, pstdev, pvariance

import pytest

from loadtests.harness.schedule.arrivals import PROCESSES, gaps

RATE = 8.0
WINDOWS = 4000


def counts(process: str, window: float, windows: int = WINDOWS, seed: int = 1) -> list[int]:
    """How many arrivals fall into each of so many windows of so many seconds."""
    found = [0] * windows
    for at in takewhile(lambda at: at < windows * window, accumulate(gaps(process, RATE, Random(seed)))):
        found[int(at / window)] += 1
    return found


def index_of_dispersion(process: str, window: float, windows: int = WINDOWS) -> float:
    found = counts(process, window, windows)
    return pvariance(found) / fmean(found)


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert list(islice(gaps("constant", RATE, Random(0)), 100)) == [1 / RATE] * 100
    assert index_of_dispersion("constant", 1.0) < 0.01


@pytest.mark.parametrize("window", [0.25, 1.0, 5.0])
def test_poisson_counts_have_an_index_of_dispersion_of_1(window: float) -> None:
    """The sampling error of the index over n windows is √(2/n) = 0.022, so 0.1 is more than four of it."""
    assert index_of_dispersion("poisson", window) == pytest.approx(1.0, abs=0.1)
    assert fmean(counts("poisson", window)) == pytest.approx(RATE * window, rel=0.05)


@pytest.mark.parametrize("cv", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_gamma_gaps_have_the_coefficient_of_variation_that_was_asked_for(cv: float) -> None:
    drawn = list(islice(gaps(f"gamma:cv={cv}", RATE, Random(2)), 100_000))
    assert fmean(drawn) == pytest.approx(1 / RATE, rel=0.03)
    assert pstdev(drawn) / fmean(drawn) == pytest.approx(cv, rel=0.05)


def test_counts_of_gamma_arrivals_disperse_by_the_square_of_cv() -> None:
    """In windows much longer than a gap the index of dispersion of a renewal process tends to cv² (Cox 1962)."""
    assert index_of_dispersion("gamma:cv=2", 25.0, 2000) == pytest.approx(4.0, rel=0.2)
    assert index_of_dispersion("gamma:cv=0.5", 25.0, 2000) == pytest.approx(0.25, rel=0.2)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_same_seed_gives_the_same_arrivals_and_none_is_negative(process: str) -> None:
    drawn = [list(islice(gaps(process, RATE, Random(seed)), 1000)) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1]
    assert (drawn[0] == drawn[2]) is (process == "constant")
    assert min(drawn[0]) >= 0


@pytest.mark.parametrize(
    "wrong",
    ["", "weibull", "gamma:cv=0", "gamma:cv=-1", "gamma:cv=many", "gamma:cv=inf", "gamma:cv=1e-200", "gamma:cv=1e200",
     "gamma:shape=2", "poisson:cv=2", "gamma:cv"],
)  # fmt: skip
def test_an_unknown_process_or_parameter_gets_the_choices(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"arrivals are one of constant, poisson, gamma:cv=2, not"):
        gaps(wrong, RATE, Random(0))
