"""How often verdicts are wrong: winners between engines, steadiness, users in lock step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from scipy.signal import lfilter

from enginebench.analysis.engine_runs import engine_runs_of
from enginebench.analysis.stats.intervals import bin_events
from enginebench.analysis.stats.steadiness import lock_step, steadiness
from enginebench.analysis.summary.run_summary import FlowSeries, RunSummary
from enginebench.analysis.verdict.comparison import Comparison, compare, ranking
from enginebench.records.findings.load import LOCK_STEP
from enginebench.records.metrics import BY_NAME, THROUGHPUT
from enginebench.records.rules import SIGNIFICANCE
from enginebench.records.view import EMPTY, Estimate, StageView
from validation.statistics import systems
from validation.statistics.systems import Floats, Generator

RUN_TO_RUN = 0.03
INSIDE = 0.01
REPEATS = 5


def throughputs(rng: Generator, engines: int, drift: float = 0.0) -> dict[str, list[float]]:
    """Draw a value per engine and repeat, with spread between runs and inside each, and a drift shared by a repeat."""
    noise = RUN_TO_RUN * rng.standard_normal((engines, REPEATS)) + INSIDE * rng.standard_normal((engines, REPEATS))
    return dict(zip(ascii_lowercase, np.exp(noise + drift * rng.standard_normal(REPEATS)).tolist(), strict=False))


def scaled(runs: dict[str, list[float]], factors: Mapping[str, float]) -> dict[str, list[float]]:
    return {name: [factors.get(name, 1.0) * value for value in values] for name, values in runs.items()}


@cache
def template() -> tuple[RunSummary, StageView]:
    """Return a run without requests, and its only stage, whose throughput is set later."""
    stage = StageView(
        index=0,
        label="8 users",
        load=8.0,
        load_unit="users",
        start=0.0,
        end=60.0,
        outcomes={"ok": 10_000},
        metrics=dict.fromkeys(BY_NAME, EMPTY),
        quantities={},
    )
    facts: dict[str, Any] = dict.fromkeys(("run_id", "started_at", "url", "model", "engine"), "")
    run = RunSummary(
        **facts,
        scenario="concurrent",
        workload={},
        host={},
        versions={},
        label="",
        command=(),
        folder=Path("none"),
        requests=0,
        objectives=(),
        stages=(stage,),
        flow=FlowSeries(1.0, (), ()),
        findings=(),
    )
    return replace(run, engine=None), stage


def compared(throughput: Mapping[str, list[float]], paired: bool) -> Comparison:
    """Compare the best engine with the next best one. Runs are interleaved; with `paired`, all engines of a repeat have
    the same prompts."""
    run, stage = template()
    summaries = []
    for place, (label, values) in enumerate(throughput.items()):
        for repeat, value in enumerate(values):
            view = replace(stage, quantities={THROUGHPUT: Estimate(value)})
            started = f"2026-11-21T{10 + repeat}:{place:02d}:00+00:00"
            prompts = {"prompt_set": str(repeat) if paired else label}
            facts: dict[str, Any] = {"started_at": started, "workload": prompts, "stages": (view,)}
            summaries.append(replace(run, label=label, repeat=repeat, **facts))
    ranked = ranking(engine_runs_of(summaries), stage.label, {})
    comparisons = compare(ranked, stage.label)
    return next(
        comparison
        for comparison in comparisons
        if comparison.engine == ranked[0].label and comparison.column.key == THROUGHPUT
    )


def winners(runs: int, seed: int) -> dict[str, float]:
    """Return shares of simulated comparisons by case: false winners, true winners, and the coverage of the ratio."""
    rng = np.random.default_rng([seed, 1])
    shares: dict[str, list[bool]] = {}
    for _ in range(runs):
        for paired in (False, True):
            two, eleven = throughputs(rng, 2), throughputs(rng, 11)
            two_best = scaled(eleven, dict.fromkeys(sorted(eleven)[2:], 0.6))
            twins, equals, best = (compared(group, paired) for group in (two, eleven, two_best))
            better, among = (compared(scaled(group, {"a": 1.2}), paired) for group in (two, eleven))
            low, high = twins.ratio.low or math.inf, twins.ratio.high or 0.0
            seen = {
                "false winner, 2 identical engines": twins.significant,
                "false winner, 2 identical engines, no margin": by_chance(twins),
                "false winner, 11 identical engines": equals.significant,
                "false winner, 2 identical and 9 slower engines": best.significant,
                "false winner, 2 identical and 9 slower engines, no margin": by_chance(best),
                "true 1.2x found": better.significant and better.engine == "a",
                "true 1.2x found among 11": among.significant and among.engine == "a",
                "coverage of the ratio": low <= 1 <= high,
            }
            for name, value in seen.items():
                shares.setdefault(f"{name}, {'paired' if paired else 'unpaired'}", []).append(bool(value))
    return {name: float(np.mean(values)) for name, values in shares.items()}


def by_chance(comparison: Comparison) -> bool:
    """Return whether p alone would call the difference significant."""
    return comparison.p is not None and comparison.p <= SIGNIFICANCE


def steady_series(rng: Generator, points: int, rho: float) -> Floats:
    """Draw an AR(1) series with mean 10 and standard deviation 2."""
    shocks = rng.standard_normal(points + 300) * math.sqrt(1 - rho**2)
    return np.asarray(10 + 2 * lfilter([1], [1, -rho], shocks)[300:], dtype=np.float64)


def steady(runs: int, seed: int) -> dict[str, float]:
    """Return the shares of simulated series that are called unsteady, by case."""
    rng = np.random.default_rng([seed, 2])
    shares: dict[str, float] = {}
    for points in (60, 120, 240):
        ramp = np.linspace(0, 1, points)
        for rho in (0.0, 0.5, 0.8):
            shapes = {"steady": 0 * ramp, "backlog grows": 20 * ramp, "initial transient": 12 * np.exp(-ramp / 0.08)}
            for shape, added in shapes.items():
                called = [steadiness(steady_series(rng, points, rho) + added) for _ in range(runs)]
                shares[f"{shape}, {points} points, AR(1) {rho:g}"] = float(np.mean([c is False for c in called]))
    few = partial(systems.closed_queue, users=40, servers=4, requests=3000, think=1.8)
    for name, system in {
        "closed loop, throughput": few,
        "closed loop at its limit, throughput": partial(systems.closed_queue, requests=3000),
        "4 pinned replicas, throughput": partial(systems.pinned, users=40, requests=2000),
    }.items():
        traces = system(rng, runs)
        called = [steadiness(bin_events(t.ended, 0, t.seconds, bins=120)) for t in traces]
        shares[name] = float(np.mean([c is False for c in called]))
    return shares


def lock_steps(runs: int, seed: int) -> dict[str, float]:
    """Return the shares of simulated runs that are called lock step, by case."""
    rng = np.random.default_rng([seed, 3])
    cases = {
        "closed loop, 40 users, 4 servers": partial(systems.closed_queue),
        "closed loop, 40 users, 40 servers, lengths ± 50 %": partial(
            systems.closed_queue, servers=40, draw=systems.lognormal(0.5)
        ),
        "4 pinned replicas, 40 users": partial(systems.pinned),
        "continuous batching, lengths ± 50 %, starts over 10 s": partial(
            systems.batching, draw=systems.lognormal(0.5), ramp=10.0, seconds=60
        ),
        # The finding's remedies for lock step: --output-tokens uniform:32-96, or pauses as long as an answer.
        "40 slots, lengths uniform from a half to one and a half": partial(
            systems.batching, slots=40, draw=systems.uniform(0.5), seconds=60
        ),
        "16 slots, lengths uniform from a half to one and a half": partial(
            systems.batching, slots=16, draw=systems.uniform(0.5), seconds=60
        ),
        "40 slots, pauses of 8 s": partial(systems.batching, slots=40, think=8.0, seconds=60),
        "16 slots, pauses of 8 s": partial(systems.batching, slots=16, think=8.0, seconds=60),
        "convoys: 40 users, 16 slots": partial(systems.batching, slots=16, seconds=60),
        "convoys: 40 users, 40 slots": partial(systems.batching, slots=40, seconds=60),
        "convoys: 40 users, 16 slots, pauses of 0.5 s": partial(systems.batching, slots=16, think=0.5, seconds=60),
    }
    shares = {}
    for name, system in cases.items():
        indices = [lock_step(trace.ended, (0, trace.seconds), 40) for trace in system(rng, min(runs, 100))]
        shares[name] = float(np.mean([index is not None and index > LOCK_STEP for index in indices]))
    return shares
