"""Load tests for served language models: read their records, compare engines, and plan capacity.

    import enginebench

    runs = enginebench.load("runs", slo="ttft_p95=0.5,tpot_p95=0.05")
    runs.requests                                # every request, a Polars frame
    enginebench.capacity(runs)["vllm"].load      # users within the SLO
    enginebench.report(runs).html()              # the page that `enginebench report` writes

Nothing is imported until a function is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enginebench.analysis.answer import Replicas
    from enginebench.analysis.verdict.capacity import Capacity
    from enginebench.analysis.verdict.comparison import Comparison
    from enginebench.api import Report, Runs

__all__ = ["capacity", "compare", "load", "plan", "report"]


def load(*paths: str | Path, slo: str = "") -> Runs:
    """Load runs: folders of single runs, or folders that hold several. Runs with the same label are repeats.

    `slo` judges them by other objectives than the runs' own, such as `ttft_p95=0.5,tpot_p95=0.05` (seconds).

    Raises `ValueError` if a folder holds no run, or an objective cannot be judged.
    """
    from enginebench.api import read

    return read(paths, slo)


def capacity(runs: Runs) -> dict[str, Capacity]:
    """Return how much load each engine sustains within the SLO, by label: the highest load that meets it (`load`), the
    lowest that misses it (`beyond`), and whether both are confirmed. Empty without an SLO."""
    return dict(runs.frame.capacities)


def compare(runs: Runs, baseline: str | None = None, stage: str | None = None) -> tuple[Comparison, ...]:
    """Compare each engine with the next best one, and with the baseline, in every metric at one load.

    `stage` names the load, such as `8 users`; the default is the highest load at which all engines were measured and
    that one of them sustains within the SLO. A comparison has the ratio, its 95 % interval and, from three repeats on,
    whether the difference is significant.
    """
    from enginebench.analysis.frame import comparison_frame

    return comparison_frame(runs.summaries, baseline, stage).comparisons


def plan(runs: Runs, peak: str, price: float | None = None) -> tuple[Replicas, ...]:
    """Return how many replicas of each engine serve a `peak`, such as `80users` or `10/s`, within the SLO, and what
    they cost a month at `price` US dollars an hour.

    Raises `ValueError` for a peak that cannot be parsed.
    """
    from enginebench.api import replicas

    return replicas(runs, peak, price)


def report(runs: Runs, peak: str | None = None, price: float | None = None) -> Report:
    """Build the document of `enginebench report`: `.html()`, `.markdown()`, and every number in `.frame`."""
    from enginebench.api import document

    return document(runs, peak, price)
