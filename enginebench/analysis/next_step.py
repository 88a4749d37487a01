"""What to do next: the command that raises or confirms the answer of a document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from enginebench.analysis.answer import Replicas
from enginebench.analysis.document import NextStep
from enginebench.analysis.frame import Frame
from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.stats.repeats import MIN_REPEATS
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import counted
from enginebench.records.load import Load, Rate, Users, load_of
from enginebench.records.metrics import OUTPUT_TOKENS, PROMPT_TOKENS

OWN_REQUESTS = {
    *("agents", "answers", "conversation", "graded", "long_context", "memory", "mixed", "ruler", "shared_prefix"),
}
"""Scenarios whose requests no other scenario can repeat."""
OF_USERS = {"agents", "conversation"}  # scenarios that cannot send at a rate
CARRIED = {"--dataset", "--classes", "--shared-prefix-tokens", "--endpoint", "--prompt-tokens", "--output-tokens"}
CARRIED_BY_USERS = {"--turns", "--turn-tokens", "--think-time"}  # without effect at a rate
WITH_LENGTHS = {"--dataset", "--classes"}  # options whose requests have their own lengths
COARSE = 1.2  # ratio of the lowest load missed to the highest met, from which a search between them is worthwhile


def next_step(frame: Frame, planned: str | None = None) -> NextStep | None:
    """Return the step that raises or confirms the answer: an SLO, several users, more repeats, a higher or lower load,
    or a search for the limit between two loads. If the limit is known, the step is a plan with the engine `planned`, by
    default the best one."""
    if not frame.stages or any(difference.incomparable for difference in frame.differences):
        return None
    imported = _imported(frame)
    if not frame.objectives:
        has_requests = not any(run.statistics_only for run in frame.runs)
        if frame.tested.scenario == "single" and not imported:
            best = frame.engines[0]
            command = ("enginebench", "run", "concurrent", *_target(best.runs[0]))
            return NextStep("users", command, names={"engine": best.label})
        return _name_slo(frame) if frame.loads_make_axis and has_requests else None
    if imported:
        return None
    if planned is None and len(frame.engines) > 1 and frame.tested.repeats[0] < MIN_REPEATS:
        return NextStep("repeat", (*frame.engines[0].runs[0].command, "--repeat", "5"))
    capacity = frame.capacities.get(planned or frame.names[0])
    if capacity is None or not capacity.verdicts:
        return None
    engine, load, beyond, is_rate = capacity.engine, capacity.load, capacity.beyond, capacity.unit == Rate.unit
    ends = {"load": load, "beyond": beyond}
    names = {"engine": engine}
    names |= {name: _label(end, capacity.unit) for name, end in ends.items() if end is not None}
    at = ("rate", "--rate") if is_rate else ("concurrent", "--stages")
    if load is None and beyond is None:
        if capacity.uncounted:
            return NextStep("count", ("enginebench", "report", *map(str, _folders(frame)), "--tokenizer", "FILE"))
        return NextStep("measure", frame.engine(engine).runs[0].command)
    if load is None:
        command = run_command(frame, engine, *at, f"{(beyond or 2) / 2:g}")
        return NextStep("lower", command, names=names, varied=_varied(frame, engine))
    bounds = capacity.bounds
    if bounds is None:
        sure = capacity.met_confirmed
        command = run_command(frame, engine, *at, f"{2 * load:g}" if sure else f"{load:g},{2 * load:g}")
        return NextStep("higher" if sure else "confirm_higher", command, names=names, varied=_varied(frame, engine))
    if not capacity.confirmed or bounds[1] > COARSE * bounds[0]:
        low, high = bounds
        command = _search(frame, engine, capacity.unit, "--search-range", f"{low:g}-{high:g}")
        names |= {"load": f"{low:g}", "beyond": _label(high, capacity.unit)}
        return NextStep("bracket", command, names=names, varied=_varied(frame, engine))
    if planned is not None:
        return NextStep("buy", names={"engine": planned})
    command = ("enginebench", "plan", *map(str, _folders(frame)), "--peak", "PEAK", "--slo", _slo(frame))
    return NextStep("plan", command, names={"peak": "20/s" if is_rate else "80users"})


def next_step_for_peak(frame: Frame, replicas: Replicas, peak: Load, spares: int = 0) -> NextStep | None:
    """Return the step for the first candidate of a plan: measure it in the unit of the peak if its capacity in that
    unit is unknown, and find its limit if that may change the number of replicas."""
    if _imported(frame):
        return None
    if replicas.missing in {NotPlanned.NOT_MEASURED, NotPlanned.OTHER_UNIT}:
        return NextStep("search", _search(frame, replicas.name, peak.unit))
    step, capacity = next_step(frame, replicas.name), replicas.capacity
    if step is not None and step.purpose == "bracket" and capacity is not None and capacity.confirmed:
        fewest = math.floor(peak.value / (capacity.beyond or math.inf)) + 1 + spares  # at any load between the bounds
        step = replace(step, purpose="buy", command=()) if replicas.count == fewest else step
    if step is None or step.purpose != "buy":
        return step
    names = {**step.names, "replicas": counted(replicas.number or 0, "replica")}
    return replace(step, purpose="buy" if spares else "spare", names=names)


def next_step_after_disruption(frame: Frame) -> NextStep:
    """Return the search for the load that the server sustains, which a burst or an outage does not show."""
    if not frame.objectives:
        return _name_slo(frame)
    return NextStep("sustained", _search(frame, frame.names[0], frame.stages[0].load_unit))


def next_step_after_growth(frame: Frame, target: Sequence[str]) -> NextStep:
    """Search for the limit that a minute can only bracket, on the server that `target` names."""
    step = next_step(frame)
    capacity = frame.capacities.get(frame.names[0])
    bounds = capacity.bounds if capacity is not None and step is not None and step.purpose == "bracket" else None
    between = () if bounds is None else ("--search-range", f"{bounds[0]:g}-{bounds[1]:g}")
    search = run_command(frame, frame.names[0], "capacity", "--by", "users", *between, target=target)
    if step is None or step.purpose not in {"lower", "higher", "bracket"}:
        return NextStep("search", search)
    return replace(step, command=search)


def run_command(
    frame: Frame, name: str, scenario: str, *options: str, target: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return `enginebench run SCENARIO …` with the requests and objectives of an engine's runs; if their own scenario
    makes the requests, it is run instead. `target` has options that name the server, by default those of its first
    run."""
    run = frame.engine(name).runs[0]
    at_rate = "rate" in (scenario, *options)
    carried = CARRIED if at_rate else CARRIED | CARRIED_BY_USERS
    asked = {flag: value for flag, value in pairwise(_words(run)) if flag in carried}
    if run.scenario in OWN_REQUESTS and not (at_rate and run.scenario in OF_USERS):
        scenario = run.scenario
    elif not WITH_LENGTHS & asked.keys():
        lengths = [(length.replace("_", "-"), run.workload.get(length)) for length in (PROMPT_TOKENS, OUTPUT_TOKENS)]
        asked |= {f"--{length}": str(value) for length, value in lengths if value}
    if _varied(frame, name) and "--classes" not in asked and scenario != "mixed":
        tokens = int(str(run.workload[OUTPUT_TOKENS]))
        asked["--output-tokens"] = f"uniform:{tokens // 2}-{tokens + tokens // 2}"
    slo = ["--slo", _slo(frame)] if frame.objectives else []
    requests = [f"{flag}={value}" for flag, value in asked.items()]
    return ("enginebench", "run", scenario, *(_target(run) if target is None else target), *options, *slo, *requests)


def _search(frame: Frame, name: str, unit: str, *options: str) -> tuple[str, ...]:
    return run_command(frame, name, "capacity", "--by", "rate" if unit == Rate.unit else unit, *options)


def _label(load: float, unit: str) -> str:
    return load_of(load, unit).label if unit in {Users.unit, Rate.unit} else f"{load:g} {unit}"


def _words(run: RunSummary) -> list[str]:
    """Return the words of the run's command, with `--flag=value` as two."""
    words = [word.split("=", 1) if word.startswith("--") else [word] for word in run.command]
    return [part for parts in words for part in parts]


def _imported(frame: Frame) -> bool:
    """Return whether another tool made the runs, so that none of our commands repeats them."""
    return any(run.command[:2] == ("enginebench", "import") for run in frame.runs)


def _varied(frame: Frame, name: str) -> bool:
    """Return whether an engine's next run should vary the lengths of answers, to avoid users in lock step."""
    run = frame.engine(name).runs[0]
    fixed = str(run.workload.get(OUTPUT_TOKENS) or "")
    return fixed.isdigit() and int(fixed) > 1 and any(finding.kind == "lock_step" for finding in run.findings)


def _target(run: RunSummary) -> Iterator[str]:
    """Name the same server, or the same engine with the same options."""
    engine = run.engine or {}
    words = _words(run)
    by_url = bool({"--url", "--host"} & set(words)) or any(word.startswith(("http://", "https://")) for word in words)
    if by_url or "name" not in engine:
        yield from ("--url", next(_typed(run, "--url"), run.url))
    else:
        yield from ("--engine", str(engine["name"]))
        options = [*_typed(run, "-o"), *_typed(run, "--option")]
        if run.command[:2] == ("enginebench", "study") and engine.get("dtype") not in {None, "", "none"}:
            options.append(f"dtype={engine['dtype']}")
        for option in options:
            yield from ("-o", option)
    if "--model" in words or (not by_url and "--engine" not in words):  # cells of a study name neither
        yield from ("--model", str(engine.get("model") or run.model))


def _typed(run: RunSummary, flag: str) -> Iterator[str]:
    """Yield the values of a flag of the run's command for this contender, without the contender's name as a prefix
    (`few.` of an option, `few=` of a URL)."""
    for word, value in pairwise(_words(run)):
        if word == flag:
            owner, mark, rest = value.partition("=" if flag == "--url" else ".")
            named = bool(mark) and not set(":/=") & set(owner)
            if not named or owner in {run.label, (run.engine or {}).get("name")}:
                yield rest if named else value


def _name_slo(frame: Frame) -> NextStep:
    return NextStep("slo", ("enginebench", "report", *map(str, _folders(frame)), "--slo", "ttft_p95=1s"))


def _slo(frame: Frame) -> str:
    return ",".join(objective.typed for objective in frame.objectives)


def _folders(frame: Frame) -> Iterator[Path]:
    """Yield the folder that the runs share, else the folder of each."""
    parents = {run.folder.parent for run in frame.runs}
    shared = len(frame.runs) > 1 and len(parents) == 1
    yield from parents if shared else (run.folder for run in frame.runs)
