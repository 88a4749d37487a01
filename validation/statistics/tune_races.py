"""Simulate `enginebench tune` on variants of known speed: false claims, winners, coverage and runs.

    python -m validation.statistics.tune_races

Writes validation/results/tune_races.json.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from enginebench.analysis.answer import TuneOutcome
from enginebench.studies.tune.course import Course
from validation.program import write_simulation
from validation.statistics.systems import Generator

DEFAULT = "v00"
RIGHT = 0.01  # a variant within 1 % of the best is right
OUTLIER, OUTLYING = -0.35, 0.05  # change of an outlying run's log score, and the share of such runs
DRIFT = 0.15  # change of the log score over 50 runs, in waves
WAVE = 37.0  # runs


def equal(n: int) -> list[float]:
    return [0.0] * n


def one_better(percent: float) -> Callable[[int], list[float]]:
    return lambda n: [math.log1p(percent / 100) if k == n // 2 else 0.0 for k in range(n)]


def ridge(n: int) -> list[float]:
    """Return log scores: the default 15 % below the best, five variants within 1 % of it, all others 4 % below it."""
    near = [0.15, 0.145, 0.145, 0.14, 0.14]
    return [0.0, *near, *[0.11] * (n - 6)]


def default_best(n: int) -> list[float]:
    return [0.0] + [-0.02 - 0.02 * (k % 5) for k in range(1, n)]


TRUTHS: Mapping[str, Callable[[int], list[float]]] = {
    "all equal": equal,
    "one 5 % better": one_better(5),
    "one 10 % better": one_better(10),
    "one 20 % better": one_better(20),
    "ridge": ridge,
    "default best": default_best,
}
CONDITIONS = {"": (False, False), "drift": (True, False), "outliers": (False, True), "drift and outliers": (True, True)}
CASES = [
    (truth, n, spread, condition)
    for n in (12, 40)
    for truth in TRUTHS
    for spread in (0.02, 0.04, 0.07)
    for condition in (CONDITIONS if n == 12 and spread == 0.04 else ("", "drift and outliers"))
]


@dataclass(frozen=True)
class Result:
    """Shares of `races`: `claimed` names a variant, `false` one that is not better than the default, `right` one within
    1 % of the best (the default, if no other is better), `right_or_none` a right one or none. `covered` is the coverage
    of the claimed ratios, `covered_all` of all. `regret` is the mean distance of claimed variants to the best."""

    truth: str
    variants: int
    spread: float
    condition: str
    races: int
    claimed: float
    false: float
    right: float
    right_or_none: float
    covered: float | None
    covered_all: float
    regret: float
    flattery: float
    runs: float
    runs_p95: float


class Machine:
    """Draws the scores of runs in the order of the calls: drift is a function of the number of runs so far."""

    def __init__(self, truth: Mapping[str, float], spread: float, drifts: bool, outliers: bool, rng: Generator) -> None:
        self._truth, self._spread, self._rng = truth, spread, rng
        self._drift = DRIFT if drifts else 0.0
        self._outlying = OUTLYING if outliers else 0.0
        self._phase = rng.uniform(0, 2 * math.pi)
        self.runs = 0

    def score(self, number: int, variant: str) -> float:
        self.runs += 1
        drift = self._drift * (self.runs / 50 + math.sin(self._phase + self.runs * 2 * math.pi / WAVE)) / 2
        outlier = OUTLIER if self._rng.random() < self._outlying else 0.0
        noise = self._spread * float(self._rng.standard_normal())
        return math.exp(self._truth[variant] + drift + outlier + noise)


def measure(case: tuple[str, int, float, str], races: int, seed: int) -> Result:
    name, n, spread, condition = case
    rng = np.random.default_rng([seed, CASES.index(case)])
    variants = [f"v{k:02d}" for k in range(n)]
    truth = dict(zip(variants, TRUTHS[name](n), strict=True))
    best = max(truth.values())
    claims, coverages, runs = [], [], []
    for race in range(races):
        machine = Machine(truth, spread, *CONDITIONS[condition], rng)
        course = Course(DEFAULT, f"{seed} {race}", machine.score)
        course.enter(variants[1:])
        course.run()
        runs.append(machine.runs)
        if not (winner := course.winner):
            continue
        ratio = course.confirmation.ratio
        assert ratio.value is not None
        assert ratio.low is not None
        assert ratio.high is not None
        covered = ratio.low <= math.exp(truth[winner]) <= ratio.high
        coverages.append(covered)
        if course.confirmation.outcome is TuneOutcome.CONFIRMED:
            claims.append((truth[winner], covered, math.log(ratio.value) - truth[winner]))
    rights = [effect >= best - RIGHT and effect > 0 for effect, _, _ in claims]
    none = races - len(claims)
    return Result(
        truth=name,
        variants=n,
        spread=spread,
        condition=condition,
        races=races,
        claimed=len(claims) / races,
        false=sum(effect <= 0 for effect, _, _ in claims) / races,
        right=(sum(rights) + (none if best <= 0 else 0)) / races,
        right_or_none=(sum(rights) + none) / races,
        covered=float(np.mean([covered for _, covered, _ in claims])) if claims else None,
        covered_all=float(np.mean(coverages)) if coverages else 1.0,
        regret=float(np.mean([best - effect for effect, _, _ in claims])) if claims else 0.0,
        flattery=float(np.mean([flattery for _, _, flattery in claims])) if claims else 0.0,
        runs=float(np.median(runs)),
        runs_p95=float(np.percentile(runs, 95)),
    )


def informed_regret(n: int, spread: float, runs: int, races: int, rng: Generator) -> float:
    """Return the mean regret on the ridge of a race of `runs` that knows the spread and how much variants differ, on a
    machine without drift or outliers. After one run of each variant, the four that are most likely the best run again
    (Thompson sampling)."""
    truth = np.array(ridge(n))
    regrets = []
    for _ in range(races):
        totals, counts = truth + spread * rng.standard_normal(n), np.ones(n)
        while True:
            precisions = counts / spread**2 + 1 / truth.std() ** 2
            means = (totals / spread**2 + truth.mean() / truth.var()) / precisions
            if counts.sum() + 4 > runs:
                break
            draws = means + rng.standard_normal((400, n)) / np.sqrt(precisions)
            chosen = np.argsort(np.bincount(draws.argmax(1), minlength=n))[-4:]
            totals[chosen] += truth[chosen] + spread * rng.standard_normal(4)
            counts[chosen] += 1
        regrets.append(truth.max() - truth[means.argmax()])
    return float(np.mean(regrets))


def line(result: Result) -> str:
    covered = "n/a" if result.covered is None else f"{100 * result.covered:.1f}"
    return (
        f"{result.truth:16} {result.variants:2} variants, {100 * result.spread:.0f} % {result.condition:18}: claimed "
        f"{100 * result.claimed:5.1f}, false {100 * result.false:4.1f}, right {100 * result.right:5.1f}, right or none "
        f"{100 * result.right_or_none:5.1f}, covered {covered} (all {100 * result.covered_all:.1f}), regret "
        f"{100 * result.regret:.2f}, flattery {100 * result.flattery:.2f}, runs {result.runs:.0f} "
        f"({result.runs_p95:.0f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.statistics.tune_races", description=__doc__)
    parser.add_argument("--races", type=int, default=500, help="races of each case (default 500)")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose truth contains this; nothing is written then")
    settings = parser.parse_args()
    cases = [case for case in CASES if settings.only in case[0]]
    results = []
    with ProcessPoolExecutor(settings.processes) as pool:
        for result in pool.map(partial(measure, races=settings.races, seed=settings.seed), cases):
            results.append(result)
            print(line(result), flush=True)
    rng = np.random.default_rng(settings.seed)
    informed = {
        f"{n} variants, {runs} runs": informed_regret(n, 0.07, runs, settings.races, rng)
        for n, runs in ((12, 36), (40, 106), (40, 200))
    }
    print("ridge, 7 %, a race that knows the spread:", informed)
    if not settings.only:
        command = f"python -m validation.statistics.tune_races --races {settings.races} --seed {settings.seed}"
        write_simulation(
            "tune_races.json",
            command,
            seed=settings.seed,
            cases=[asdict(result) for result in results],
            informed_regret=informed,
        )


if __name__ == "__main__":
    main()
