"""Simulate the search for capacity:  make searches

Writes validation/results/capacity.json, with its seed and command, and prints the table of docs/statistics.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict

from validation.program import RESULTS
from validation.statistics.capacity import Cell, capacity_of, measure, table
from validation.statistics.capacity_systems import HELD_OUT, JUDGED, TRUTH_REQUESTS, TUNED_ON

SYSTEMS = {"judged": JUDGED, "held out": HELD_OUT, "tuned on": TUNED_ON}


def measure_one(group: str, index: int, searches: int, seed: int, fixed: int) -> Cell:
    system = SYSTEMS[group][index]
    seeds = range(seed, seed + searches)
    capacity = capacity_of(system, seed, TRUTH_REQUESTS if group == "judged" else TRUTH_REQUESTS // 5)
    return measure(system, capacity, seeds, fixed if system.exact is not None and group == "judged" else 0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.statistics.searches", description=__doc__)
    parser.add_argument("--searches", type=int, default=200, help="searches of each system (default 200)")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fixed", type=int, default=20, help="searches by fixed probes, for comparison (default 20)")
    parser.add_argument("--groups", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS))
    settings = parser.parse_args()
    names = [(group, index) for group in settings.groups for index in range(len(SYSTEMS[group]))]
    cells: dict[str, list[Cell]] = {group: [] for group in settings.groups}
    command = f"python -m validation.statistics.searches --searches {settings.searches} --seed {settings.seed}"
    command += f" --fixed {settings.fixed} --groups " + " ".join(f"'{group}'" for group in settings.groups)
    with ProcessPoolExecutor(settings.processes) as pool:
        running = [pool.submit(measure_one, *name, settings.searches, settings.seed, settings.fixed) for name in names]
        for (group, _), one in zip(names, running, strict=True):
            cells[group].append(one.result())
            print(table(cells[group][-1:]).splitlines()[-1], file=sys.stderr, flush=True)
            found = {group: [asdict(cell) for cell in of_group] for group, of_group in cells.items()}
            (RESULTS / "capacity.json").write_text(json.dumps({"command": command} | found, indent=1) + "\n")
    for group, of_group in cells.items():
        print(f"{group}\n\n{table(of_group)}")


if __name__ == "__main__":
    main()
