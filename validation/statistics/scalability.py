"""How often does the band of the Universal Scalability Law hold the true curve?

    python -m validation.statistics.scalability

Stages lie on a known law, but for their own error, which their intervals tell, and a scatter that they do not. Writes
validation/results/scalability.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np

from enginebench.analysis.plan.scalability import LoadPoint, fit_law
from enginebench.records.view import Estimate
from validation.program import RESULTS

RATE, SIGMA, KAPPA = 30.0, 0.05, 0.0004
OWN = 0.01  # standard error of a stage's throughput, as a share
SCATTERS = (0.0, 0.01, 0.03)
LOADS = ((1, 8, 40), (1, 8, 20, 40), (1, 4, 16, 40, 80), (1, 2, 4, 8, 16, 24, 40, 60))


@dataclass(frozen=True, slots=True)
class Cell:
    """Shares of sets of stages whose interval held the truth: λ, σ, κ, the peak, and the curve at its middle.
    `width` is the median width of the curve's band there, as a share of the truth."""

    loads: tuple[int, ...]
    scatter: float
    sets: int
    rate: float
    contention: float
    coherency: float
    most: float
    curve: float
    width: float


def law(n: float) -> float:
    return RATE * n / (1 + SIGMA * (n - 1) + KAPPA * n * (n - 1))


def measure(sets: int, seed: int) -> list[Cell]:
    return [_cell(loads, scatter, sets, seed) for loads in LOADS for scatter in SCATTERS]


def _cell(loads: tuple[int, ...], scatter: float, sets: int, seed: int) -> Cell:
    rng = np.random.default_rng([seed, len(loads), round(1000 * scatter)])
    truths = (RATE, SIGMA, KAPPA, law(np.sqrt((1 - SIGMA) / KAPPA)))
    held, widths = np.zeros(5), []
    for number in range(sets):
        noise = rng.normal(0, scatter, len(loads)) + rng.normal(0, OWN, len(loads))
        values = [law(n) * (1 + error) for n, error in zip(loads, noise, strict=True)]
        stages = [
            LoadPoint(f"{n} users", float(n), Estimate(value, value * (1 - 1.96 * OWN), value * (1 + 1.96 * OWN), 100))
            for n, value in zip(loads, values, strict=True)
        ]
        found = fit_law(stages, number)
        middle = found.curve[len(found.curve) // 2]
        truth = law(middle.in_flight)
        told = (found.rate, found.contention, found.coherency, found.most, middle.throughput)
        held += [_holds(one, value) for one, value in zip(told, (*truths, truth), strict=True)]
        widths.append(((middle.throughput.high or 0.0) - (middle.throughput.low or 0.0)) / truth)
    rate, contention, coherency, most, curve = (held / sets).round(4).tolist()
    return Cell(loads, scatter, sets, rate, contention, coherency, most, curve, round(float(np.median(widths)), 4))


def _holds(one: Estimate, truth: float) -> bool:
    assert one.low is not None
    assert one.high is not None
    return one.low <= truth <= one.high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=400, help="of stages, for each cell (default 400)")
    parser.add_argument("--seed", type=int, default=20261122)
    settings = parser.parse_args()
    cells = measure(settings.sets, settings.seed)
    for cell in cells:
        print(
            f"{len(cell.loads)} loads, scatter {cell.scatter:.0%}: curve held {cell.curve:.1%}, width {cell.width:.1%}"
        )
    command = f"python -m validation.statistics.scalability --sets {settings.sets} --seed {settings.seed}"
    document = {"command": command, "seed": settings.seed, "cells": [asdict(cell) for cell in cells]}
    (RESULTS / "scalability.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
