"""The rates of the gate in docs/statistics.md are those of its simulations."""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_simulated_rates_are_those_of_the_results_and_within_the_targets() -> None:
    """At most 1 % of gates between identical versions fail, and 90 % of those with a metric a quarter worse."""
    results = json.loads((DOCS.parent / "validation" / "results" / "gate.json").read_text())["gates"]
    page = (DOCS / "statistics.md").read_text()
    assert len(results) == 17
    for cell in results:
        scenario = cell["scenario"]
        failed, strict = (f"{100 * cell[name]:.1f}".removesuffix(".0") for name in ("failed", "strict"))
        assert f"| {scenario} | {failed} % | {strict} % |" in page
        if scenario.startswith("identical"):
            assert cell["failed"] <= 0.01
            assert cell["strict"] <= 0.0125
        elif "25 %" in scenario:
            assert cell["failed"] >= 0.9
