"""A day of traffic: how many replicas each part of it needs, and what autoscaling makes of that.

The day is a file of rates over time, or of requests with their times, which are counted by the minute. The replicas for
a few levels of its rate are found by simulation, those in between by interpolation. Attainment over the day comes from
slices, stratified by the load of a replica (Cochran 1977, Sampling Techniques, chapter 5), with their standard error.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from analysis.plan.engine.steps import Floats, Integers
from analysis.plan.fleet.replicas import WARM_UP, Fleet, Measured, fewest_count
from analysis.plan.simulation.outcome import good
from analysis.plan.simulation.trials import random_trial
from records.load import Rate

TIMES = ("seconds", "time", "timestamp")
RATES = ("rate", "req/s", "requests_per_second")
MINUTE = 60.0
LEVELS = 7  # of the rate, for which replicas are searched
LEVEL_SECONDS = 120.0
STRATA, SLICES = 8, 3  # slices of each stratum
SLICE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Day:
    """Requests per second in each part of `step` seconds."""

    step: float
    rates: Floats


@dataclass(frozen=True, slots=True)
class Share:
    """Share of the day's requests that meet every objective, and its standard error by the slices that were drawn."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Policy:
    """A number of replicas in each part of the day."""

    name: str
    peak: int
    mean: float
    attainment: Share


@dataclass(frozen=True, slots=True)
class DayPlan:
    """`needed` replicas in each part of the day, as a perfect autoscaler would have, and what policies make of it."""

    step: float
    rates: tuple[float, ...]
    needed: tuple[int, ...]
    start_up: float  # seconds until a new replica serves
    policies: tuple[Policy, ...]

    @property
    def sentence(self) -> str:
        told = [
            f"{one.name} {one.mean:.1f} replicas on average, {one.peak} at most, "
            f"{100 * one.attainment.value:.1f} % ± {100 * one.attainment.error:.1f} within the objectives"
            for one in self.policies
        ]
        return f"Over the {len(self.rates) * self.step / 3600:.3g} hours: {'; '.join(told)}."


def read_day(path: Path) -> Day:
    """A CSV file with a header: `seconds,rate`, or a time for each request. Raises `ValueError` with a sentence."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        columns = {name.strip().lower(): name for name in rows[0]} if rows else {}
        time = next(columns[name] for name in TIMES if name in columns)
        at = np.array([_seconds(row[time]) for row in rows])
        rate = next((columns[name] for name in RATES if name in columns), None)
        if rate is None:
            counts = np.bincount(((at - at.min()) / MINUTE).astype(np.int64))
            return Day(MINUTE, counts / MINUTE)
        rates = np.array([float(row[rate]) for row in rows])
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}.") from None
    except (StopIteration, ValueError, TypeError, csv.Error):
        rates = at = np.zeros(0)
    steps = np.diff(at)
    if len(at) < 2 or not np.allclose(steps, steps[0]) or steps[0] <= 0 or rates.min() < 0 or rates.max() <= 0:
        raise ValueError(
            f"{path} is not a day of traffic: use a CSV file with the columns seconds and rate, at equal steps, or "
            "with a column timestamp and a row for each request."
        )
    return Day(float(steps[0]), rates)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text.strip()).timestamp()


def plan_day(fleet: Fleet, measured: Measured, day: Day, start_up: float, fixed: int) -> DayPlan:
    """`fixed` is the size of the fleet without autoscaling. Raises `CannotPlan`."""
    needed = _needed(fleet, measured, day.rates)
    scaled = autoscaled(needed, math.ceil(start_up / day.step))
    policies = []
    for name, replicas in (
        ("a fixed fleet has", np.full(len(needed), fixed)),
        (f"autoscaling with {start_up:.0f} s to start has", scaled),
        ("perfect autoscaling has", needed),
    ):
        share = attainment_over(fleet, day.rates, replicas)
        policies.append(Policy(name, int(replicas.max()), float(replicas.mean()), share))
    return DayPlan(day.step, tuple(day.rates.tolist()), tuple(needed.tolist()), start_up, tuple(policies))


def _needed(fleet: Fleet, measured: Measured, rates: Floats) -> Integers:
    """Replicas for each rate: found at a few levels, in between by a straight line, rounded up."""
    busy = rates[rates > 0]
    levels = np.unique(np.quantile(busy, np.linspace(0, 1, LEVELS), method="nearest"))
    counts = [fewest_count(_at(fleet, float(level), LEVEL_SECONDS), measured) for level in levels]
    between = np.interp(rates, levels, np.maximum.accumulate(counts))
    return np.where(rates > 0, np.ceil(np.round(between, 6)), 1).astype(np.int64)


def autoscaled(needed: Integers, delay: int) -> Integers:
    """A reactive autoscaler: what is needed now is there `delay` steps later, and is kept as long once it is not."""
    if delay <= 0:
        return needed
    padded = np.concatenate((np.full(2 * delay, needed[0]), needed))
    windows = np.lib.stride_tricks.sliding_window_view(padded, delay + 1)
    return np.asarray(windows.max(axis=1)[: len(needed)], dtype=np.int64)


def attainment_over(fleet: Fleet, rates: Floats, replicas: Integers) -> Share:
    """Of the requests of all parts of the day, from a few slices of each stratum of the load per replica."""
    rng = np.random.default_rng(fleet.seed)
    order = np.argsort(rates / replicas, kind="stable")
    order = order[rates[order] > 0]
    weights = np.cumsum(rates[order]) / rates.sum()
    value, variance = 0.0, 0.0
    for stratum in range(STRATA):
        inside = order[(weights > stratum / STRATA) & (weights <= (stratum + 1) / STRATA + 1e-12)]
        if not len(inside):
            continue
        weight = float(rates[inside].sum() / rates.sum())
        drawn = rng.choice(inside, size=SLICES, p=rates[inside] / rates[inside].sum())
        shares = [_slice(fleet, float(rates[k]), int(replicas[k]), int(rng.integers(2**31))) for k in drawn]
        value += weight * float(np.mean(shares))
        variance += weight**2 * float(np.var(shares, ddof=1)) / SLICES
    return Share(min(value, 1.0), math.sqrt(variance))


def _slice(fleet: Fleet, rate: float, replicas: int, seed: int) -> float:
    at = _at(fleet, rate, SLICE_SECONDS)
    parts = at.served(replicas, random_trial(seed))
    shares: Sequence[float] = [
        float(good(part.between(WARM_UP, WARM_UP + SLICE_SECONDS), at.objectives).mean()) for part, _ in parts
    ]
    return float(np.mean(shares))


def _at(fleet: Fleet, rate: float, seconds: float) -> Fleet:
    load = fleet.peak.load
    assert isinstance(load, Rate)
    peak = replace(fleet.peak, load=replace(load, per_second=rate), seconds=seconds)
    return replace(fleet, peak=peak)
