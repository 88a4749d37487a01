"""Differences between the engines of a comparison other than the engine: columns of the candidates table.

A different workload (scenario, lengths, sampling) makes numbers incomparable, and nothing is compared then. A different
number format, model, version, machine or load generator is named, and the comparison stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from enginebench.analysis.compare.engine_runs import EngineRuns, engine_settings
from enginebench.analysis.summary.run_summary import RunSummary


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


INCOMPARABLE = (Kind.SCENARIO, Kind.WORKLOAD)
# Settings that may differ: what they do to lengths and stages shows in the measured lengths and loads.
SOFT_SETTINGS = {
    *("seed", "prompt_set", "same_prompts", "ignore_eos", "prompt_length_measured", "request_timeout"),
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


def differences(engines: Sequence[EngineRuns]) -> tuple[Difference, ...]:
    """In the order of `Kind`."""
    differing = []
    for kind, value in READ.items():
        values = {engine.label: " | ".join(dict.fromkeys(map(value, engine.runs))) for engine in engines}
        if len({text for engine in engines for run in engine.runs if (text := value(run))}) > 1:
            differing.append(Difference(kind, values, _settings(engines) if kind is Kind.WORKLOAD else ()))
    own = {engine.label: _own_settings(engine) for engine in engines}
    if any(own.values()):
        differing.append(Difference(Kind.SETTINGS, {label: text for label, text in own.items() if text}))
    return tuple(sorted(differing, key=lambda difference: list(Kind).index(difference.kind)))


def _workload(run: RunSummary) -> str:
    known = {name: value for name, value in run.workload.items() if name not in SOFT_SETTINGS}
    return repr(sorted(known.items()))


def _settings(engines: Sequence[EngineRuns]) -> tuple[str, ...]:
    workloads = [run.workload for engine in engines for run in engine.runs]
    names = sorted({name for workload in workloads for name in workload} - SOFT_SETTINGS)
    return tuple(name for name in names if len({repr(workload.get(name)) for workload in workloads}) > 1)


def _own_settings(engine: EngineRuns) -> str:
    """Names of the settings that differ between runs of one label."""
    runs = [engine_settings(run) for run in engine.runs if run.engine]
    names = dict.fromkeys(name for settings in runs for name in settings)
    return ", ".join(name for name in names if len({repr(settings.get(name)) for settings in runs}) > 1)


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
