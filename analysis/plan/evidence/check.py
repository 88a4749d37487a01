"""Prediction against what production did: each part of a time span is simulated at the load that was really there, with
the replicas that really served it, and compared with the servers' own histograms.

Means are exact, because histograms carry sums. A percentile is known only to lie in a bucket, and is judged by whether
that bucket reaches into the predicted band.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from analysis.plan.basis import Basis
from analysis.plan.errors import CannotPlan
from analysis.plan.evidence.prometheus import Prometheus, Served
from analysis.plan.fleet.replicas import BEYOND, WARM_UP, Fleet, Measured, Peak
from analysis.plan.settings import PlanSettings
from analysis.plan.simulation.outcome import Band, Requests, band, within
from analysis.plan.simulation.trials import trials
from analysis.plan.simulation.work import Lengths
from analysis.verdict.summary import without_infinities
from records.load import Rate

SEEDS = 8
TOLERANCE = 0.1  # share by which a figure may be outside the band: the accuracy that plans are held to
PART_SECONDS, MOST_PARTS = 300.0, 24
LONGEST_SIMULATED = 300.0  # seconds of one part


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure: the predicted band, and the range that the servers' histogram leaves open."""

    name: str
    predicted: Band
    low: float
    high: float
    higher_is_worse: bool = True

    @property
    def verdict(self) -> str:
        """`as predicted`, `better` or `worse`."""
        slack = TOLERANCE * self.predicted.median
        above, below = self.low > self.predicted.high + slack, self.high < self.predicted.low - slack
        if not above and not below:
            return "as predicted"
        return "worse" if above == self.higher_is_worse else "better"


@dataclass(frozen=True, slots=True)
class Part:
    """A span of time, and its figures; none where no request was served, or where `refused` says why."""

    end: float  # Unix time
    served: Served | None
    figures: tuple[Compared, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    parts: tuple[Part, ...]

    @property
    def judged(self) -> tuple[Compared, ...]:
        return tuple(figure for part in self.parts for figure in part.figures)

    @property
    def worse(self) -> bool:
        return any(figure.verdict == "worse" for figure in self.judged)

    @property
    def sentence(self) -> str:
        parts = [part for part in self.parts if part.figures]
        if not parts:
            reasons = [part.refused for part in self.parts if part.refused is not None]
            return reasons[-1] if reasons else "No request was served in this time."
        agreed = sum(figure.verdict == "as predicted" for figure in self.judged)
        told = f"{agreed} of {len(self.judged)} figures are as predicted"
        for verdict in ("worse", "better"):
            names = sorted({figure.name for figure in self.judged if figure.verdict == verdict})
            told += f"; {verdict} than predicted: {', '.join(names)}" if names else ""
        return f"{told}."


def check(source: Prometheus, basis: Basis, settings: PlanSettings) -> Check:
    """The time span of `settings`, in parts of five minutes. Raises `CannotPlan` if Prometheus does not answer."""
    end = time.time() if settings.check_until is None else settings.check_until
    count = min(max(round(settings.check_seconds / PART_SECONDS), 1), MOST_PARTS)
    step = settings.check_seconds / count
    return Check(tuple(_part(source, basis, settings, end - k * step, step) for k in reversed(range(count))))


def _part(source: Prometheus, basis: Basis, settings: PlanSettings, end: float, seconds: float) -> Part:
    served = source.served(end, seconds)
    if served is None:
        return Part(end, None)
    try:
        lengths = rescaled(basis.lengths, served)
        _supported(served, basis.measured)
    except CannotPlan as reason:
        return Part(end, served, refused=str(reason))
    peak = Peak(Rate(served.rate), lengths, min(seconds, LONGEST_SIMULATED))
    return Part(
        end, served, _compared(served, Fleet(basis.model, peak, settings.slo, settings.balancer, settings.seed))
    )


def rescaled(measured: Lengths, served: Served) -> Lengths:
    """The measured lengths, scaled to the means of production. Raises `CannotPlan` beyond what was measured."""
    factors = {}
    for name, mean in (("prompt", served.prompt_tokens), ("output", served.output_tokens)):
        seen = getattr(measured, name)
        if not 0.9 * seen.min() <= mean <= 1.1 * seen.max():
            raise CannotPlan(
                f"the mean {name} has {mean:.0f} tokens in production, and {seen.min():.0f} to {seen.max():.0f} were "
                f"measured: make a run with --{name}-tokens {mean:.0f} and check with it too."
            )
        factors[name] = mean / max(float(seen.mean()), 1e-9)
    prompt, output = factors["prompt"], factors["output"]
    return Lengths(
        measured.prefilled * prompt, measured.prompt * prompt, np.maximum(np.rint(measured.output * output), 1)
    )


def _supported(served: Served, measured: Measured) -> None:
    each = served.rate / served.replicas
    if each > BEYOND * measured.rate:
        raise CannotPlan(
            f"each of {served.replicas} replicas serves {each:.3g} req/s, and no run had more than {measured.rate:.3g} "
            "on one: make a run with a higher load and check with it too."
        )


def _compared(served: Served, fleet: Fleet) -> tuple[Compared, ...]:
    seeds = []
    for trial in trials(SEEDS, fleet.seed):
        ((requests, _),) = fleet.served(served.replicas, trial)
        seeds.append(requests.between(WARM_UP, WARM_UP + fleet.peak.seconds))

    def over(figure: Callable[[Requests], float]) -> Band:
        return band([figure(one) for one in seeds])

    ttft, tpot, e2e = (served.histograms[name] for name in ("ttft", "tpot", "e2e"))
    found = [
        Compared("TTFT mean", over(lambda r: float((r.first - r.sched).mean())), ttft.mean, ttft.mean),
        Compared("TTFT p95", over(lambda r: float(np.quantile(r.first - r.sched, 0.95))), *ttft.quantile(0.95)),
        Compared("TPOT mean", over(lambda r: float(np.nanmean(r.tpot))), tpot.mean, tpot.mean),
        Compared("E2E mean", over(lambda r: float((r.last - r.sched).mean())), e2e.mean, e2e.mean),
        Compared("E2E p95", over(lambda r: float(np.quantile(r.last - r.sched, 0.95))), *e2e.quantile(0.95)),
    ]
    for objective in fleet.objectives:
        if objective.metric in served.histograms:
            share = over(lambda r, of=objective: float(within(r, of).mean()))  # type: ignore[misc]
            low, high = served.histograms[objective.metric].within(objective.limit)
            found.append(Compared(f"within {objective}", share, low, high, higher_is_worse=False))
    return tuple(one for one in found if np.isfinite(one.low))


def as_document(found: Check) -> dict[str, Any]:
    """What `--check --json` prints: seconds, requests per second, shares; times in ISO 8601."""
    document = {
        "schema": 1,
        "answer": found.sentence,
        "parts": [
            {
                "until": datetime.fromtimestamp(part.end, UTC).isoformat(timespec="seconds"),
                "seconds": part.served and part.served.seconds,
                "replicas": part.served and part.served.replicas,
                "rate": part.served and part.served.rate,
                "refused": part.refused,
                "figures": [asdict(one) | {"verdict": one.verdict} for one in part.figures],
            }
            for part in found.parts
        ],
    }
    finite: dict[str, Any] = without_infinities(document)
    return finite
