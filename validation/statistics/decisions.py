"""How often verdicts are wrong: winners between engines, steadiness, users in lock step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from string import ascii_lowercase

import numpy as np
from scipy.signal import lfilter

from analysis.stats.intervals import bin_events
from analysis.stats.repeats import ratio_interval, winner
from analysis.stats.steadiness import LOCK_STEP, lock_step, steadiness
from validation.statistics import systems
from validation.statistics.systems import Floats, Generator

RUN_TO_RUN = 0.03
INSIDE = 0.01
REPEATS = 5


def throughputs(rng: Generator, engines: int, drift: float = 0.0) -> dict[str, list[float]]:
    """By engine, one value per repeat: a spread between runs, one inside each, a drift that a repeat's runs share."""
    noise = RUN_TO_RUN * rng.standard_normal((engines, REPEATS)) + INSIDE * rng.standard_normal((engines, REPEATS))
    return dict(zip(ascii_lowercase, np.exp(noise + drift * rng.standard_normal(REPEATS)).tolist(), strict=False))


def scaled(runs: dict[str, list[float]], factors: Mapping[str, float]) -> dict[str, list[float]]:
    return {name: [factors.get(name, 1.0) * value for value in values] for name, values in runs.items()}


def winners(runs: int, seed: int) -> dict[str, float]:
    """Shares of simulated comparisons."""
    rng = np.random.default_rng([seed, 1])
    found: dict[str, list[bool]] = {}
    for _ in range(runs):
        for paired in (False, True):
            two, eleven = throughputs(rng, 2), throughputs(rng, 11)
            two_best = scaled(eleven, dict.fromkeys(sorted(eleven)[2:], 0.6))
            ratio = ratio_interval(two["a"], two["b"], paired)
            false_winners = {
                "2 identical engines": winner(two, paired=paired),
                "2 identical engines, no margin": winner(two, margin=1.0, paired=paired),
                "11 identical engines": winner(eleven, paired=paired),
                "2 identical and 9 slower engines": winner(two_best, paired=paired),
                "2 identical and 9 slower engines, no margin": winner(two_best, margin=1.0, paired=paired),
            }
            seen = {f"false winner, {among}": ranking.winner is not None for among, ranking in false_winners.items()}
            seen |= {
                "true 1.2x found": winner(scaled(two, {"a": 1.2}), paired=paired).winner == "a",
                "true 1.2x found among 11": winner(scaled(eleven, {"a": 1.2}), paired=paired).winner == "a",
                "coverage of the ratio": (ratio.low or math.inf) <= 1 <= (ratio.high or 0.0),
            }
            for name, value in seen.items():
                found.setdefault(f"{name}, {'paired' if paired else 'unpaired'}", []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def steady_series(rng: Generator, points: int, rho: float) -> Floats:
    """A level of 10 and an AR(1) of standard deviation 2."""
    shocks = rng.standard_normal(points + 300) * math.sqrt(1 - rho**2)
    return np.asarray(10 + 2 * lfilter([1], [1, -rho], shocks)[300:], dtype=np.float64)


def steady(runs: int, seed: int) -> dict[str, float]:
    """Shares called unsteady."""
    rng = np.random.default_rng([seed, 2])
    found: dict[str, float] = {}
    for points in (60, 120, 240):
        ramp = np.linspace(0, 1, points)
        for rho in (0.0, 0.5, 0.8):
            shapes = {"steady": 0 * ramp, "backlog grows": 20 * ramp, "initial transient": 12 * np.exp(-ramp / 0.08)}
            for shape, added in shapes.items():
                called = [steadiness(steady_series(rng, points, rho) + added) for _ in range(runs)]
                found[f"{shape}, {points} points, AR(1) {rho:g}"] = float(np.mean([c is False for c in called]))
    few = partial(systems.closed_queue, users=40, servers=4, requests=3000, think=1.8)
    for name, system in {
        "closed loop, throughput": few,
        "closed loop at its limit, throughput": partial(systems.closed_queue, requests=3000),
        "4 pinned replicas, throughput": partial(systems.pinned, users=40, requests=2000),
    }.items():
        traces = system(rng, runs)
        called = [steadiness(bin_events(t.ended, 0, t.seconds, bins=120)) for t in traces]
        found[name] = float(np.mean([c is False for c in called]))
    return found


def lock_steps(runs: int, seed: int) -> dict[str, float]:
    """Shares called lock step."""
    rng = np.random.default_rng([seed, 3])
    cases = {
        "closed loop, 40 users, 4 servers": partial(systems.closed_queue),
        "closed loop, 40 users, 40 servers, lengths ± 50 %": partial(
            systems.closed_queue, servers=40, draw=systems.lognormal(0.5)
        ),
        "4 pinned replicas, 40 users": partial(systems.pinned),
        "continuous batching, lengths ± 50 %, starts over 10 s": partial(
            systems.batching, spread=0.5, ramp=10.0, seconds=60
        ),
        "convoys: 40 users, 16 slots": partial(systems.batching, slots=16, seconds=60),
        "convoys: 40 users, 40 slots": partial(systems.batching, slots=40, seconds=60),
    }
    found = {}
    for name, system in cases.items():
        indices = [lock_step(trace.ended, (0, trace.seconds), 40) for trace in system(rng, min(runs, 100))]
        found[name] = float(np.mean([index is not None and index > LOCK_STEP for index in indices]))
    return found
