"""A short run of the gate's simulations: false alarms between identical versions, and regressions found."""

from __future__ import annotations

import numpy as np

from validation.statistics import gates


def test_every_metric_that_is_compared_is_simulated() -> None:
    assert set(gates.LEVELS) == {column.key for column in gates.COLUMNS}


def test_the_spread_between_runs_is_what_is_said() -> None:
    rng = np.random.default_rng(1)
    scenario = gates.Scenario(0.0, 0.03)
    values = [gates.version(rng, scenario, False)["10 users", "ttft p50"] for _ in range(2000)]
    assert abs(np.log(values).std() - 0.03) < 0.001
    worse = gates.Scenario(0.0, 0.0, worse=0.25)
    changed = gates.version(rng, worse, True)
    assert np.allclose(changed["10 users", "ttft p50"], 0.25)
    assert np.allclose(changed["10 users", "throughput"], 600)


def test_a_gate_seldom_fails_by_chance_and_finds_a_quarter() -> None:
    """40 gates of 39 checks each: at a true 1 %, more than 2 false alarms are seen once in 130 times."""
    for cell in gates.measure(40, 1):
        if cell.scenario.startswith("identical"):
            assert cell.failed <= 0.05, cell
        elif " 25 % " in cell.scenario:
            assert cell.failed >= 0.85, cell
        else:
            assert cell.failed <= 0.05, cell
            assert cell.strict >= 0.3, cell
