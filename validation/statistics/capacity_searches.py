"""Simulate the search for capacity, in virtual time, on servers of known capacity:  make searches

The search of real runs gets the same counts as in a real run. Requests are all sent ones, warm-ups included. Writes
validation/results/capacity.json, with its seed and command, and prints the table of docs/capacity-search.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field

import numpy as np

from loadtests.harness.schedule.search.capacity_search import Probe, Search, SearchGoal
from loadtests.harness.schedule.search.evidence import SLOW, ProbeOutcomes
from validation.program import write_simulation
from validation.statistics.capacity_systems import SYSTEMS, Q, System
from validation.statistics.systems import Generator

PER_SLICE = 4  # requests
CLOSE = 0.05  # an estimate counts as close within this share of the true capacity
PRECISIONS = (0.3, 0.2, 0.15)  # half the bracket as a share of its middle
MAX_REQUESTS = 60_000  # after which a search is abandoned
SEED, SEARCHES = 20261127, 150


@dataclass(frozen=True, slots=True)
class Searched:
    """The outcome of a search. `error` is that of the estimate, as a share; `reached` has the number of requests after
    which the bracket was as precise as each of `PRECISIONS`."""

    right: bool  # no certificate contradicts the true capacity
    error: float
    requests: int
    reached: dict[float, int]


@dataclass(frozen=True, slots=True)
class Cell:
    """All searches of one system. Requests are medians; `None` if fewer than half of the searches came so far."""

    system: str
    capacity: float
    searches: int
    right: float
    close: float
    early: float  # share of searches with a precision of 30 % within 10 000 requests
    reached: dict[str, float | None] = field(default_factory=dict)


def search_once(system: System, capacity: float, seed: int) -> Searched:
    rng = np.random.default_rng([seed, 13])
    start = system.saturation / 20
    search = Search(SearchGoal((1 - Q,), min(PRECISIONS), start, start / 1024, warm_up=10 * system.limit))
    requests, reached = 0, dict[float, int]()
    while (probe := search.probe) is not None and requests < MAX_REQUESTS:
        requests += run_probe(system, search, probe, rng)
        reached = {precision: requests for precision in PRECISIONS if search.width <= precision} | reached
    right = (search.met or 0.0) <= capacity <= (search.missed or math.inf)
    return Searched(right, (search.estimate or math.inf) / capacity - 1, requests, reached)


def run_probe(system: System, search: Search, probe: Probe, rng: Generator) -> int:
    """Apply one probe until the search has decided, and return the number of requests sent by then."""
    warm_up = max(probe.warm_up_requests, round(probe.warm_up * probe.load))
    slices = probe.most_requests // PER_SLICE + 1
    trace = system.run(probe.load, warm_up + slices * PER_SLICE, rng)
    latency = trace.latency[warm_up:].reshape(slices, PER_SLICE)
    missed, slow = ((latency > share * system.limit).sum(axis=1).tolist() for share in (1.0, SLOW))
    stay = float(np.mean(trace.ended - trace.sent))
    while True:
        count = min(math.ceil(min(search.next_look, probe.most_requests) / PER_SLICE), slices)
        ended = search.look(
            ProbeOutcomes([PER_SLICE] * count, [missed[:count]], [slow[:count]], stay), last=count == slices
        )
        if ended is not None:
            return warm_up + ended.outcomes.total


def measure(system: System, capacity: float, seeds: Sequence[int]) -> Cell:
    searched = [search_once(system, capacity, seed) for seed in seeds]
    medians = {p: float(np.median([search.reached.get(p, math.inf) for search in searched])) for p in PRECISIONS}
    return Cell(
        system=f"{system.name}, p{100 * Q:g}",
        capacity=capacity,
        searches=len(searched),
        right=float(np.mean([search.right for search in searched])),
        close=float(np.mean([abs(search.error) <= CLOSE for search in searched])),
        early=float(np.mean([search.reached.get(0.3, math.inf) <= 10_000 for search in searched])),
        reached={f"{p:g}": value if math.isfinite(value) else None for p, value in medians.items()},
    )


def measure_one(index: int, searches: int, seed: int) -> Cell:
    system = SYSTEMS[index]
    return measure(system, system.capacity(np.random.default_rng([seed, 12])), range(seed, seed + searches))


def table(cells: Sequence[Cell]) -> str:
    """Write the Markdown table of docs/capacity-search.md."""
    widths = [f"requests until ± {100 * p:g} %" for p in PRECISIONS]
    headers = ["system", "capacity", "bracket right", "estimate within 5 %", *widths, "± 30 % by 10 000"]
    lines = ["| " + " | ".join(headers) + " |", "|---" * len(headers) + "|"]
    for cell in cells:
        reached = [f"{value:,.0f}" if value is not None else "more" for value in cell.reached.values()]
        shares = [f"{100 * share:.0f} %" for share in (cell.right, cell.close, cell.early)]
        row = [cell.system, f"{cell.capacity:.4g}", *shares[:2], *reached, shares[2]]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.statistics.capacity_searches", description=__doc__)
    parser.add_argument("--searches", type=int, default=SEARCHES, help=f"of each system (default {SEARCHES})")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--processes", type=int, default=2)
    settings = parser.parse_args()
    command = f"python -m validation.statistics.capacity_searches --searches {settings.searches} --seed {settings.seed}"
    with ProcessPoolExecutor(settings.processes) as pool:
        running = [pool.submit(measure_one, k, settings.searches, settings.seed) for k in range(len(SYSTEMS))]
        cells = []
        for future in running:
            cells.append(future.result())
            print(table(cells).splitlines()[-1], file=sys.stderr, flush=True)
    write_simulation("capacity.json", command, systems=[asdict(cell) for cell in cells])
    print(table(cells))


if __name__ == "__main__":
    main()
