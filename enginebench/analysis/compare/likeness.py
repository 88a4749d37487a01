"""What makes runs unlike one another: other scenarios, settings, number formats, lengths, stages or load generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from enginebench.analysis.compare.engine_runs import DECIDING, EngineRuns, engine_settings, settings_apart, stages_of
from enginebench.analysis.stats.differences import spread
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_seconds, format_share, in_words, join_labels, significant
from enginebench.records.view import Finding, Severity, StageView

# Settings that may differ: what they do to lengths and stages shows there, at the stage of the comparison.
SOFT_SETTINGS = {
    *("seed", "prompt_set", "same_prompts", "ignore_eos", "prompt_length_measured", "request_timeout"),
    *("stages", "stage_seconds", "stage_requests", "warm_up"),
    "context",  # the server's own; it limits lengths
}
LENGTH_TOLERANCE = 0.1
CACHED_TOLERANCE = 0.1  # of the prompt's tokens
RUN_TO_RUN = 0.05  # standard deviation, as a share, from which on repeats are called apart
CLIENT: tuple[tuple[str, Callable[[RunSummary], object]], ...] = (
    ("the load generator's CPU", lambda run: run.host.get("cpu")),
    ("its cores", lambda run: run.host.get("usable_cores")),
    ("the number of worker processes", lambda run: run.workers),
)
HOST_GPUS = "gpus"  # of `host`: names of the GPUs beside the load generator, in a study


class Unlikeness(Enum):
    """The ways in which runs differ: the kind of the finding, and it in a word or two. One that does not hinder a
    comparison is only named beside the numbers: a format or a version may be its subject."""

    SCENARIO = ("scenarios_differ", "scenario")
    WORKLOAD = ("workloads_differ", "workload")
    SETTINGS = ("settings_differ", "engine settings")  # of runs that pass as repeats of one engine
    MODEL = ("models_differ", "model")
    CLIENT = ("clients_differ", "load generator")
    GPUS = ("gpus_differ", "GPU")
    THROTTLING = ("throttling_differs", "GPU throttling")
    FORMAT = ("formats_differ", "number format", False)
    VERSION = ("commits_differ", "version of this tool", False)

    def __init__(self, kind: str, words: str, hinders: bool = True) -> None:
        self.kind, self.words, self.hinders = kind, words, hinders

    @staticmethod
    def of(finding: Finding) -> Unlikeness:
        return next(each for each in Unlikeness if each.kind == finding.kind)


Difference = tuple[Unlikeness, Severity, str, str]  # with its evidence and remedy


def blocks(finding: Finding) -> bool:
    """Whether nothing may be claimed of runs that differ like that."""
    return Unlikeness.of(finding).hinders


def different_scenarios(summaries: Sequence[RunSummary]) -> Finding | None:
    """Different scenarios ask different questions: no number of one compares with a number of the other."""
    scenarios = list(dict.fromkeys(summary.scenario for summary in summaries))
    if len(scenarios) == 1:
        return None
    return Finding(
        Unlikeness.SCENARIO.kind,
        "invalid",
        f"the runs are of different scenarios ({', '.join(scenarios)}), and so are not compared",
        "compare runs of one scenario",
    )


def unlike(summaries: Sequence[RunSummary], stage: str | None) -> list[Finding]:
    """How each run differs from the first, at the stage of the comparison, and in the settings of the engine from the
    first of its label; repeats of one engine say it once.

    A finding has the label of the run that differs.
    """
    first, of_label = summaries[0], {run.label: run for run in reversed(summaries)}
    differences: dict[tuple[str, str | None, str], Finding] = {}
    for other in summaries[1:]:
        for finding in (*_differences(first, other, stage), *_other_settings(of_label[other.label], other)):
            differences.setdefault((finding.kind, finding.label, finding.remedy), finding)
    return list(differences.values())


def _differences(first: RunSummary, other: RunSummary, label: str | None) -> Iterator[Finding]:
    names = f"{first.label} and {other.label}"
    for what, severity, evidence, remedy in (*_settings(first, other), *_engines(first, other)):
        yield Finding(what.kind, severity, f"{names} {evidence}", remedy, None, other.label)
    ours, theirs = (run.at(label) if label is not None else None for run in (first, other))
    if ours is not None and theirs is not None:
        for evidence, remedy in _work(first, other, ours, theirs):
            yield Finding(Unlikeness.WORKLOAD.kind, "warn", f"{names} {evidence}", remedy, ours.key, other.label)


def _settings(first: RunSummary, other: RunSummary) -> Iterator[Difference]:
    names = sorted((first.workload.keys() | other.workload.keys()) - SOFT_SETTINGS - {"slo"})
    both = {name: (first.workload.get(name), other.workload.get(name)) for name in names}
    apart = "; ".join(f"{name} {a} and {b}" for name, (a, b) in both.items() if a != b)
    if apart:
        yield Unlikeness.WORKLOAD, "invalid", f"were asked different things: {apart}", "run both with the same options"
    if first.objectives != other.objectives:  # which may be others than a run was made with
        ours, theirs = (", ".join(map(str, run.objectives)) or "none" for run in (first, other))
        judged = f"are judged by different objectives: {ours} and {theirs}"
        yield Unlikeness.WORKLOAD, "invalid", judged, "judge both by the same ones: --slo"


def _engines(first: RunSummary, other: RunSummary) -> Iterator[Difference]:
    if first.model != other.model:
        models = f"served different models: {first.model} and {other.model}"
        yield Unlikeness.MODEL, "warn", models, "serve the same model with both"
    ours, theirs = number_format(first), number_format(other)
    if ours and theirs and ours != theirs:
        formats = f"computed in different number formats: {ours} and {theirs}"
        yield Unlikeness.FORMAT, "warn", formats, "serve both in the same format, where both can"
    clients = "; ".join(f"{what} ({of(first)} and {of(other)})" for what, of in CLIENT if of(first) != of(other))
    if clients:
        evidence = f"were measured by different clients: {clients}"
        yield Unlikeness.CLIENT, "warn", evidence, "measure both with the same load generator"
    if first.host.get(HOST_GPUS) != other.host.get(HOST_GPUS):
        ours, theirs = (run.host.get(HOST_GPUS) or "none" for run in (first, other))
        evidence = f"were measured on different GPUs: {ours} and {theirs}"
        yield Unlikeness.GPUS, "warn", evidence, "measure both on the same one"
    if _version(first) != _version(other):
        versions = f"were measured by different versions of this tool: {_version(first)} and {_version(other)}"
        yield Unlikeness.VERSION, "note", versions, "measure both with the same version"
    if _throttled(first) != _throttled(other):
        hot = first if _throttled(first) else other
        evidence = f"were not cooled alike: the GPU of {hot.label} was throttled, and the other one was not"
        yield Unlikeness.THROTTLING, "invalid", evidence, "cool it, or raise its power limit, and measure again"


def _other_settings(first: RunSummary, other: RunSummary) -> Iterator[Finding]:
    """Of two runs of one label, as far as both say what their engine is."""
    ours, theirs = engine_settings(first), engine_settings(other)
    names = settings_apart(first, other)
    if first.engine and other.engine and names:
        apart = "; ".join(f"{name} {ours.get(name)} and {theirs.get(name)}" for name in names)
        evidence = f"the runs of {other.label} had different engine settings: {apart}"
        remedy = "give the runs with other settings a --label of their own"
        yield Finding(Unlikeness.SETTINGS.kind, "warn", evidence, remedy, None, other.label)


def _version(run: RunSummary) -> str:
    version = run.versions.get("enginebench", "unknown")
    return f"{version} ({run.commit[:12]})" if run.commit else version


def _throttled(run: RunSummary) -> bool:
    return any(finding.kind == "gpu_throttled" for finding in run.findings)


def number_format(run: RunSummary) -> str | None:
    """The number format that the engine reports, such as bfloat16."""
    named = (run.engine or {}).get("dtype")
    return str(named) if named else None


def _work(first: RunSummary, other: RunSummary, ours: StageView, theirs: StageView) -> Iterator[tuple[str, str]]:
    """The same options, and yet another amount of work: evidence and remedy."""
    apart = []
    for what, quantity in (("prompts", "prompt_tokens"), ("answers", "output_tokens")):
        a, b = ours.value(quantity), theirs.value(quantity)
        if a and b and abs(a - b) > LENGTH_TOLERANCE * max(a, b):
            apart.append(f"{what} of {significant(a)} and {significant(b)} tokens on average")
    if apart:
        fixed = all(run.workload.get("ignore_eos") for run in (first, other))
        yield (
            f"did different work: {'; '.join(apart)}",
            "use the same tokenizer and chat template, and servers that honour ignore_eos"
            if fixed
            else "fix the length of the answers (--ignore-eos yes) and use the same tokenizer and chat template",
        )
    a, b = (stage.value("cached_tokens") or 0.0 for stage in (ours, theirs))
    prompt = max(ours.value("prompt_tokens") or 0.0, theirs.value("prompt_tokens") or 0.0)
    if prompt and abs(a - b) > CACHED_TOLERANCE * prompt:
        shares = f"{format_share(a / prompt)} and {format_share(b / prompt)}"
        remedy = "give every run prompts of its own, or restart the servers between runs"
        yield f"took {shares} of their prompt tokens from a prefix cache", remedy
    # The time of a number of requests is a result, and a search chooses that of each probe.
    free = all(run.workload.get("stage_requests") or run.search is not None for run in (first, other))
    if not free and abs(ours.seconds - theirs.seconds) > LENGTH_TOLERANCE * max(ours.seconds, theirs.seconds):
        lengths = f"{format_seconds(ours.seconds)} and {format_seconds(theirs.seconds)}"
        yield f"were measured over {lengths}", "give both stages of the same length"


def reasons_to_claim_nothing(
    engines: Sequence[EngineRuns],
    base: str,
    differences: Sequence[Finding],
    allow_different: bool,
    allow_invalid: bool,
) -> dict[str, str]:
    """By engine, why nothing is claimed of it. What concerns the baseline concerns all."""
    reasons: dict[str, str] = {}
    for engine in engines:
        if any(run.invalid for run in engine.runs) and not allow_invalid:
            reasons[engine.label] = f"a run of {engine.label} is invalid (--allow-invalid accepts it)"
            continue
        own = [each for each in differences if blocks(each) and each.label in {engine.label, None}]
        if own and not allow_different:
            reasons[engine.label] = f"{own[0].evidence} (--allow-different accepts that)"
    if base in reasons:
        reasons |= {engine.label: reasons[base] for engine in engines if engine.label not in reasons}
    return reasons


def named_differences(engines: Sequence[EngineRuns], differences: Sequence[Finding]) -> dict[str, str]:
    """By engine, in a word or two, what differs from the baseline, whether it hinders a comparison or not."""
    words: dict[str, list[str]] = {engine.label: [] for engine in engines}
    for finding in differences:
        for label in words if finding.label is None else [finding.label]:
            words[label].append(Unlikeness.of(finding).words)
    for engine in engines:
        words[engine.label] += ["an invalid run"] if any(run.invalid for run in engine.runs) else []
    return {label: in_words(list(dict.fromkeys(of_label))) for label, of_label in words.items() if of_label}


def run_to_run(engines: Sequence[EngineRuns]) -> list[Finding]:
    """Engines whose repeats differ much from one another."""
    findings = []
    for engine in engines:
        apart: list[tuple[float, StageView]] = []
        for stage in stages_of(engine.runs):
            values = [value for view in engine.at(stage.label) if (value := view.value(DECIDING)) is not None]
            runs = spread(values) if values else None
            if runs is not None and runs.deviation is not None and runs.mean:
                apart.append((runs.deviation / runs.mean, stage))
        far = [(deviation, stage) for deviation, stage in apart if deviation >= RUN_TO_RUN]
        if far:
            where = join_labels([stage.label for _, stage in far])
            evidence = (
                f"{len(engine.runs)} runs of {engine.label} differ in output tokens/s at {where}: standard "
                f"deviation {format_share(max(deviation for deviation, _ in far))}"
            )
            remedy = "repeat more often, interleave the engines, and see what else runs on the machine"
            findings.append(Finding("run_to_run", "warn", evidence, remedy, None, engine.label))
    return findings
