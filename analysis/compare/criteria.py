"""Success criteria of a comparison, each checked against what was measured: met, missed, or what is lacking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.compare.contrasts import Contrasts
from analysis.compare.measures import MEMORY, THROUGHPUT
from analysis.units import format_count, format_ratio, format_share, significant
from analysis.verdict.comparison.compare import RUN_TO_RUN
from analysis.verdict.comparison.contenders import Contender, contenders_of
from analysis.verdict.finding import FEW_SAMPLES
from analysis.verdict.stages.stage import StageSummary
from analysis.verdict.statistics import Estimate, spread
from analysis.verdict.summary import RunSummary

SPEED_UP, LEAST_SPEED_UP = 2.0, 1.2  # over the baseline; below the least it is not called a speed-up
MEMORY_GROWTH = 1.05
GPU_BUSY = 0.7
DEVIATION = 0.1  # of TPOT, as a share of its mean: it does not depend on how long the answers were
SCALING = 0.9  # X(N) / (N · X(1))
AT_KNEE = 1.05

Answer = Literal["met", "missed", "not enough evidence", "not measured"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """`wanted` and `found` are texts for people; `value` is the number that was judged."""

    engine: str
    name: str
    wanted: str
    found: str
    answer: Answer
    value: float | None


def criteria(contrasts: Contrasts, summaries: Sequence[RunSummary]) -> tuple[Criterion, ...]:
    """Of every engine but the baseline, at the stage that is shown."""
    found: list[Criterion] = []
    for contender in contenders_of(summaries):
        if contender.label == contrasts.baseline:
            continue
        stages = contender.at(contrasts.stage)
        found += [_speed_up(contrasts, contender.label), _memory(contrasts, contender.label)]
        found += [_gpu(contender.label, stages), _between_runs(contender.label, stages)]
        found += [_deviation(contender.label, stages), _samples(contender.label, stages), _scaling(contender)]
    return tuple(found)


def _speed_up(contrasts: Contrasts, engine: str) -> Criterion:
    one = contrasts.shown.of(engine, THROUGHPUT)
    ratio = one.ratio if one is not None else Estimate(None)
    text = "n/a" if ratio.value is None else format_ratio(ratio.value, ratio.low, ratio.high)
    answer: Answer = "not measured" if ratio.value is None else "not enough evidence"
    if ratio.low is not None and ratio.high is not None:
        answer = "met" if ratio.low >= SPEED_UP else "missed" if ratio.high < SPEED_UP else "not enough evidence"
        if ratio.high < LEAST_SPEED_UP:
            text += ", no speed-up"
        elif ratio.high < SPEED_UP and ratio.low >= LEAST_SPEED_UP:
            text += f", a speed-up of at least {LEAST_SPEED_UP:g}×"
    wanted = f"≥ {SPEED_UP:g}× (≥ {LEAST_SPEED_UP:g}× counts as a speed-up)"
    return Criterion(engine, "tokens/s over the baseline", wanted, text, answer, ratio.value)


def _memory(contrasts: Contrasts, engine: str) -> Criterion:
    found = [one for gauge in MEMORY if (one := contrasts.shown.of(engine, gauge)) is not None]
    name, wanted = "memory over the baseline", f"≤ {MEMORY_GROWTH:g}×"
    if not found or found[0].theirs.mean == 0:
        return Criterion(engine, name, wanted, "n/a", "not measured", None)
    value = max(one.ours.mean / one.theirs.mean for one in found if one.theirs.mean)
    return Criterion(engine, name, wanted, f"{significant(value)}×", _answer(value <= MEMORY_GROWTH), value)


def _gpu(engine: str, stages: Sequence[StageSummary]) -> Criterion:
    levels = [level for stage in stages if (level := stage.telemetry_mean("gpu_utilisation")) is not None]
    name, wanted = "GPU busy under load", f"> {format_share(GPU_BUSY)}"
    if not levels:
        return Criterion(engine, name, wanted, "n/a", "not measured", None)
    value = sum(levels) / len(levels)
    return Criterion(engine, name, wanted, format_share(value), _answer(value > GPU_BUSY), value)


def _between_runs(engine: str, stages: Sequence[StageSummary]) -> Criterion:
    name, wanted = "tokens/s between runs", f"< {format_share(RUN_TO_RUN)}"
    values = [value for stage in stages if (value := stage.throughput.value) is not None]
    of_runs = spread(values) if values else None
    if of_runs is None or of_runs.deviation is None or not of_runs.mean:
        return Criterion(engine, name, wanted, "one run", "not measured", None)
    value = of_runs.deviation / of_runs.mean
    return Criterion(engine, name, wanted, format_share(value), _answer(value < RUN_TO_RUN), value)


def _deviation(engine: str, stages: Sequence[StageSummary]) -> Criterion:
    """The largest of the runs."""
    name, wanted = "standard deviation of TPOT", f"< {format_share(DEVIATION)} of the mean"
    of_runs = [stage.latencies["tpot"] for stage in stages]
    shares = [one.deviation / one.mean for one in of_runs if one.deviation is not None and one.mean]
    if not shares:
        return Criterion(engine, name, wanted, "n/a", "not measured", None)
    value = max(shares)
    return Criterion(engine, name, wanted, format_share(value), _answer(value < DEVIATION), value)


def _samples(engine: str, stages: Sequence[StageSummary]) -> Criterion:
    fewest = min((stage.ok for stage in stages), default=0)
    name, wanted = "requests in each run", f"≥ {FEW_SAMPLES}"
    return Criterion(engine, name, wanted, format_count(fewest), _answer(fewest >= FEW_SAMPLES), fewest)


def _scaling(contender: Contender) -> Criterion:
    """X(N)/(N·X(1)) at every load up to the knee N* = X_max / X(1), where the asymptotes of a closed loop meet
    (Denning & Buzen 1978). A load up to 5 % past it counts: X_max is measured."""
    name, wanted = "X(N) / (N · X(1)) up to the knee", f"≥ {SCALING:g}"
    served = dict(_served(contender))
    if 1.0 not in served or len(served) < 2:
        return Criterion(contender.label, name, wanted, "needs a stage with 1 user and others", "not measured", None)
    one, knee = served[1.0], max(served.values()) / served[1.0]
    efficiencies = {users: rate / (users * one) for users, rate in served.items() if 1 < users <= AT_KNEE * knee}
    if not efficiencies:
        text = f"no stage between 1 user and the knee at {significant(knee)} users"
        return Criterion(contender.label, name, wanted, text, "not measured", None)
    users, value = min(efficiencies.items(), key=lambda pair: pair[1])
    text = f"{significant(value)} at {users:g} users (knee at {significant(knee)})"
    return Criterion(contender.label, name, wanted, text, _answer(value >= SCALING), value)


def _served(contender: Contender) -> Iterator[tuple[float, float]]:
    """Mean output tokens per second by number of users."""
    for stage in contender.runs[0].stages:
        rate = contender.mean(lambda one: one.throughput.value, stage.label)
        if stage.load_unit == "users" and rate:
            yield stage.load, rate


def _answer(met: bool) -> Answer:
    return "met" if met else "missed"
