"""Differences between the engines of a comparison other than the engine: columns of the candidates table.

A different workload (scenario, lengths, sampling) makes numbers incomparable, and nothing is compared then. A different
number format, model, version, machine or load generator is named, and the comparison stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import mean, stdev

from enginebench.analysis.engine_runs import EngineRuns, common_stages, settings_apart, stages_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import significant
from enginebench.records.metrics import OUTPUT_TOKENS, PROMPT_TOKENS, THROUGHPUT


class Kind(Enum):
    """The first two make numbers incomparable."""

    SCENARIO = "scenario"
    WORKLOAD = "workload"
    MODEL = "model"
    FORMAT = "number format"
    SETTINGS = "engine settings"  # between runs of one label
    VERSION = "version"
    MACHINE = "machine"
    CLIENT = "load generator"
    LENGTHS = "measured lengths"  # the same options, and other numbers of tokens


INCOMPARABLE = (Kind.SCENARIO, Kind.WORKLOAD)
BASELINE = "baseline"
TOLERANCE = 0.05  # share by which mean lengths may differ
RUN_TO_RUN = 0.05  # standard deviation of repeats, as a share of their mean, from which a warning says so
# Settings that may differ: what they do to lengths and stages shows in the measured lengths and loads.
SOFT_SETTINGS = {
    *("seed", "prompt_set", "ignore_eos", "prompt_length_measured", "request_timeout"),
    *("stages", "stage_seconds", "stage_requests", "warm_up", "slo", "context"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """`values` are the values of each engine, by label; `settings` names the settings of a workload that differ."""

    kind: Kind
    values: dict[str, str]
    settings: tuple[str, ...] = ()

    @property
    def incomparable(self) -> bool:
        return self.kind in INCOMPARABLE

    @property
    def hidden(self) -> bool:
        """Whether no column of the candidates shows it."""
        return self.kind in (Kind.VERSION, Kind.CLIENT, Kind.SETTINGS, Kind.LENGTHS)


def differences(engines: Sequence[EngineRuns]) -> tuple[Difference, ...]:
    """In the order of `Kind`."""
    differing = []
    for kind, value in READ.items():
        values = {engine.label: " | ".join(dict.fromkeys(map(value, engine.runs))) for engine in engines}
        if len({text for engine in engines for run in engine.runs if (text := value(run))}) > 1:
            differing.append(Difference(kind, values, _settings(engines) if kind is Kind.WORKLOAD else ()))
    if lengths := _lengths(engines):
        differing.append(Difference(Kind.LENGTHS, lengths))
    own = {engine.label: _own_settings(engine) for engine in engines}
    if any(own.values()):
        differing.append(Difference(Kind.SETTINGS, {label: text for label, text in own.items() if text}))
    return tuple(sorted(differing, key=lambda difference: list(Kind).index(difference.kind)))


def of_versions(before: Sequence[EngineRuns], now: Sequence[EngineRuns]) -> tuple[Difference, ...]:
    """Differences between a baseline and the runs to judge of each engine, other than the version of this tool."""
    runs = {engine.label: engine.runs for engine in before}
    differing: list[Difference] = []
    for engine in now:
        if engine.label in runs:
            differing += differences([EngineRuns(engine.label, runs[engine.label] + engine.runs)])
            lengths = _lengths([EngineRuns(BASELINE, runs[engine.label]), engine])
            differing += [Difference(Kind.LENGTHS, lengths)] if lengths else []
    return tuple(difference for difference in differing if difference.kind is not Kind.VERSION)


def run_to_run(engine: EngineRuns) -> dict[str, float]:
    """Standard deviation of output tokens/s over the repeats as a share of their mean, by stage, if it is material."""
    spreads: dict[str, float] = {}
    for stage in stages_of(engine.runs):
        rates = [rate for view in engine.at(stage.label) if (rate := view.value(THROUGHPUT)) is not None]
        if len(rates) > 1 and mean(rates) > 0 and stdev(rates) >= RUN_TO_RUN * mean(rates):
            spreads[stage.label] = stdev(rates) / mean(rates)
    return spreads


def _lengths(engines: Sequence[EngineRuns]) -> dict[str, str]:
    """Mean prompt and output tokens by label, if they differ by more than `TOLERANCE` at a stage of all engines."""
    runs = [run for engine in engines for run in engine.runs]
    for stage in common_stages(runs):
        for name in (PROMPT_TOKENS, OUTPUT_TOKENS):
            lengths = {engine.label: engine.value(stage, name) for engine in engines}
            known = [length for length in lengths.values() if length]
            if known and min(known) < (1 - TOLERANCE) * max(known):
                return {label: significant(length) for label, length in lengths.items() if length}
    return {}


def _workload(run: RunSummary) -> str:
    known = {name: value for name, value in run.workload.items() if name not in SOFT_SETTINGS}
    return repr(sorted(known.items()))


def _settings(engines: Sequence[EngineRuns]) -> tuple[str, ...]:
    workloads = [run.workload for engine in engines for run in engine.runs]
    names = sorted({name for workload in workloads for name in workload} - SOFT_SETTINGS)
    return tuple(name for name in names if len({repr(workload.get(name)) for workload in workloads}) > 1)


def _own_settings(engine: EngineRuns) -> str:
    """Names of the settings that differ between runs of one label."""
    runs = [run for run in engine.runs if run.engine]
    names = dict.fromkeys(name for run in runs for name in settings_apart(runs[0], run))
    return ", ".join(names)


def _version(run: RunSummary) -> str:
    return " ".join(filter(None, (run.versions.get("enginebench", ""), (run.commit or "")[:12])))


def _machine(run: RunSummary) -> str:
    return ", ".join(str(run.host[name]) for name in ("cpu", "usable_cores", "gpus") if run.host.get(name))


READ: dict[Kind, Callable[[RunSummary], str]] = {
    Kind.SCENARIO: lambda run: run.scenario,
    Kind.WORKLOAD: _workload,
    Kind.MODEL: lambda run: run.model or "",
    Kind.FORMAT: lambda run: str((run.engine or {}).get("dtype") or ""),
    Kind.VERSION: _version,
    Kind.MACHINE: _machine,
    Kind.CLIENT: lambda run: str(run.workers),
}
