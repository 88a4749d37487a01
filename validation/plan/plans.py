"""The errors of `enginebench plan` on servers with a known step cost:  make plans

Held-out stages: each stage is predicted from a fit to the others, in a closed loop, and in an open loop on the same
arrivals. Bands: for stages with new arrivals, the 90 % band over futures should contain nine in ten. Writes
validation/results/plans.json, with its seed and command.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.plan.accuracy import fit_stages, hold_out
from enginebench.analysis.plan.measured import MeasuredStage, measured_stages
from enginebench.analysis.plan.model import futures
from enginebench.analysis.plan.requests import FIGURES, band, figures, pooled
from enginebench.analysis.plan.simulation import poisson_arrivals, serve
from enginebench.records.load import Load
from validation.plan.batching_server import Asked, BatchingServer, rates, users, write_run
from validation.program import write_simulation

BAND_FUTURES = 40
WARM_UP = 10.0  # seconds
SHORT_PROMPTS, LONG_PROMPTS = Asked(), Asked(prompt=(20, 4000))
FAST = BatchingServer(base=0.01, per_running=0.001, per_token=1e-4, slots=32, jitter=0.1)  # 11 ms, 400 with a prompt


@dataclass(frozen=True, slots=True)
class System:
    server: BatchingServer
    loads: tuple[Load, ...]
    asked: Asked = SHORT_PROMPTS


SYSTEMS: Mapping[str, System] = {
    "closed loop": System(BatchingServer(jitter=0.02), users(2, 4, 8, 12, 16, 24)),
    "closed loop, decoding pauses for prefill": System(
        BatchingServer(jitter=0.02, pauses=True), users(2, 4, 8, 12, 16, 24)
    ),
    "closed loop, steps of 4 ms": System(
        BatchingServer(base=0.004, per_running=0.0002, per_token=2e-5, slots=64, jitter=0.02), users(8, 16, 32, 48)
    ),
    "closed loop, 10 % jitter": System(BatchingServer(jitter=0.1), users(4, 8, 16, 24)),
    "closed loop, steps of 11 to 400 ms": System(FAST, users(2, 4, 8, 16, 24), LONG_PROMPTS),
    "closed loop, one request alone costs a third": System(
        BatchingServer(base=0.01, batched=0.025, jitter=0.05), users(1, 2, 4, 8, 12)
    ),
    "closed loop, flat up to 8 requests": System(
        BatchingServer(base=0.03, per_running=0.0, per_running_beyond=0.004, knee=8, slots=32, jitter=0.02),
        users(2, 4, 6, 8, 12, 16, 24),
    ),
    "open loop": System(BatchingServer(jitter=0.02), rates(1, 2, 3, 4, 5)),
    "open loop, decoding pauses for prefill": System(BatchingServer(jitter=0.02, pauses=True), rates(1, 2, 3, 4, 5)),
    "one request at a time": System(BatchingServer(jitter=0.02, slots=1), rates(0.2, 0.4, 0.6, 0.8)),
}


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of one system's held-out stages, by figure: their mean and the largest."""

    system: str
    stages: int
    mean: Mapping[str, float]
    largest: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of runs for which a figure was inside its predicted band."""

    system: str
    runs: int
    inside: Mapping[str, float]


def held_out(name: str, window: float, seed: int) -> Errors:
    system = SYSTEMS[name]
    stages = _stages(system, window, seed)
    held = hold_out(stages, fit_stages(stages, system.server.slots))
    errors = {figure: [error for load in held if math.isfinite(error := load.errors[figure])] for figure in FIGURES}
    return Errors(
        name,
        len(held),
        {figure: sum(of) / len(of) for figure, of in errors.items()},
        {figure: max(of, key=abs) for figure, of in errors.items()},
    )


def covered(run: int, rate: float, window: float, seed: int) -> dict[str, bool]:
    """Fit a model to the lower rates of a run, and check it at a higher rate with new arrivals."""
    system = System(BatchingServer(jitter=0.02), rates(0.4 * rate, 0.7 * rate, rate))
    *seen, unseen = _stages(system, window, seed * 1000 + run)
    model, end = fit_stages(seen, system.server.slots), WARM_UP + window
    lengths, predictions = pooled([stage.lengths for stage in seen]), []
    for future in futures(BAND_FUTURES, seed=run):
        rng = future.rng
        arrivals = poisson_arrivals(unseen.load.value, end, rng)
        served = serve(future.drifted(model), arrivals, lengths.drawn(len(arrivals), rng), rng)
        predictions.append(figures(served, WARM_UP, end))
    predicted = {figure: band([prediction[figure] for prediction in predictions]) for figure in FIGURES}
    return {figure: predicted[figure].holds(unseen.figures[figure]) for figure in FIGURES}


def coverage(pool: ProcessPoolExecutor, rate: float, runs: int, window: float, seed: int) -> Coverage:
    runs_inside = list(pool.map(partial(covered, rate=rate, window=window, seed=seed), range(runs)))
    shares = {figure: sum(inside[figure] for inside in runs_inside) / runs for figure in FIGURES}
    return Coverage(f"open loop, {rate:g} req/s, new arrivals", runs, shares)


def _stages(system: System, window: float, seed: int) -> list[MeasuredStage]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        run = write_run(folder, system.server, system.loads, system.asked, seed, warm_up=WARM_UP, window=window)
        return measured_stages([load_run(run)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.plan.plans", description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="runs with arrivals of their own (default 40)")
    parser.add_argument("--seconds", type=float, default=300.0, help="window of a held-out stage (default 300)")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--processes", type=int, default=2)
    settings = parser.parse_args()
    with ProcessPoolExecutor(settings.processes) as pool:
        errors = []
        for system in pool.map(partial(held_out, window=settings.seconds, seed=settings.seed), SYSTEMS):
            errors.append(system)
            worst = ", ".join(f"{figure} {100 * error:+.1f} %" for figure, error in system.largest.items())
            print(f"{system.system}, {system.stages} stages, largest errors: {worst}", flush=True)
        shares = [coverage(pool, rate, settings.runs, 120.0, settings.seed) for rate in (3.0, 5.0)]
    for cover in shares:
        print(f"{cover.system}: " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in cover.inside.items()))
    assert all(math.isfinite(error) for system in errors for error in system.largest.values())
    command = (
        f"python -m validation.plan.plans --runs {settings.runs} --seconds {settings.seconds:g} --seed {settings.seed}"
    )
    bands = [asdict(cover) for cover in shares]
    write_simulation("plans.json", command, held_out=[asdict(system) for system in errors], bands=bands)


if __name__ == "__main__":
    main()
