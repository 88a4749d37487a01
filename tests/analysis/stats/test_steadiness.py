"""Initial transients, trends and arrivals in lock step."""

from __future__ import annotations

import numpy as np
import pytest

from enginebench.analysis.stats.steadiness import lock_step, steadiness
from enginebench.records.findings.load import LOCK_STEP


def test_a_series_that_grows_or_begins_otherwise_is_unsteady() -> None:
    noise = np.random.default_rng(14).standard_normal(120)
    assert steadiness(10 + noise) is True
    assert steadiness(10 + noise + np.linspace(0, 10, 120)) is False
    assert steadiness(10 + noise + 10 * np.exp(-np.arange(120) / 8)) is False
    assert steadiness(10 + 0.001 * (noise + np.linspace(0, 30, 120))) is True  # grows by 0.3 %
    assert steadiness(np.r_[np.full(100, np.nan), noise[:10]]) is None
    assert steadiness(np.full(100, 3.0)) is True


@pytest.mark.parametrize(
    ("draw", "low", "high"),
    [
        pytest.param(lambda rng: rng.uniform(0, 60, 400), 0.6, 1.5, id="Poisson arrivals have an index of 1"),
        pytest.param(lambda rng: np.arange(400) * 0.15, -0.1, 0.1, id="evenly spread ones of almost 0"),
        pytest.param(
            lambda rng: np.repeat(np.arange(10) * 6.0 + 0.1, 40) + rng.uniform(0, 0.3, 400),
            30.0,
            40.0,
            id="40 users at once have 0.9 × 40",
        ),
    ],
)
def test_lock_step_is_the_index_of_dispersion(draw: object, low: float, high: float) -> None:
    assert callable(draw)
    index = lock_step(draw(np.random.default_rng(16)), (0, 60), 40)
    assert index is not None
    assert low < index < high
    assert (index > LOCK_STEP) == (low > LOCK_STEP)
    assert lock_step([1.0, 2.0], (0, 60), 40) is None
