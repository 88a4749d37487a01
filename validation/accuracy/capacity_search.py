"""Does `enginebench run capacity` find, in real time, the capacity that a server has by an exact law?

    python -m validation.accuracy.capacity_search                # up to 5 minutes
    python -m validation.accuracy.capacity_search --output validation/results/capacity_search.json

The scripted engine with so many places, each of which a request holds for a fixed time, behind this project's server is
an M/D/c queue: the rate at which 95 % of the waits are within a limit is known (Franx 2001). What the server itself
costs a request is not in the law, so places are held long enough for that to be small.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from enginebench.records.files import read_meta
from loadtests.harness.command.server_process import PYTHON
from validation.program import command_line, print_fields, write
from validation.statistics.capacity_systems import mdc_capacity

PLACES, SERVICE = 16, 0.1  # seconds for which a request holds its place
LIMIT = 0.5  # of the wait, in service times
Q = 0.95
SECONDS = 240.0
CLOSE = 0.05  # share of the truth within which an estimate should be


@dataclass(frozen=True, slots=True)
class Found:
    """Requests per second. `holds`: the true capacity lies within the certified bracket."""

    objective: str
    capacity: float
    state: str
    estimate: float | None
    met: float | None
    missed: float | None
    error: float | None  # of the estimate, as a share
    holds: bool
    requests: int  # that were judged
    probes: int
    seconds: float
    load_average: float  # of the machine, before the search


def search(seed: int) -> Found:
    objective = f"ttft_p{100 * Q:g}={(1 + LIMIT) * SERVICE:g}"
    capacity = mdc_capacity(LIMIT, Q, PLACES) / SERVICE
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        command = [*PYTHON, "-m", "enginebench", "run", "capacity", "--engine", "fake"]
        command += ["--runs", name, "--allow-invalid"]
        command += ["-o", f"concurrency={PLACES}", "-o", f"ttft={SERVICE}", "--output-tokens", "1"]
        command += ["--prompt-tokens", "32", "--by", "rate", "--slo", objective, "--seed", str(seed)]
        command += ["--search-range", "40-1000", "--search-seconds", f"{SECONDS:g}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        found = [path.parent for path in Path(name).glob("*/meta.json")]
        if not found:
            sys.exit(f"the search could not be made:\n{done.stderr[-3000:]}")
        meta = read_meta(found[0])
    trail = meta.search
    assert trail is not None
    return Found(
        objective=objective,
        capacity=capacity,
        state=trail.state,
        estimate=trail.estimate,
        met=trail.met,
        missed=trail.missed,
        error=None if trail.estimate is None else trail.estimate / capacity - 1,
        holds=trail.met is not None and trail.missed is not None and trail.met <= capacity <= trail.missed,
        requests=trail.requests,
        probes=len(trail.probes),
        seconds=(meta.stages[-1].end or 0) / 1e9,
        load_average=load_average,
    )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = search(arguments.seed)
    print_fields(asdict(found))
    write(arguments.output, search=asdict(found))
    good = found.state == "found" and found.holds and abs(found.error or 0.0) <= CLOSE
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
