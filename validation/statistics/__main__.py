"""Simulate how often the intervals hold and the verdicts are wrong:  make simulations

Writes coverage, decisions, confirmed, gate, repeats and bias (.json) in validation/results/, with seed and command.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from validation.program import write_simulation
from validation.statistics import bias, confirmed, coverage, decisions, gates, pooled_percentiles


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.statistics", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="simulations of each system (default 200)")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="systems whose name contains this; nothing is written then")
    settings = parser.parse_args()
    names = [name for name in coverage.SYSTEMS if settings.only in name]
    with ProcessPoolExecutor(settings.processes) as pool:
        cells: list[coverage.Cell] = []
        for system_cells in pool.map(partial(coverage.measure, runs=settings.runs, seed=settings.seed), names):
            cells += system_cells
            print(line(system_cells), flush=True)
    print(coverage.table(cells))
    if settings.only:
        return
    with ProcessPoolExecutor(settings.processes) as pool:
        measured = pool.map(partial(confirmed.measure, runs=settings.runs, seed=settings.seed), confirmed.NAMES)
        verdicts = [cell for system_verdicts in measured for cell in system_verdicts]
    print(confirmed.table(verdicts))
    shares = {
        "winners": decisions.winners(2 * settings.runs, settings.seed),
        "called unsteady": decisions.steady(settings.runs, settings.seed),
        "called lock step": decisions.lock_steps(settings.runs, settings.seed),
    }
    for title, by_name in shares.items():
        print(title)
        for name, share in by_name.items():
            print(f"  {name:60s} {100 * share:5.1f} %")
    gate_cells = gates.measure(2 * settings.runs, settings.seed)
    repeat_cells = pooled_percentiles.measure(settings.runs, settings.seed)
    bias_cells = [cell for step in bias.STEPS for cell in bias.measure(step, settings.runs // 20, settings.seed)]
    print(*gate_cells, *repeat_cells, *bias_cells, sep="\n")
    command = f"python -m validation.statistics --runs {settings.runs} --seed {settings.seed}"
    results: dict[str, dict[str, Any]] = {
        "coverage.json": {"cells": [asdict(cell) for cell in cells]},
        "decisions.json": {"shares": shares},
        "confirmed.json": {"cells": [asdict(cell) for cell in verdicts]},
        "gate.json": {"gates": [asdict(cell) for cell in gate_cells]},
        "repeats.json": {"cells": [asdict(cell) for cell in repeat_cells]},
        "bias.json": {"answers": bias.LENGTHS, "stages": [asdict(cell) for cell in bias_cells]},
    }
    for name, content in results.items():
        write_simulation(name, command, seed=settings.seed, **content)


def line(cells: list[coverage.Cell]) -> str:
    """Write the coverage of each number in per cent, with the share of simulations that showed it if below 90 %."""
    texts = []
    for cell in cells:
        covered = "n/a" if cell.coverage is None else f"{100 * cell.coverage:.1f}"
        texts.append(f"{cell.number} {covered}" + (f" ({100 * cell.shown:.0f} %)" if 0 < cell.shown < 0.9 else ""))
    return f"{cells[0].system}: {cells[0].requests} requests, ≈{cells[0].effective}: " + ", ".join(texts)


if __name__ == "__main__":
    main()
