"""docs/comparing.md and docs/statistics.md say what a gate does."""

from __future__ import annotations

import json
from pathlib import Path

from enginebench.analysis.settings import CRITICAL
from enginebench.analysis.verdict.gate import FALSE_ALARMS, MIN_RUNS, WARNING

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "comparing.md").read_text()


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


def test_the_limits_are_those_of_the_code() -> None:
    assert f"worse by more than {CRITICAL:.0%}".replace("%", " %") in PAGE
    assert f"| warning | worse by more than {100 * WARNING:.0f} % | ≤ {100 * FALSE_ALARMS:.0f} % | 0 |" in PAGE
    assert MIN_RUNS == 5
    assert "A gate needs five runs of each version" in PAGE
