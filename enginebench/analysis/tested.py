"""The tested system, load and machine as values: the first line of every document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.verdict.comparison import interleaved
from enginebench.records.load import Profile
from enginebench.records.metrics import OUTPUT_TOKENS, PROMPT_TOKENS
from enginebench.settings.system import is_loopback

RANDOM = "random:"  # prefix of a model without trained weights on our servers
LENGTHS = " prompt tokens"  # suffix of the labels of stages with different prompt lengths
SCRIPTED = "scripted answers (no model)"  # model of the `fake` engine


@dataclass(frozen=True, slots=True)
class Hardware:
    cpu: str
    cores: int | None
    memory: float | None  # bytes
    gpus: str | None


@dataclass(frozen=True, slots=True)
class Tested:
    """`prompt_tokens` and `output_tokens` are the measured means. `repeats` are the fewest and most runs of an engine,
    `interleaved` by their time stamps. `target` is the server's address, if all runs have the same one. `stages`
    are the prompt lengths, if they differ instead of the load. `profile` is how the rate changes in every stage,
    `trace` the name of the replayed trace. `seconds` are the shortest and longest steady window. `formats` are the
    number formats by engine, if servers report them. `remote`: the servers run on other machines than the load
    generator, whose machine `hardware` describes."""

    models: tuple[str, ...]
    engines: tuple[str, ...]
    scenario: str
    repeats: tuple[int, int]
    interleaved: bool
    hardware: tuple[Hardware, ...]
    dates: tuple[datetime, datetime] | None
    target: str | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    open_loop: bool = False
    unit: str = ""
    loads: tuple[float, ...] = ()
    stages: tuple[str, ...] = ()
    profile: Profile = ()
    trace: str | None = None
    seconds: tuple[float, float] | None = None
    formats: dict[str, str] = field(default_factory=dict)
    remote: bool = False
    random_weights: bool = False

    @staticmethod
    def from_benches(
        models: tuple[str, ...], engines: tuple[str, ...], host: Mapping[str, Any], date: str, rounds: int
    ) -> Tested:
        """Describe engines that were measured without HTTP, and therefore without a load."""
        names = tuple(model.removeprefix(RANDOM) for model in models)
        random = any(model.startswith(RANDOM) for model in models)
        machine, dates = (hardware(host),), _dates([date])
        return Tested(names, engines, "bench", (rounds, rounds), rounds > 1, machine, dates, random_weights=random)


def tested(engines: Sequence[EngineRuns]) -> Tested:
    runs = [run for engine in engines for run in engine.runs]
    stages = [stage for run in runs for stage in run.stages]
    lengths = {name: [v for s in stages if (v := s.value(name)) is not None] for name in (PROMPT_TOKENS, OUTPUT_TOKENS)}
    means = {name: sum(values) / len(values) if values else None for name, values in lengths.items()}
    windows, counts = [stage.seconds for stage in stages], [len(engine.runs) for engine in engines]
    urls, profiles = {run.url for run in runs}, {stage.profile for stage in stages}
    traces = {stage.label if stage.varies and not stage.profile else None for stage in stages}
    formats = {engine.label: {(run.engine or {}).get("dtype") for run in engine.runs} for engine in engines}
    formats = {label: names - {None, "", "none"} for label, names in formats.items()}
    scripted = [(run.engine or {}).get("name") == "fake" for run in runs]
    labels = dict.fromkeys(stage.label for stage in stages)
    models = [SCRIPTED if fake else run.model for run, fake in zip(runs, scripted, strict=True)]
    models = [model and model.removeprefix(RANDOM) for model in models]
    return Tested(
        models=tuple(dict.fromkeys(filter(None, models))),
        engines=tuple(engine.label for engine in engines),
        scenario=runs[0].scenario,
        target=next(iter(urls)) if len(urls) == 1 else None,
        prompt_tokens=means[PROMPT_TOKENS],
        output_tokens=means[OUTPUT_TOKENS],
        open_loop=any(stage.is_open for stage in stages),
        unit=stages[0].load_unit if stages else "",
        loads=tuple(sorted({stage.load for stage in stages}))
        if len({stage.load_unit for stage in stages}) == 1
        else (),
        stages=tuple(labels) if all(label.endswith(LENGTHS) for label in labels) else (),
        profile=next(iter(profiles)) if len(profiles) == 1 else (),
        trace=next(iter(traces)) if len(traces) == 1 else None,
        seconds=(min(windows), max(windows)) if windows else None,
        repeats=(min(counts), max(counts)),
        interleaved=interleaved(engines),
        formats={label: str(name) for label, names in formats.items() if len(names) == 1 for name in names},
        hardware=tuple(dict.fromkeys(hardware(run.host) for run in runs)),
        dates=_dates([run.started_at for run in runs]),
        random_weights=any(str((run.engine or {}).get("model") or run.model).startswith(RANDOM) for run in runs),
        remote=all(not is_loopback(urlsplit(url).hostname or "") for url in urls),
    )


def hardware(host: Mapping[str, Any]) -> Hardware:
    cores = host.get("usable_cores") or host.get("cores")
    memory = host.get("memory")
    return Hardware(
        cpu=str(host.get("cpu") or ""),
        cores=cores if isinstance(cores, int) else None,
        memory=memory if isinstance(memory, int | float) else None,
        gpus=str(host["gpus"]) if host.get("gpus") else None,
    )


def _dates(started: Sequence[str]) -> tuple[datetime, datetime] | None:
    try:
        instants = sorted(map(datetime.fromisoformat, started))
    except ValueError:
        return None
    return (instants[0], instants[-1]) if instants else None
