"""A short version of `make searches`: systems of known capacity, and the search on some of them."""

from __future__ import annotations

import numpy as np
import pytest

from validation.statistics import capacity_systems
from validation.statistics.capacity_searches import measure
from validation.statistics.capacity_systems import always_late, batched, mdc, mmc

SEED = 3


@pytest.mark.parametrize("system", [mmc(4, 2.0), mmc(1, 5.0), mdc(4, 1.0), mdc(1, 4.0)], ids=lambda each: each.name)
def test_exact_laws_agree_with_simulated_queues(system: capacity_systems.System) -> None:
    rng = np.random.default_rng(SEED)
    rate = system.capacity(rng)
    shares = [float((system.run(rate, 100_000, rng).latency[5000:] <= system.limit).mean()) for _ in range(6)]
    assert np.mean(shares) == pytest.approx(0.95, abs=0.005)


def test_requests_that_are_always_late_count() -> None:
    """Of 100 requests 3.5 are late at any load, so of the others 1.55 % may be."""
    system = always_late(mmc(4, 2.0), 0.035)
    rng = np.random.default_rng(SEED)
    latency = system.run(system.capacity(rng), 300_000, rng).latency[5000:]
    assert (latency <= system.limit).mean() == pytest.approx(0.95, abs=0.005)


def test_batching_stalls_for_prompts() -> None:
    """Alone, a request has its first token after a step and its own prefill."""
    rng = np.random.default_rng(SEED)
    alone = batched("16 slots", 0.5).run(0.01, 2000, rng).latency
    assert alone.mean() == pytest.approx(0.02 + 0.001 + 0.02, rel=0.05)


@pytest.mark.parametrize("system", [mdc(4, 1.0), mmc(4, 2.0)], ids=lambda each: each.name)
def test_searches_find_the_capacity(system: capacity_systems.System) -> None:
    cell = measure(system, system.capacity(np.random.default_rng(SEED)), range(12))
    assert cell.right >= 0.9
    assert cell.close >= 0.6
    assert (cell.reached["0.2"] or 1e9) < 20_000
