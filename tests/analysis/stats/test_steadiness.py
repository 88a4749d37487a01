"""Initial transients and trends."""

import numpy as np

from enginebench.analysis.stats.steadiness import steadiness


def test_a_series_that_grows_or_begins_otherwise_is_unsteady() -> None:
    noise = np.random.default_rng(14).standard_normal(120)
    assert steadiness(10 + noise) is True
    assert steadiness(10 + noise + np.linspace(0, 10, 120)) is False
    assert steadiness(10 + noise + 10 * np.exp(-np.arange(120) / 8)) is False
    assert steadiness(10 + 0.001 * (noise + np.linspace(0, 30, 120))) is True  # grows by 0.3 %
    assert steadiness(np.r_[np.full(100, np.nan), noise[:10]]) is None
    assert steadiness(np.full(100, 3.0)) is True
