"""How often a gate fails between identical versions, and how often it finds a regression.

The runs of a version are simulated as the numbers that a gate judges: one value per run for each stage and metric. The
variation from run to run is shared by all metrics (the machine was slower today), separate for each metric, or has a
heavy tail, like percentiles of few requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from enginebench.analysis.stats.samples import Sample
from enginebench.analysis.verdict.gate import Result, check, decided
from enginebench.records.metrics import CORRECT, columns
from enginebench.records.view import Estimate
from validation.statistics.systems import Floats, Generator

RUNS = 5
LIMIT = 0.2
COUNTED = 2000  # requests of each run, the denominator of a share
STAGES = ("10 users", "20 users", "40 users")
COLUMNS = [column for column in columns("compared") if column.name != CORRECT]  # only graded runs have `CORRECT`
# By metric: a typical value, and its own spread from run to run in multiples of the scenario's.
LEVELS: dict[str, tuple[float, float]] = {
    "ttft p50": (0.2, 1.0),
    "ttft p95": (0.4, 2.0),
    "ttft p99": (0.6, 4.0),
    "tpot p50": (0.02, 0.5),
    "tpot p95": (0.03, 1.0),
    "e2e p50": (2.0, 0.7),
    "e2e p95": (3.0, 1.0),
    "e2e p99": (4.0, 3.0),
    "throughput": (800.0, 0.5),
    "achieved_rate": (12.0, 0.5),
    "goodput": (11.0, 0.7),
    "attainment": (0.95, 1.0),
    "failure_share": (0.002, 1.0),
    "energy_per_token": (0.5, 0.7),
}


@dataclass(frozen=True, slots=True)
class GateCell:
    """Shares of simulated gates that fail: `failed` at 20 %, `strict` at 10 %. If nothing changed: false alarms."""

    scenario: str
    gates: int
    failed: float
    strict: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """`shared` and `own` are standard deviations from run to run, as shares; `shared_now` and `own_now` those of the
    version to judge. `some`: only every third metric has them, the others have those of the baseline.
    `tail`: Student's t with three degrees of freedom instead of a normal distribution. `worse` is the share by which
    `metrics` (all, if empty) are worse at `stages`. `clock`: every duration is between 25 and 45 ms, rounded to a
    clock with this resolution in seconds."""

    shared: float
    own: float
    tail: bool = False
    worse: float = 0.0
    metrics: tuple[str, ...] = ()
    stages: tuple[str, ...] = STAGES
    own_now: float | None = None
    shared_now: float | None = None
    some: bool = False
    clock: float = 0.0


SPREAD = 0.03  # between the runs of one version
SCENARIOS: dict[str, Scenario] = {
    "identical, every metric 3 %": Scenario(0.0, SPREAD),
    "identical, 3 % shared and 1 % own": Scenario(SPREAD, 0.01),
    "identical, 3 % shared, own and heavy tails": Scenario(SPREAD, SPREAD, tail=True),
    "identical, 10 % shared and own": Scenario(0.1, 0.1),
    "identical, 1 % own against 10 %": Scenario(0.0, 0.01, own_now=0.1),
    "identical, 1 % own against 30 %": Scenario(0.0, 0.01, own_now=0.3),
    "identical, 3 % shared and own": Scenario(SPREAD, SPREAD),
    "identical, 5 % own against 30 %": Scenario(0.0, 0.05, own_now=0.3),
    "identical, 30 % own": Scenario(0.0, 0.3),
    "identical, 1 % own against 30 % of every third metric": Scenario(0.0, 0.01, own_now=0.3, some=True),
    "identical, 3 % shared against 30 %": Scenario(SPREAD, 0.01, shared_now=0.3),
    "identical, durations of 25 to 45 ms on a clock of 10 ms": Scenario(0.0, 0.01, clock=0.01),
    "TTFT p50 25 % worse at one stage, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.25, metrics=("ttft p50",), stages=STAGES[-1:]
    ),
    "throughput 25 % worse at one stage, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.25, metrics=("throughput",), stages=STAGES[-1:]
    ),
    "TTFT 25 % worse, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.25, metrics=("ttft p50", "ttft p95", "ttft p99")
    ),
    "everything 25 % worse, 3 % shared and 1 % own": Scenario(SPREAD, 0.01, worse=0.25),
    "TTFT p50 15 % worse at one stage, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.15, metrics=("ttft p50",), stages=STAGES[-1:]
    ),
}


def version(
    rng: Generator, scenario: Scenario, changed: bool, levels: dict[tuple[str, str], float] | None = None
) -> dict[tuple[str, str], Floats]:
    """Draw values of one version's runs by stage and metric. `levels` replace the typical ones."""
    shared = scenario.shared_now if changed and scenario.shared_now is not None else scenario.shared
    today = shared * rng.standard_normal(RUNS)
    values = {}
    for stage in STAGES:
        for index, column in enumerate(COLUMNS):
            differs = changed and scenario.own_now is not None and not (scenario.some and index % 3)
            own = scenario.own_now if differs and scenario.own_now is not None else scenario.own
            level, spread = LEVELS[column.key]
            level = (levels or {}).get((stage, column.key), level)
            higher = column.better == "higher"
            noise = rng.standard_t(3, RUNS) / np.sqrt(3) if scenario.tail else rng.standard_normal(RUNS)
            shift = (-today if higher else today) + own * spread * noise
            here = stage in scenario.stages and (not scenario.metrics or column.key in scenario.metrics)
            worse = scenario.worse if changed and here else 0.0
            if not column.relative:  # a share of few failures
                values[stage, column.key] = rng.binomial([COUNTED] * RUNS, level) / COUNTED
                continue
            of_runs = level * np.exp(shift) * (1 - worse if higher else 1 + worse)
            if scenario.clock and column.unit == "s":
                of_runs = np.round(of_runs / scenario.clock) * scenario.clock
            values[stage, column.key] = of_runs
    return values


def fails(rng: Generator, scenario: Scenario) -> tuple[bool, bool]:
    """Return whether a gate between two versions fails at 20 %, and at 10 %."""
    levels = {}
    if scenario.clock:
        durations = [column.key for column in COLUMNS if column.unit == "s"]
        levels = {(stage, key): float(rng.uniform(0.025, 0.045)) for stage in STAGES for key in durations}
    before, now = version(rng, scenario, False, levels), version(rng, scenario, True, levels)
    checks = [
        check("engine", stage, column, sample(before[stage, column.key]), sample(now[stage, column.key]))
        for stage in STAGES
        for column in COLUMNS
    ]
    results = {check.result for check in decided(checks, LIMIT)}
    return Result.REGRESSION in results, bool(results & {Result.REGRESSION, Result.WARNING})


def sample(runs: Floats) -> Sample:
    return Sample(tuple(Estimate(value, n=COUNTED) for value in runs.tolist()))


def measure(gates: int, seed: int) -> list[GateCell]:
    cells = []
    for index, (name, scenario) in enumerate(SCENARIOS.items()):
        rng = np.random.default_rng([seed, 4, index])
        failures = np.array([fails(rng, scenario) for _ in range(gates)])
        cells.append(GateCell(name, gates, float(failures[:, 0].mean()), float(failures[:, 1].mean())))
    return cells
