"""The answer of a document, as values: `write/sentence.py` makes one sentence of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.gate import Check
from enginebench.analysis.verdict.slo_verdict import SloVerdict
from enginebench.records.load import Load
from enginebench.records.metrics import OUTPUT_RATE, Column, Quantity
from enginebench.records.view import Estimate


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """How much load one engine sustains within the SLO. `at_load` and `beyond` are the measured percentiles that the
    objectives limit, in the order of the objectives; `None` if not measured. `bottleneck` is the part of TTFT that grew
    most from the highest load that meets the SLO to the lowest that misses it."""

    capacity: Capacity
    at_load: tuple[float | None, ...]
    beyond: tuple[float | None, ...]
    bottleneck: Quantity | None


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine with its capacity, and its `speed` and SLO verdict at the common stage."""

    name: str
    capacity: Capacity | None
    speed: Estimate
    slo: SloVerdict | None


@dataclass(frozen=True, slots=True)
class BestAnswer:
    """The best of several engines against the next best one; `tied` engines have the same capacity as the latter.
    `ratio` compares `speed` at `stage`; `significant` is `None` if there are too few repeats for a test."""

    best: Contender
    next: Contender
    stage: str
    load: float
    unit: str
    ratio: Estimate
    significant: bool | None
    repeats: int
    candidates: int
    speed: Column = OUTPUT_RATE
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeedAnswer:
    """The speed of an engine without an SLO: latency at the lowest load, and the highest throughput."""

    engine: str
    stage: str
    latency: Column
    ttft: Estimate  # the latency at the lowest load, seconds
    user_tokens: Estimate  # tokens/s of one user
    busiest: str
    tokens: Estimate  # output tokens/s at the busiest load


UNPRICED = NO_RATIO = Estimate(None)
HOURS_A_MONTH = 730.0


@dataclass(frozen=True, slots=True)
class Replicas:
    """`count` is ⌈peak ÷ measured capacity⌉, `simulated` the count by simulation, if the model's error allows it; both
    include spares. `at_most`: fewer than `simulated` may suffice, with more load than was measured. `missing` and
    `not_simulated` are the reasons for an unknown count. `month` is the cost of the replicas in US dollars,
    `per_million` that of a million output tokens at the measured capacity."""

    name: str
    capacity: Capacity | None
    count: int | None
    simulated: int | None
    month: float | None
    missing: NotPlanned | None = None
    not_simulated: NotPlanned | None = None
    per_million: Estimate = UNPRICED
    at_most: bool = False

    @property
    def confirmed(self) -> bool:
        """Return whether the measured load behind `count` is confirmed as met."""
        return self.capacity is None or self.capacity.met_confirmed

    @property
    def number(self) -> int | None:
        """Return the measured count, else the simulated one."""
        return self.simulated if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class ReplicasAnswer:
    """Replicas for a peak: the candidate that costs the least first, then the others in order."""

    peak: Load
    candidates: tuple[Replicas, ...]


@dataclass(frozen=True, slots=True)
class BurstAnswer:
    """Bursts, or outages after `command`. `peak` is the longest TTFT in seconds. `recovered` is the most seconds from
    the end of one until the SLO was met again or, without an SLO (not `judged`), until TTFT was as before. It is `None`
    if that did not happen. `absorbed`: the SLO was met throughout or, without one, latency stayed as before.
    `failed` counts requests since the worst one began."""

    engine: str
    command: str
    absorbed: bool
    peak: float | None
    recovered: float | None
    judged: bool
    failed: int
    within: float | None = None  # share of requests after the worst disruption, if the server did not recover
    total: int = 1  # disruptions
    unabsorbed: int = 1  # disruptions


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """`checks` is the total, of which `missing` could not be made. `runs`: the minimum per engine, now and before."""

    passed: bool
    limit: float
    regressions: tuple[Check, ...]
    checks: int
    unclear: int
    warnings: int = 0
    missing: int = 0
    runs: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Lead:
    """The fastest engine by tokens/s, and the ratio of its speed to the next one's; `significant` is `None` without a
    test."""

    best: str
    speed: Estimate
    next: str | None = None
    ratio: Estimate = NO_RATIO
    significant: bool | None = None


@dataclass(frozen=True, slots=True)
class BenchAnswer:
    """Engines without HTTP: the fastest to decode one request, and to read a prompt of `prompt` tokens."""

    decode: Lead
    prefill: Lead | None
    prompt: int


@dataclass(frozen=True, slots=True)
class CalibrationAnswer:
    """The load generator's own p99 error in seconds, at the heaviest load that it kept up with (chunks/s)."""

    error: float
    chunk_rate: float


@dataclass(frozen=True, slots=True)
class StartAnswer:
    """The seconds from an engine's launch to its first answer, by engine, the fastest first."""

    seconds: tuple[tuple[str, float], ...]


class TuneOutcome(Enum):
    CONFIRMED = "confirmed"  # the variant is better than the default
    NONE = "none"  # no variant beats the default
    NOT_CONFIRMED = "not_confirmed"  # a fresh confirmation needs more rounds
    OPEN = "open"  # the next look is still to come


@dataclass(frozen=True, slots=True)
class TuneAnswer:
    """The leader of a race of `variants` against the default. `ratio` compares the `measure`, from `ratio.n` fresh
    pairs; it has no value before the first look. `winner` is empty if the default leads. `unmet`: no request of the
    default met the SLO, so the ratio is a lower bound. `left` variants still need about `more` rounds."""

    outcome: TuneOutcome
    winner: str
    default: str
    measure: str
    ratio: Estimate
    unmet: bool
    variants: int
    left: int
    more: int | None


@dataclass(frozen=True, slots=True)
class RefereeAnswer:
    """A load generator's TTFT next to the true one, at the percentile `title`, in seconds. It reports `counted` of the
    `answered` requests; `None` if its results have none or cannot be read."""

    tool: str
    exit_code: int
    title: str
    true: float
    reported: float | None
    counted: int | None
    answered: int


class NoAnswer(Enum):
    NOTHING_MEASURED = "nothing_measured"
    DIFFERENT_WORKLOADS = "different_workloads"
    NO_COMMON_LOAD = "no_common_load"
    ALL_FAILED = "all_failed"
    NONE_ENDED = "none_ended"


Answer = (
    CapacityAnswer
    | BestAnswer
    | SpeedAnswer
    | ReplicasAnswer
    | BurstAnswer
    | GateAnswer
    | BenchAnswer
    | CalibrationAnswer
    | StartAnswer
    | TuneAnswer
    | RefereeAnswer
    | NoAnswer
)
