"""A stage as every table, page, file and comparison reads it.

During a run, a view comes from counts, without intervals. After the run it comes from the records, with an interval
for every number or the reason why the interval is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, NamedTuple

from enginebench.records.load import Profile
from enginebench.records.request import CENSORED
from enginebench.records.rules import UNDECIDED, SloAnswer, is_failure
from enginebench.records.slo import Objective
from enginebench.records.stage import StagePlan

Severity = Literal["note", "warn", "invalid"]
SEVERITIES: tuple[Severity, ...] = ("invalid", "warn", "note")


def is_invalid(severities: Iterable[Severity]) -> bool:
    """Return whether findings of these severities make a run invalid, which therefore gets no verdict."""
    return any(severity == "invalid" for severity in severities)


class Missing(Enum):
    """Why a value, or its interval, is missing. The legend of `analysis/write/phrases.py` explains each."""

    NOT_OBSERVED = "not_observed"
    FEW_REQUESTS = "few_requests"
    FEW_REPEATS = "few_repeats"
    FAILED = "failed"  # the percentile falls among failed requests
    CUT_OFF = "cut_off"  # the value depends on requests that the end of the run cut off
    CYCLIC = "cyclic"  # requests repeat in cycles, so their variation is unknown
    UNCOUNTED = "uncounted"  # the value depends on answers whose tokens are unknown


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % confidence interval and its number of observations.

    `value` and `high` are +inf if a percentile falls among the failed requests. `effective` is the effective sample
    size, if known: how many independent observations the `n` are worth. `missing` says why there is no value, no
    interval, or no upper end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    missing: Missing | None = None
    effective: float | None = None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Return both ends of the interval; neither if it has no width, which would look like certainty."""
        return (None, None) if self.low == self.high else (self.low, self.high)

    @property
    def finite(self) -> Estimate:
        """Return the estimate without infinite values, for files."""
        value, low, high = (
            None if part is None or math.isinf(part) else part for part in (self.value, self.low, self.high)
        )
        return replace(self, value=value, low=low, high=high)

    def clipped(self, least: float, most: float) -> Estimate:
        """Clip the interval to the possible values: a share is at most 1."""
        low, high = (None if end is None else min(max(end, least), most) for end in (self.low, self.high))
        return replace(self, low=low, high=high)

    def scaled(self, factor: float) -> Estimate:
        """Multiply by a factor of at least 0."""
        value, low, high = (None if part is None else part * factor for part in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)

    @property
    def inverse(self) -> Estimate:
        """Return 1 ÷ the number, with its interval inverted; 0 becomes +∞ and vice versa."""
        parts = (self.value, self.low, self.high)
        value, high, low = (None if part is None else 1 / part if part else math.inf for part in parts)
        return replace(self, value=value, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Numbers in ascending order, packed: `values` as little-endian float64, `weights` (little-endian uint32) as how
    many numbers each value represents; without `weights`, one."""

    values: bytes = b""
    weights: bytes = b""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A metric over `n` requests, `failed` of which failed. `percentiles` are keyed by name (`p95`), nearest rank.

    Mean, standard deviation, extremes and `answered` (percentiles) cover the requests that succeeded; `answered` is set
    if any failed. `ended` has the values of ended requests and `cut_off` the lower bounds of cut-off ones, for
    percentiles over several runs; `None` for metrics that are not shown over runs.
    """

    n: int
    failed: int
    mean: float | None
    deviation: float | None
    least: float | None
    largest: float | None
    percentiles: Mapping[str, Estimate]
    answered: Mapping[str, float] | None = None
    ended: Ordered | None = None
    cut_off: Ordered | None = None

    def percentile(self, name: str) -> Estimate:
        return self.percentiles.get(name, NO_SAMPLES)


NO_SAMPLES = Estimate(None, missing=Missing.NOT_OBSERVED)
EMPTY = Distribution(0, 0, None, None, None, None, {})


@dataclass(frozen=True, slots=True)
class Level:
    """A gauge over a window: its mean and peak, and its means over the first and the last tenth."""

    mean: float
    peak: float
    first: float | None = None
    last: float | None = None


@dataclass(frozen=True, slots=True)
class StageKey:
    """A stage's index and label. The same stage of another run has the same label."""

    index: int
    label: str


class Evidence(NamedTuple):
    """The result of a check. `remedy` replaces that of the finding's kind.

    `stage` is `None` if the evidence concerns the whole run.
    """

    severity: Severity
    words: str
    remedy: str = ""
    stage: StageKey | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason to doubt the numbers, with its evidence and its remedy.

    A `note` helps to read the numbers, a `warn` casts doubt on some of them, and `invalid` means that they do not
    describe the server. `stage` is `None` if the finding concerns the whole run; `label` is the run's, as in reports.
    """

    kind: str
    severity: Severity
    evidence: str
    remedy: str
    stage: StageKey | None = None
    label: str | None = None


def keys_of(plan: Sequence[StagePlan]) -> dict[int, StageKey]:
    """Return the keys of all planned stages by index.

    Repeats of a load are numbered, not counting brief stages.
    """
    labels = [None if stage.brief else stage.label for stage in plan]
    earlier = [labels[:index].count(stage.label) for index, stage in enumerate(plan)]
    return {
        index: StageKey(index, f"{stage.label} #{before + 1}" if before else stage.label)
        for index, (stage, before) in enumerate(zip(plan, earlier, strict=True))
    }


@dataclass(frozen=True, slots=True)
class Judgement:
    """A stage judged by an objective: `share` of the attempted requests were within the limit.

    `unknown` requests, which were cut off or have unknown tokens, cannot be judged; `share` leaves them out.
    """

    objective: Objective
    share: Estimate
    answer: SloAnswer
    unknown: int = 0

    @classmethod
    def not_measured(cls, objective: Objective) -> Judgement:
        return cls(objective, NO_SAMPLES, UNDECIDED)


@dataclass(frozen=True, slots=True)
class ClassView:
    """A class of a stage's requests. `judgements` use the class's own objectives, if any."""

    name: str
    requests: int
    failed: int
    metrics: Mapping[str, Distribution]
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn, counted from 1, over all conversations of a stage. `ttft` is the median from the scheduled time."""

    turn: int
    requests: int
    prompt_tokens: float | None
    ttft: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """A stage over its steady window. Times are in seconds since the run's start, rates per second.

    `metrics` and `quantities` hold those declared in `records/metrics.py`, by name; unobserved ones are `None` or
    missing. `counts` has numbers of requests, answers and chunks for findings. `gauges` has the server's and the load
    generator's, by the names in `enginebench/records/telemetry.py`.
    """

    index: int
    label: str
    load: float  # in `load_unit`
    load_unit: str
    is_open: bool = False  # requests arrived on schedule, however long the answers took
    varies: bool = False  # the rate of arrivals was planned to change within the window
    profile: Profile = ()  # of the rate; empty for a trace
    named: bool = False  # the label is the stage's name, not its load
    start: float  # of the window
    end: float
    complete: bool = True  # False: the run was stopped inside the window, or lost a process
    outcomes: Mapping[str, int]
    failures: Mapping[str, int] = field(default_factory=dict)  # requests by kind of failure, most frequent first
    counts: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Distribution]
    quantities: Mapping[str, Estimate]
    gauges: Mapping[str, Level] = field(default_factory=dict)
    judgements: tuple[Judgement, ...] = ()
    attained: Estimate | None = None  # share within all objectives
    findings: tuple[Finding, ...] = ()
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # distributions, at the percentiles of CURVE
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)  # means over equal parts of the window
    classes: tuple[ClassView, ...] = ()
    turns: tuple[TurnView, ...] = ()

    @property
    def key(self) -> StageKey:
        return StageKey(self.index, self.label)

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def requests(self) -> int:
        """Count the requests scheduled in the window."""
        return sum(self.outcomes.values())

    @property
    def ok(self) -> int:
        return self.outcomes.get("ok", 0)

    @property
    def cut_off(self) -> int:
        return sum(self.outcomes.get(outcome, 0) for outcome in CENSORED)

    @property
    def failed(self) -> int:
        return sum(count for outcome, count in self.outcomes.items() if is_failure(outcome))

    def estimate(self, name: str, statistic: str = "value") -> Estimate:
        """Return a quantity (`value`) or a percentile of a metric (`p95`); an empty estimate if it was not observed."""
        if name in self.metrics:
            return self.metrics[name].percentile(statistic)
        return self.quantities.get(name, Estimate(None))

    def missing_for(self, reason: Missing) -> list[str]:
        """Return the metrics and quantities that lack a value or an interval for this reason."""
        numbers = {name: tuple(metric.percentiles.values()) for name, metric in self.metrics.items()}
        numbers |= {name: (quantity,) for name, quantity in self.quantities.items()}
        return [
            name for name, estimates in numbers.items() if any(estimate.missing is reason for estimate in estimates)
        ]

    def value(self, name: str, statistic: str = "value") -> float | None:
        return self.estimate(name, statistic).value

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def judgement(self, objective: Objective) -> Judgement | None:
        return next((judgement for judgement in self.judgements if judgement.objective == objective), None)
