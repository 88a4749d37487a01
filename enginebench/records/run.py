"""A run: the contents of `meta.json`, and the lines of `journal.jsonl` that complete it during the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Self

import msgspec

from enginebench.records.load import Count
from enginebench.records.plain_text import is_file_name
from enginebench.records.quality import Quality
from enginebench.records.request import JsonLine
from enginebench.records.search import SearchRecord
from enginebench.records.stage import Nanoseconds, Stage, StagePlan

SCHEMA_VERSION = 3
# Events of a server that `enginebench run` started, in order. "Listening" means that it answers anything.
START_EVENTS = "files uncached", "server started", "server listening", "server ready"
UNCACHED, STARTED, LISTENING, READY = START_EVENTS
START_PHASES: Mapping[str, str] = {
    "server": "server",
    "process": "process",
    "imports": "imports",
    "load": "load",
    "weights": "weights",
    "compile": "compile, capture",
    "warm_up": "warm-up",
    "answer": "first answer",
}
"""The phases of a start in order, with their titles."""
WORKLOAD: Mapping[str, Any] = {
    **dict.fromkeys(("slo", "prompt_set", "dataset"), str | None),
    **dict.fromkeys(("temperature", "search_seconds", "stage_requests"), float | None),
    "class_objectives": dict[str, str] | None,
}
"""The type of each setting that a report uses."""
ENGINE: Mapping[str, Any] = {
    **dict.fromkeys(("name", "version", "language", "model", "dtype", "device", "batching"), str | None),
    **dict.fromkeys(("max_concurrency", "context_length", "replicas"), Count | None),
    "features": tuple[str, ...] | None,
    "options": dict[str, Any] | None,
    "libraries": dict[str, str] | None,
    "startup": dict[str, float] | None,
}
"""The type of each fact about an engine in our servers' `/v1/engine`; other servers may report anything."""
HOST: Mapping[str, Any] = {
    **dict.fromkeys(("cpu", "os"), str | None),
    **dict.fromkeys(("cores", "usable_cores"), Count | None),
    "memory": int | None,
    "gpus": str | tuple[dict[str, Any], ...] | None,
}
"""The type of each fact about a machine."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A deliberate disturbance of the server, `t` nanoseconds since the run's start (negative if earlier)."""

    t: Nanoseconds
    what: str


@dataclass(frozen=True, slots=True)
class LostProcess:
    """A process of the load generator that ended before its run. Its last request was due at `t`, nanoseconds since the
    run's start. In an open loop, its `arrivals` that were due later were not sent."""

    worker: str
    t: Nanoseconds
    arrivals: int = 0


@dataclass(frozen=True, slots=True)
class Imported:
    """A run that another tool made. `lacks` names the numbers that its file does not have."""

    tool: str
    file: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The setup of a run, in `meta.json` and in the summary derived from it."""

    run_id: str
    started_at: str  # ISO 8601, UTC
    scenario: str
    url: str
    model: str | None
    workload: Mapping[str, Any]  # prompt and output lengths, sampling, seed, think time, …
    engine: Mapping[str, Any] | None  # the server's /v1/engine; None if it has none
    host: Mapping[str, Any]  # cpu, cores, memory, os, kernel of the load generator
    versions: Mapping[str, str]
    label: str  # the run's name in reports: the engine's name, or the URL
    command: tuple[str, ...]
    repeat: Count = 0  # index among the engine's repeats
    commit: str | None = None
    workers: Count = 1
    search: SearchRecord | None = None  # if the run searches for capacity
    quality: Quality | None = None  # if requested

    @property
    def facts(self) -> dict[str, Any]:
        """Return only these fields, by name."""
        return {field.name: getattr(self, field.name) for field in fields(RunFacts)}

    def checked(self) -> Self:
        """Return the run without facts of a wrong type.

        Raises `ValueError` for values that no run has: a report would fail, or write to another place.
        """
        if not is_file_name(self.run_id):
            raise ValueError(f"`{self.run_id}` is no name of a run")
        instant(self.started_at)
        wrong = sorted(set(self.workload) - set(as_typed(self.workload, WORKLOAD)))
        if wrong:
            raise ValueError(f"`workload` has a `{wrong[0]}` of another type")
        engine = None if self.engine is None else as_typed(self.engine, ENGINE)
        return replace(self, engine=engine, host=as_typed(self.host, HOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeta(RunFacts):
    """Everything needed to repeat the run and to judge whether another run is comparable.

    `plan` has the requested stages; a run may append to it. `stages` are the stages that have begun.
    """

    plan: tuple[StagePlan, ...]
    stages: tuple[Stage, ...] = ()
    events: tuple[RunEvent, ...] = ()
    hosts: Count = 1  # machines that the workers run on
    startup: Mapping[str, float] = field(default_factory=dict)  # seconds by phase, as our servers report
    lost: tuple[LostProcess, ...] = ()
    client_error: tuple[tuple[float, float, float], ...] = ()  # calibration: chunks/s, run delay, TTFT p99 error (s)
    imported: Imported | None = None  # from another tool's results
    schema: int = SCHEMA_VERSION

    def after(self, line: JournalLine) -> RunMeta:
        """Return the run with a line's changes."""
        meta, stage = self, line.stage
        if stage is not None:
            plan = (*self.plan, stage.plan) if stage.index >= len(self.plan) else self.plan
            meta = replace(meta, stages=(*self.stages[: stage.index], stage), plan=plan)
        if line.event is not None and line.event not in self.events:
            meta = replace(meta, events=(*self.events, line.event))
        if line.search is not None:
            meta = replace(meta, search=line.search)
        return meta

    def checked(self) -> Self:
        """Check the facts, and that stages are in the plan and their loads can be read."""
        for stage in self.stages:
            if stage.index >= len(self.plan):
                raise ValueError(f"stage {stage.index} is not in the plan of {len(self.plan)}")
        return RunFacts.checked(self)

    def client_error_at(self, load: float, run_delay: float = 0.0) -> float | None:
        """Return the seconds by which the client's TTFT may be off at p99, at `load` streamed chunks per second.

        `run_delay` is the share of time in which the client was ready to run and had no core. The result is from the
        mildest calibrated conditions with at least this load and delay; `None` if there are none.
        """
        harder = [error for chunks, delay, error in self.client_error if chunks >= load and delay >= run_delay]
        return min(harder, default=None)


class JournalLine(JsonLine, kw_only=True, gc=False, omit_defaults=True):
    """A change: a stage has begun or one of its boundaries is known, the server was disturbed, or a search has decided
    a probe.

    A stage replaces the stage with its index and all later ones.
    """

    stage: Stage | None = None
    event: RunEvent | None = None
    search: SearchRecord | None = None


def instant(text: str) -> datetime:
    """Raise `ValueError` for a text that is not a date and time with a time zone."""
    read = datetime.fromisoformat(text)
    if read.tzinfo is None:
        raise ValueError(f"`{text}` is an instant without its time zone")
    return read


def as_typed(facts: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that have the type declared for them."""
    return {name: value for name, value in facts.items() if _is_of(value, types.get(name, Any))}


def _is_of(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
