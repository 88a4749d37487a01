"""How often a gate fails between identical versions, and how often it finds a regression.

The runs of a version are simulated as the numbers that a gate judges: for each stage and measure one value a run. What
varies from run to run is shared by all measures (the machine was slower today), own to each measure, or a heavy tail,
as percentiles of few requests have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.compare.gate_checks import Sample, decide
from analysis.stats.repeats import chance_error
from validation.statistics.systems import Floats, Generator

RUNS = 5
COUNTED = 2000  # requests of each run, of which a share is
STAGES = ("10 users", "20 users", "40 users")
# Measure, better, relative, a typical value, and its own spread from run to run in multiples of the scenario's.
MEASURES: tuple[tuple[str, bool, bool, float, float], ...] = (
    ("ttft p50", False, True, 0.2, 1.0),
    ("ttft p95", False, True, 0.4, 2.0),
    ("ttft p99", False, True, 0.6, 4.0),
    ("tpot p50", False, True, 0.02, 0.5),
    ("tpot p95", False, True, 0.03, 1.0),
    ("e2e p50", False, True, 2.0, 0.7),
    ("e2e p95", False, True, 3.0, 1.0),
    ("e2e p99", False, True, 4.0, 3.0),
    ("throughput", True, True, 800.0, 0.5),
    ("achieved_rate", True, True, 12.0, 0.5),
    ("failure_share", False, False, 0.002, 1.0),
    ("energy_per_token", False, True, 0.5, 0.7),
    ("engine_memory_bytes", False, True, 4e9, 0.1),
)


@dataclass(frozen=True, slots=True)
class GateCell:
    """Shares of simulated gates. `failed` is at 20 %, `strict` at 10 %: false alarms where nothing had changed."""

    scenario: str
    gates: int
    failed: float
    strict: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """`shared` and `own` are standard deviations from run to run, as shares. `tail`: Student's t with three degrees of
    freedom instead of a normal distribution. `worse` is by how much `measures` (all, where empty) are worse at
    `stages`. `step`: values are rounded to multiples of this share of their level."""

    shared: float
    own: float
    tail: bool = False
    worse: float = 0.0
    measures: tuple[str, ...] = ()
    stages: tuple[str, ...] = STAGES
    runs: int = RUNS
    step: float = 0.0


SPREAD = 0.03  # between the runs of one version
SCENARIOS: dict[str, Scenario] = {
    "identical, every measure 3 %": Scenario(0.0, SPREAD),
    "identical, 3 % shared and 1 % own": Scenario(SPREAD, 0.01),
    "identical, 3 % shared, own and heavy tails": Scenario(SPREAD, SPREAD, tail=True),
    "identical, 10 % shared and own": Scenario(0.1, 0.1),
    "TTFT p50 25 % worse at one stage, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.25, measures=("ttft p50",), stages=STAGES[-1:]
    ),
    "throughput 25 % worse at one stage, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.25, measures=("throughput",), stages=STAGES[-1:]
    ),
    "TTFT 25 % worse, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.25, measures=("ttft p50", "ttft p95", "ttft p99")
    ),
    "everything 25 % worse, 3 % shared and 1 % own": Scenario(SPREAD, 0.01, worse=0.25),
    "TTFT p50 15 % worse at one stage, 3 % shared and 1 % own": Scenario(
        SPREAD, 0.01, worse=0.15, measures=("ttft p50",), stages=STAGES[-1:]
    ),
    "identical, 3 runs, every measure 3 %": Scenario(0.0, SPREAD, runs=3),
    # 25 ms on a grid of 10 ms: each run is rounded up or down by chance, and three are often equal
    "identical, 3 runs, every measure 3 %, coarse values": Scenario(0.0, SPREAD, runs=3, step=0.4),
}


def version(rng: Generator, scenario: Scenario, changed: bool) -> dict[tuple[str, str], Floats]:
    """Values of one version's runs by stage and measure."""
    today = scenario.shared * rng.standard_normal(scenario.runs)
    values = {}
    for stage in STAGES:
        for name, higher, relative, level, spread in MEASURES:
            runs = scenario.runs
            noise = rng.standard_t(3, runs) / np.sqrt(3) if scenario.tail else rng.standard_normal(runs)
            shift = (-today if higher else today) + scenario.own * spread * noise
            here = stage in scenario.stages and (not scenario.measures or name in scenario.measures)
            worse = scenario.worse if changed and here else 0.0
            if relative:
                shares = np.exp(shift) * (1 - worse if higher else 1 + worse)
                values[stage, name] = level * (
                    np.round(shares / scenario.step) * scenario.step if scenario.step else shares
                )
            else:  # a share of few failures
                values[stage, name] = rng.binomial(COUNTED, level, scenario.runs) / COUNTED
    return values


def fails(rng: Generator, scenario: Scenario) -> tuple[bool, bool]:
    """Whether a gate between two versions fails at 20 %, and at 10 %."""
    before, now = version(rng, scenario, False), version(rng, scenario, True)
    counted = (COUNTED,) * scenario.runs
    samples = [
        Sample(
            "engine",
            stage,
            name,
            name,
            "",
            "higher" if higher else "lower",
            relative,
            tuple(before[stage, name].tolist()),
            tuple(now[stage, name].tolist()),
            0.0
            if relative
            else chance_error(before[stage, name].tolist(), now[stage, name].tolist(), counted, counted),
        )
        for stage in STAGES
        for name, higher, relative, _, _ in MEASURES
    ]
    severities = {check.severity for check in decide(samples)}
    return "critical" in severities, bool(severities & {"critical", "warning"})


def measure(gates: int, seed: int, names: tuple[str, ...] = tuple(SCENARIOS)) -> list[GateCell]:
    cells = []
    for index, (name, scenario) in enumerate(SCENARIOS.items()):
        if name in names:
            rng = np.random.default_rng([seed, 4, index])
            found = np.array([fails(rng, scenario) for _ in range(gates)])
            cells.append(GateCell(name, gates, float(found[:, 0].mean()), float(found[:, 1].mean())))
    return cells
