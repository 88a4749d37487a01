"""Engine against engine at one step, and the sentence that says which one won and by how much.

The ratio of two throughputs is between batch means of their steady windows. Where an engine was run three times or
more, its runs are the samples: what differs from run to run is larger than what differs inside one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.report.units import format_interval, format_ratio, format_seconds, format_share, in_words, significant
from analysis.verdict.finding import Finding, in_order
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import Estimate, mean_interval, ratio_interval
from analysis.verdict.summary import RunSummary

REPEATS = 3  # runs of one engine, from which their own spread is used
# Settings that may differ: what they do to the lengths shows in the lengths themselves.
SOFT_SETTINGS = {"seed", "ignore_eos", "request_timeout", "prompt_length_measured"}
RUN_TO_RUN = 0.05  # standard deviation, as a share, from which on repeats are called apart
LENGTH_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Standing:
    """One engine at the step of the comparison. `ratio` is the winner's throughput over this one's; 1 for itself."""

    label: str
    runs: int
    throughput: Estimate
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """Best first. `users` is the largest step that all have; `winner` is `None` for one engine, a tie or a refusal."""

    users: int | None
    standings: tuple[Standing, ...]
    winner: str | None
    sentence: str
    findings: tuple[Finding, ...]

    @property
    def invalid(self) -> bool:
        return any(finding.severity == "invalid" for finding in self.findings)


def compare(summaries: Sequence[RunSummary], allow_invalid: bool = False) -> Comparison:
    """The runs of one report. Runs with the same label are repeats of one engine."""
    groups: dict[str, list[RunSummary]] = {}
    for summary in summaries:
        groups.setdefault(summary.label, []).append(summary)
    shared = set.intersection(*({stage.users for stage in summary.stages} for summary in summaries))
    users = max(shared, default=None)
    findings = [*_different_workloads(summaries, users), *_run_to_run(groups)]
    if users is None:
        return Comparison(
            None, (), None, "These runs have no step in common, so nothing is compared.", in_order(findings)
        )
    samples = {label: _samples(runs, users) for label, runs in groups.items()}
    ranked = sorted(samples, key=lambda label: -sum(samples[label]) / len(samples[label]))
    standings = tuple(
        Standing(label, len(groups[label]), _throughput(groups[label], users), _ratio(samples, ranked[0], label))
        for label in ranked
    )
    invalid = [s.label for s in summaries if s.invalid]
    refused = any(finding.severity == "invalid" for finding in findings)
    winner = None
    if len(groups) == 1:
        sentence = _one(groups[ranked[0]], users, standings[0])
    elif (invalid or refused) and not allow_invalid:
        reason = f"the run of {invalid[0]} is invalid" if invalid else "their workloads differ"
        sentence = f"No winner is named, because {reason}: see the findings."
    else:
        tie = standings[1].ratio.low is not None and standings[1].ratio.low <= 1
        winner = None if tie else ranked[0]
        sentence = _many(standings, users, tie)
    return Comparison(users, standings, winner, sentence, in_order(findings))


def _step(summary: RunSummary, users: int) -> StageSummary:
    stage = summary.at(users)
    assert stage is not None, "the step is one that all runs have"
    return stage


def _samples(runs: Sequence[RunSummary], users: int) -> tuple[float, ...]:
    """Throughputs whose spread is the engine's: of its runs when there are enough, else of their windows' parts."""
    if len(runs) >= REPEATS:
        return tuple(_step(run, users).throughput.value or 0.0 for run in runs)
    return tuple(batch for run in runs for batch in _step(run, users).throughput_batches)


def _throughput(runs: Sequence[RunSummary], users: int) -> Estimate:
    return _step(runs[0], users).throughput if len(runs) == 1 else mean_interval(_samples(runs, users))


def _ratio(samples: dict[str, tuple[float, ...]], best: str, label: str) -> Estimate:
    if label == best:
        return Estimate(1.0, 1.0, 1.0, len(samples[label]))
    return ratio_interval(samples[best], samples[label])


def _one(runs: Sequence[RunSummary], users: int, standing: Standing) -> str:
    """A run by itself has no winner: say what it served, and how long its users waited."""
    stage = _step(runs[-1], users)
    if not stage.ok:
        return f"{standing.label} answered no request at {users} users."
    rate = standing.throughput
    tokens = " ".join(filter(None, (significant(rate.value or 0.0), format_interval(rate.low, rate.high))))
    served = f"{standing.label} served {tokens} output tokens/s at {users} users"
    ttft = stage.latencies["ttft"]
    if ttft.n == 0:
        answered = format_seconds(stage.latencies["e2e"].p50.value)
        return f"{served}; half of the answers were there within {answered}."
    median, tail = format_seconds(ttft.p50.value), format_seconds(ttft.p95.value)
    return f"{served}; half of the first tokens came within {median}, 95 % within {tail}."


def _many(standings: Sequence[Standing], users: int, tie: bool) -> str:
    best, others = standings[0], standings[1:]
    if not best.throughput.value:
        return f"None of them served a token at {users} users."
    if tie:
        margin = f"{best.label} served {_times(others[0])} the tokens of {others[0].label}"
        return f"Nobody won at {users} users: {margin}, which is within the error."
    if len(others) == 1 and others[0].ratio.value is not None:
        return f"{best.label} served {_times(others[0])} the tokens of {others[0].label} at {users} users."
    margins = [
        f"{_times(other)} those of {other.label}" if other.ratio.value is not None else f"{other.label} served none"
        for other in others
    ]
    return f"{best.label} served the most tokens at {users} users: {in_words(margins)}."


def _times(standing: Standing) -> str:
    ratio = standing.ratio
    assert ratio.value is not None, "only a standing with tokens has a ratio to write"
    return format_ratio(ratio.value, ratio.low, ratio.high)


def _different_workloads(summaries: Sequence[RunSummary], users: int | None) -> list[Finding]:
    findings = []
    first = summaries[0]
    for other in summaries[1:]:
        names = sorted((first.workload.keys() | other.workload.keys()) - SOFT_SETTINGS)
        apart = [
            f"{name} {first.workload.get(name)} and {other.workload.get(name)}"
            for name in names
            if first.workload.get(name) != other.workload.get(name)
        ]
        if apart:
            evidence = f"{first.label} and {other.label} were asked different things: {'; '.join(apart)}"
            findings.append(Finding("workloads_differ", "invalid", evidence, "run both with the same options", users))
        elif (lengths := _different_lengths(first, other, users)) is not None:
            findings.append(lengths)
        for what, ours, theirs in (
            ("model", first.model, other.model),
            ("load generator's CPU", first.host.get("cpu"), other.host.get("cpu")),
        ):
            if ours != theirs:
                evidence = f"{first.label} and {other.label} differ in the {what}: {ours} and {theirs}"
                findings.append(Finding("workloads_differ", "warn", evidence, "compare like with like"))
    return findings


def _different_lengths(first: RunSummary, other: RunSummary, users: int | None) -> Finding | None:
    """The same options, and yet another amount of work: another tokenizer or template, or answers that end early."""
    if users is None:
        return None
    apart = []
    ours, theirs = _step(first, users).tokens, _step(other, users).tokens
    for what, a, b in (("prompts", ours.prompt, theirs.prompt), ("answers", ours.output, theirs.output)):
        if a and b and abs(a - b) > LENGTH_TOLERANCE * max(a, b):
            apart.append(f"{what} of {significant(a)} and {significant(b)} tokens on average")
    if not apart:
        return None
    return Finding(
        "workloads_differ",
        "warn",
        f"{first.label} and {other.label} did different work: {'; '.join(apart)}",
        "fix the length of the answers (--ignore-eos yes) and use the same tokenizer and chat template",
        users,
    )


def _run_to_run(groups: dict[str, list[RunSummary]]) -> list[Finding]:
    findings = []
    for label, runs in groups.items():
        for users in sorted(set.intersection(*({stage.users for stage in run.stages} for run in runs))):
            values = [_step(run, users).throughput.value or 0.0 for run in runs]
            spread = mean_interval(values)
            if len(values) < 2 or not spread.value:
                continue
            apart = (max(values) - min(values)) / spread.value
            deviation = (sum((v - spread.value) ** 2 for v in values) / (len(values) - 1)) ** 0.5 / spread.value
            if deviation >= RUN_TO_RUN:
                evidence = (
                    f"{len(values)} runs of {label} differ by {format_share(apart)} in output tokens/s "
                    f"(standard deviation {format_share(deviation)})"
                )
                remedy = "repeat more often, interleave the engines, and see what else runs on the machine"
                findings.append(Finding("run_to_run", "warn", evidence, remedy, users, label))
    return findings
