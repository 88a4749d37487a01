"""Differences between the runs of a comparison other than the engine: columns of the candidates table.

Different workloads (scenario, lengths, sampling) are not compared. A different number format, model, version, machine
or load generator is named, and the comparison is still made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import mean, stdev
from typing import Any

from enginebench.analysis.engine_runs import EngineRuns, differing_settings, stages_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.metrics import OUTPUT_TOKENS, PROMPT_TOKENS, THROUGHPUT


class Kind(Enum):
    """The first two make numbers incomparable."""

    SCENARIO = "scenario"
    WORKLOAD = "workload"
    MODEL = "model"
    FORMAT = "number format"
    SETTINGS = "engine settings"  # between runs of one label
    VERSION = "version of enginebench"
    MACHINE = "machine"
    CLIENT = "load generator"
    LENGTHS = "measured lengths"  # the same options, and different numbers of tokens


INCOMPARABLE = (Kind.SCENARIO, Kind.WORKLOAD)
BASELINE = "baseline"
TOLERANCE = 0.05  # share by which mean lengths may differ
RUN_TO_RUN = 0.05  # standard deviation of repeats, as a share of their mean, from which there is a warning
MACHINE = ("cpu", "usable_cores", "gpus")
UNKNOWN: tuple[Any, ...] = (None, "", ())  # never count as a difference
# Settings that may differ: their effect on lengths and stages shows in the measured lengths and loads.
SOFT_SETTINGS = {
    *("seed", "prompt_set", "ignore_eos", "prompt_length_measured", "request_timeout"),
    *("stages", "rate", "stage_seconds", "stage_requests", "warm_up", "slo", "context"),
    *("search_range", "search_seconds"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """`values` are the distinct values of each engine's runs, by label. `settings` names the settings that differ, of a
    workload or of engines with one label."""

    kind: Kind
    values: dict[str, tuple[Any, ...]]
    settings: tuple[str, ...] = ()

    @property
    def incomparable(self) -> bool:
        return self.kind in INCOMPARABLE

    @property
    def hidden(self) -> bool:
        """Return whether no column of the candidates shows it."""
        return self.kind in (Kind.VERSION, Kind.CLIENT, Kind.SETTINGS, Kind.LENGTHS)


def differences(engines: Sequence[EngineRuns]) -> tuple[Difference, ...]:
    """List the differences in the order of `Kind`."""
    differing = []
    for kind, fact in FACTS.items():
        values = {engine.label: _distinct(map(fact, engine.runs)) for engine in engines}
        if len(_distinct(value for facts in values.values() for value in facts if value not in UNKNOWN)) > 1:
            settings: tuple[str, ...] = ()
            if kind is Kind.WORKLOAD:
                workloads = [workload for facts in values.values() for workload in facts]
                names = sorted({name for workload in workloads for name in workload})
                settings = tuple(name for name in names if len(_distinct(w.get(name) for w in workloads)) > 1)
            differing.append(Difference(kind, values, settings))
    differing += _lengths(engines)
    for engine in engines:
        if unequal := differing_settings([run for run in engine.runs if run.engine]):
            differing.append(Difference(Kind.SETTINGS, {engine.label: ()}, tuple(sorted(unequal))))
    return tuple(sorted(differing, key=lambda difference: list(Kind).index(difference.kind)))


def version_differences(before: Sequence[EngineRuns], now: Sequence[EngineRuns]) -> tuple[Difference, ...]:
    """List the differences between each engine's baseline and its runs to judge, except the version of this tool."""
    runs = {engine.label: engine.runs for engine in before}
    differing: list[Difference] = []
    for engine in now:
        if engine.label in runs:
            differing += differences([EngineRuns(engine.label, runs[engine.label] + engine.runs)])
            differing += _lengths([EngineRuns(BASELINE, runs[engine.label]), engine])
    return tuple(difference for difference in differing if difference.kind is not Kind.VERSION)


def run_to_run(engine: EngineRuns) -> dict[str, float]:
    """Return the standard deviation of output tokens/s over the repeats as a share of their mean, by stage, if it is
    material."""
    spreads: dict[str, float] = {}
    for stage in stages_of(engine.runs):
        rates = [rate for view in engine.at(stage.label) if (rate := view.value(THROUGHPUT)) is not None]
        if len(rates) > 1 and mean(rates) > 0 and stdev(rates) >= RUN_TO_RUN * mean(rates):
            spreads[stage.label] = stdev(rates) / mean(rates)
    return spreads


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    """Keep the first of equal values. Values need not be hashable."""
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return tuple(distinct)


def _lengths(engines: Sequence[EngineRuns]) -> list[Difference]:
    """Compare mean prompt and output tokens, which may differ by `TOLERANCE`, at every stage that all runs have."""
    runs = [run for engine in engines for run in engine.runs]
    for stage in stages_of(runs):
        for name in (PROMPT_TOKENS, OUTPUT_TOKENS) if all(run.at(stage.label) for run in runs) else ():
            lengths = {engine.label: engine.value(stage.label, name) for engine in engines}
            observed = [length for length in lengths.values() if length]
            if observed and min(observed) < (1 - TOLERANCE) * max(observed):
                return [Difference(Kind.LENGTHS, {label: (length,) for label, length in lengths.items() if length})]
    return []


FACTS: dict[Kind, Callable[[RunSummary], Any]] = {
    Kind.SCENARIO: lambda run: run.scenario,
    Kind.WORKLOAD: lambda run: {name: value for name, value in run.workload.items() if name not in SOFT_SETTINGS},
    Kind.MODEL: lambda run: run.model,
    Kind.FORMAT: lambda run: (run.engine or {}).get("dtype"),
    Kind.VERSION: lambda run: tuple(filter(None, (run.versions.get("enginebench"), (run.commit or "")[:12]))),
    Kind.MACHINE: lambda run: tuple(str(run.host[name]) for name in MACHINE if run.host.get(name)),
    Kind.CLIENT: lambda run: run.workers,
}
"""The facts that are compared between runs."""
