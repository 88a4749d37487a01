"""Does a fleet of the size that `enginebench plan` names serve what the plan promised?

    python -m validation.plan.planned_fleet --output validation/results/planned_fleet.json    # about 14 minutes

One replica of the fake engine, whose batch has a known cost, is measured at loads in mixed order. The planned number of
replicas for a peak is started behind HAProxy with round robin, and the peak is applied. The row compares the share of
requests that met every objective with the predicted share.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.plan.fleet import Attainment
from enginebench.analysis.plan.simulate import simulate
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Rate
from enginebench.records.slo import parse_objectives
from loadtests.harness.command.server_process import PYTHON
from validation.plan.load_balancer import find_haproxy, load_balancer
from validation.processes import started_server
from validation.program import ROOT, command_line, write

# Steps are long compared with the lateness of a busy machine.
BATCH = ("step=0.1", "step_per_running=0.005", "step_per_prompt_token=0.0005", "concurrency=16")
ASKED = ("--prompt-tokens", "uniform:20-100", "--output-tokens", "uniform:4-16")
LOADS, LOAD_SECONDS = "4,16,2,20,8,12", 25
RATE, SECONDS, WARM_UP = 15.0, 290.0, 20.0  # 4 350 requests of the window
OBJECTIVES = ("ttft_p90=0.4", "e2e_p90=4")
POINTS = 0.02  # by which attainment may differ from the prediction


@dataclass(frozen=True, slots=True)
class Row:
    """Shares of requests that met every objective. `low` and `high` hold nine in ten of the predicted seeds."""

    replicas: int  # as planned and as started
    rate: float
    requests: int
    predicted: float
    low: float
    high: float
    attained: float
    failed: int
    load_average: float  # the machine's, before the fleet was started

    @property
    def difference(self) -> float:
        return self.attained - self.predicted


def enginebench(*arguments: str) -> str:
    """Return the output of the command. End the program if it failed; exit code 1 may be only a missed objective."""
    done = subprocess.run(
        [*PYTHON, "-m", "enginebench", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        raise SystemExit(f"enginebench {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def measure_replica(runs: Path) -> Path:
    """Measure one replica under several loads."""
    options = [word for option in BATCH for word in ("-o", option)]
    enginebench(
        "run", "concurrent", "--engine", "fake", *options, "--stages", LOADS, "--stage-seconds", str(LOAD_SECONDS),
        *ASKED, "--runs", str(runs), "--allow-invalid",
    )  # fmt: skip
    (meta,) = runs.glob("*/meta.json")
    return meta.parent


def planned(run: Path) -> Attainment:
    """Simulate the peak on the planned number of replicas."""
    plan = simulate([load_run(run)], Rate(RATE), SECONDS, parse_objectives(OBJECTIVES))
    if plan.replicas is None:
        raise SystemExit(f"the peak cannot be simulated: {plan.missing}")
    return plan.replicas.chosen


@contextmanager
def fleet(haproxy: str, replicas: int, folder: Path, batch: tuple[str, ...] = BATCH) -> Iterator[str]:
    """Yield the URL of the balancer in front of replicas of the measured engine."""
    options = [word for option in batch for word in ("-o", option)]
    command = [*PYTHON, "-m", "enginebench", "serve", "fake", *options, "--port", "0"]
    with ExitStack() as stack:
        ports = [stack.enter_context(started_server(command))[1] for _ in range(replicas)]
        yield stack.enter_context(load_balancer(haproxy, ports, folder))


def attained(
    url: str, runs: Path, lengths: tuple[str, ...], rate: float, seconds: float, warm_up: float, slo: tuple[str, ...]
) -> tuple[float, int, int]:
    """Send Poisson arrivals.

    Return the share of requests that met every objective `slo`, their number, and how many failed.
    """
    enginebench(
        "run", "rate", "--url", url, "--rate", f"{rate:g}", "--stage-seconds", f"{seconds + warm_up:g}",
        "--warm-up", f"{warm_up:g}", *lengths, "--runs", str(runs), "--allow-invalid",
    )  # fmt: skip
    (meta,) = runs.glob("*/meta.json")
    (stage,) = summarise(load_run(meta.parent), parse_objectives(list(slo))).stages
    share = stage.value("attainment")
    assert share is not None
    return share, stage.requests, stage.failed


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    haproxy = find_haproxy()
    if haproxy is None:
        sys.exit("HAProxy is not installed; `make system` installs it where it may.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = measure_replica(folder / "replica")
        plan = planned(run)
        print(f"{RATE:g} req/s: {plan.replicas} replicas", flush=True)
        load_average = os.getloadavg()[0]
        with fleet(haproxy, plan.replicas, folder) as url:
            got, requests, failed = attained(url, folder / "fleet", ASKED, RATE, SECONDS, WARM_UP, OBJECTIVES)
        share = plan.share
        row = Row(plan.replicas, RATE, requests, share.median, share.low, share.high, got, failed, load_average)
        print(
            f"{row.replicas} replicas: predicted {row.predicted:.1%} [{row.low:.1%}, {row.high:.1%}], "
            f"attained {row.attained:.1%} of {requests:,} requests: {100 * row.difference:+.1f} points",
            flush=True,
        )
    write(arguments.output, batch=BATCH, objectives=OBJECTIVES, rows=[asdict(row) | {"difference": row.difference}])
    sys.exit(0 if abs(row.difference) <= POINTS else 1)


if __name__ == "__main__":
    main()
