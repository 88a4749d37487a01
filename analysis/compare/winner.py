"""Engine against engine at one stage, and the sentence that says which one won and by how much.

The runs are the samples: what differs from run to run is larger than what differs inside one, so the spread inside a
run is no basis for a winner. With one run each the sentence speaks of this run only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.compare.engine_runs import Contender, contenders_of, headline_ttft, paired, stages_of
from analysis.compare.likeness import different_scenarios, number_format, unlike
from analysis.settings import MARGIN
from analysis.stats.differences import spread
from analysis.stats.estimate import Estimate
from analysis.stats.repeats import REPEATS, Ranking, winner, within_run_error
from analysis.summary.finding import Finding, in_order
from analysis.summary.run_summary import RunSummary
from analysis.summary.stage import StageSummary
from records.formatting import (
    format_interval,
    format_ratio,
    format_seconds,
    format_share,
    in_words,
    join_labels,
    significant,
)

NAMED = 3  # engines behind the best one that a headline names; the table has all
RUN_TO_RUN = 0.05  # standard deviation, as a share, from which on repeats are called apart


@dataclass(frozen=True, slots=True)
class Standing:
    """One engine at the stage of the comparison. `ratio` is the first one's throughput over this one's."""

    label: str
    runs: int
    throughput: Estimate
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """Best first. `stage` is the heaviest that all runs have; `winner` is `None` where none may be named: `why` not."""

    stage: str | None
    standings: tuple[Standing, ...]
    winner: str | None
    why: str | None
    sentence: str
    findings: tuple[Finding, ...]
    margin: float = MARGIN

    @property
    def invalid(self) -> bool:
        return any(finding.severity == "invalid" for finding in self.findings)


def compare(summaries: Sequence[RunSummary], allow_invalid: bool = False, margin: float = MARGIN) -> Comparison:
    """The runs of one report. `margin` is the ratio from which a difference is of practical significance."""
    contenders = contenders_of(summaries)
    scenarios = different_scenarios(summaries)
    if scenarios is not None:
        sentence = f"Nothing is compared: {scenarios.evidence.partition(', and')[0]}."
        return Comparison(None, (), None, "the scenarios differ", sentence, (scenarios,), margin)
    searches = [(summary.label, summary.search) for summary in summaries if summary.search is not None]
    if len(searches) == len(summaries):
        sentence = " ".join(f"{label}: {search.sentence}" for label, search in searches)
        return Comparison(None, (), None, None, sentence, in_order(unlike(summaries, None)), margin)
    stage = _heaviest_common(summaries)
    findings = in_order([*unlike(summaries, stage), *_run_to_run(contenders)])
    if stage is None:
        sentence = "These runs have no stage in common, so nothing is compared."
        return Comparison(None, (), None, "no stage in common", sentence, findings, margin)
    if len(contenders) == 1:
        standing = Standing(contenders[0].label, len(summaries), _throughput(contenders[0], stage), _ONE)
        return Comparison(stage, (standing,), None, None, _one(contenders[0], stage, standing), findings, margin)
    ranking = _rank(contenders, stage, margin)
    by_label = {contender.label: contender for contender in contenders}
    standings = tuple(
        Standing(
            engine.name,
            len(by_label[engine.name].runs),
            _throughput(by_label[engine.name], stage),
            _ONE if engine.behind is None else engine.behind.ratio,
        )
        for engine in ranking.engines
    )
    refusal = None if allow_invalid else _refusal(summaries, findings)
    why = refusal or _overloaded(by_label[ranking.engines[0].name], stage) or ranking.why
    sentence = f"No winner is named, because {refusal}." if refusal else _many(standings, by_label, stage, why)
    return Comparison(stage, standings, None if why else ranking.winner, why, sentence, findings, margin)


_ONE = Estimate(1.0)


def _heaviest_common(summaries: Sequence[RunSummary]) -> str | None:
    shared = set.intersection(*({stage.label for stage in summary.stages} for summary in summaries))
    return next((stage.label for stage in reversed(stages_of(summaries)) if stage.label in shared), None)


def _throughput(contender: Contender, stage: str) -> Estimate:
    return contender.estimate(lambda one: one.throughput, stage)


def _rank(contenders: Sequence[Contender], stage: str, margin: float) -> Ranking:
    samples = {one.label: [at.throughput.value or 0.0 for at in one.at(stage)] for one in contenders}
    errors = {one.label: within_run_error([at.throughput for at in one.at(stage)]) for one in contenders}
    return winner(samples, margin, paired(contenders), errors)


def _refusal(summaries: Sequence[RunSummary], findings: Sequence[Finding]) -> str | None:
    invalid = [summary.label for summary in summaries if summary.invalid]
    if invalid:
        return f"the run of {invalid[0]} is invalid: see the findings"
    return "their workloads differ: see the findings" if any(f.severity == "invalid" for f in findings) else None


def _overloaded(best: Contender, stage: str) -> str | None:
    if not any(one.overloaded for one in best.at(stage)):
        return None
    share = best.mean(lambda one: one.failure_share.value, stage)
    return f"{format_share(share)} of the requests to {best.label} failed"


def _one(contender: Contender, label: str, standing: Standing) -> str:
    """A single run has no winner: say what it served, and how long its users waited."""
    stage = contender.at(label)[-1]
    if not stage.ok:
        return f"{standing.label} answered no request at {label}."
    rate = standing.throughput
    tokens = " ".join(filter(None, (significant(rate.value or 0.0), format_interval(rate.low, rate.high))))
    served = f"{standing.label} served {tokens} output tokens/s at {label}"
    if stage.overloaded:
        return f"{served}, and {format_share(stage.failure_share.value)} of the requests failed."
    ttft = headline_ttft(contender.runs)
    if stage.latencies[ttft].n == 0:
        return f"{served}; half of the answers were complete within {_limit(contender, label, 'e2e_user', 'p50')}."
    median, tail = _limit(contender, label, ttft, "p50"), _limit(contender, label, ttft, "p95")
    return f"{served}; half of the first tokens came within {median}, 95 % within {tail}."


def _limit(contender: Contender, label: str, metric: str, percentile: str) -> str:
    return format_seconds(contender.estimate(lambda stage: stage.latencies[metric].percentile(percentile), label).value)


def _many(standings: Sequence[Standing], contenders: dict[str, Contender], stage: str, why: str | None) -> str:
    best, others = standings[0], standings[1:]
    if not best.throughput.value:
        return f"None of them served a token at {stage}."
    if len(others) == 1:
        said = f"{best.label} served {_times(others[0], 'the tokens of ')} at {stage}"
    else:
        margins = _margins(others)
        said = f"{best.label} served the most tokens at {stage}: {in_words(margins)}"
    formats = {name for standing in standings if (name := number_format(contenders[standing.label].runs[0]))}
    said += f" ({' against '.join(sorted(formats))})" if len(formats) > 1 else ""
    runs = min(standing.runs for standing in standings)
    if why is None:
        return f"{said}, over {runs} repeats."
    if runs < REPEATS:
        said += " in this run" if runs == 1 else f" in these {runs} runs"
        why = f"a winner needs {REPEATS} repeats of each" if why.endswith("repeats") else why
    return f"{said}. No winner is named: {why}."


def _margins(others: Sequence[Standing]) -> list[str]:
    """How far each lies behind the first; of many the nearest ones, and the range of the rest."""
    rest = others[NAMED:]
    ratios = [standing.ratio.value for standing in rest]
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < 2 or len(known) < len(ratios):
        return [_times(other, "those of ") for other in others]
    ends = " to ".join(format_ratio(ratio, None, None) for ratio in (min(known), max(known)))
    return [*(_times(other, "those of ") for other in others[:NAMED]), f"{ends} those of the other {len(rest)}"]


def _times(standing: Standing, of: str) -> str:
    ratio = standing.ratio
    if ratio.value is None:
        return f"all tokens and {standing.label} none" if of.startswith("the") else f"{standing.label} none"
    return f"{format_ratio(ratio.value, ratio.low, ratio.high)} {of}{standing.label}"


def _run_to_run(contenders: Sequence[Contender]) -> list[Finding]:
    findings = []
    for contender in contenders:
        apart: list[tuple[float, StageSummary]] = []
        for stage in stages_of(contender.runs):
            runs = spread([one.throughput.value or 0.0 for one in contender.at(stage.label)])
            if runs.deviation is not None and runs.mean and runs.deviation / runs.mean >= RUN_TO_RUN:
                apart.append((runs.deviation / runs.mean, stage))
        if apart:
            deviation = max(one for one, _ in apart)
            where = join_labels([stage.label for _, stage in apart])
            evidence = (
                f"{len(contender.runs)} runs of {contender.label} differ in output tokens/s at {where}: standard "
                f"deviation {format_share(deviation)}"
            )
            remedy = "repeat more often, interleave the engines, and see what else runs on the machine"
            findings.append(Finding("run_to_run", "warn", evidence, remedy, None, contender.label))
    return findings
