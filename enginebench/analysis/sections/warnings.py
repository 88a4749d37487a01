"""Findings of all runs as warnings: one for each kind and remedy, with the engines and loads that it concerns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from enginebench.analysis.document import Cell, Column, Section, Table, Tone, Warning, Word
from enginebench.analysis.frame import Frame
from enginebench.analysis.verdict.differences import run_to_run
from enginebench.records.findings.kinds import KIND_BY_NAME
from enginebench.records.formatting import format_share
from enginebench.records.view import SEVERITIES, Finding, Severity

TONES: dict[Severity, Tone] = {"invalid": Tone.BAD, "warn": Tone.CAUTION, "note": Tone.DIM}


def warnings(*frames: Frame) -> tuple[Warning, ...]:
    """Return the most severe warnings first; within a severity, first those that concern the most runs."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in (finding for frame in frames for finding in frame.findings):
        groups.setdefault((finding.kind, finding.remedy), []).append(finding)
    names = {name for frame in frames for name in frame.names}
    several = len({view.label for frame in frames for view in frame.stages}) > 1
    merged = [_merge(names, findings, several) for findings in groups.values()]
    merged += dict.fromkeys(warning for frame in frames for warning in _of_comparison(frame))
    return tuple(sorted(merged, key=lambda warning: (SEVERITIES.index(warning.severity), -warning.count)))


def _merge(names: set[str], findings: list[Finding], several: bool) -> Warning:
    """Merge the most severe findings into one warning, with the evidence of the heaviest load, and the engines and
    loads with that evidence. If the test has a single load, it is not named."""
    severity = min((finding.severity for finding in findings), key=SEVERITIES.index)
    findings = [finding for finding in findings if finding.severity == severity]
    worst = max(findings, key=lambda finding: -1 if finding.stage is None else finding.stage.index)
    same = [finding for finding in findings if finding.evidence == worst.evidence]
    places = [finding.stage for finding in same if finding.stage is not None] if several else []
    stages = tuple(dict.fromkeys(stage.label for stage in sorted(places, key=lambda stage: stage.index)))
    engines, concerned = (tuple(dict.fromkeys(f.label for f in part if f.label)) for part in (same, findings))
    also = tuple(name for name in concerned if name not in engines)
    engines = engines if also or len(names) == 2 or set(engines) != names else ()
    return Warning(worst.kind, worst.severity, worst.evidence, worst.remedy, engines, stages, also, len(findings))


def _of_comparison(frame: Frame) -> Iterator[Warning]:
    """Warn about different workloads, which are not compared, and repeats that are not interleaved, so not paired."""
    runs = len(frame.runs)
    for difference in frame.differences:
        if difference.incomparable:
            settings = ", ".join(difference.settings) or difference.kind.value
            evidence = f"the runs were asked different things: {settings}"
            yield _warning("different_workload", "invalid", evidence, runs)
        elif difference.hidden:
            yield _warning("different", "note", f"the runs differ in their {difference.kind.value}", runs)
    spreads = {(engine.label, load): spread for engine in frame.engines for load, spread in run_to_run(engine).items()}
    if spreads:
        worst = max(spreads, key=lambda place: spreads[place])
        share = format_share(spreads[worst])
        evidence = f"output tokens/s vary from run to run by {share} (standard deviation)"
        also = tuple(dict.fromkeys(name for name, _ in spreads if name != worst[0]))
        warning = _warning("run_to_run", "warn", evidence, runs)
        yield replace(warning, engines=worst[:1], stages=worst[1:] if len(frame.stages) > 1 else (), also=also)
    if len(frame.engines) > 1 and frame.tested.repeats[1] > 1 and not frame.tested.interleaved:
        evidence = "the repeats were not interleaved, so that a drift of the machine may look like a difference"
        yield _warning("not_interleaved", "warn", evidence, runs)


def _warning(kind: str, severity: Severity, evidence: str, count: int) -> Warning:
    return Warning(kind, severity, evidence, KIND_BY_NAME[kind].remedy, count=count)


def warnings_section(warnings: tuple[Warning, ...]) -> Section:
    """A study's first screen has the warnings of its first part only."""
    headings = (Column("", text=True), Column("warning", text=True), Column("what to do", text=True))
    rows: list[tuple[Cell, ...]] = [
        (Word(warning.severity, TONES[warning.severity]), warning, Word(warning.remedy)) for warning in warnings
    ]
    return Section("warnings", "Warnings", (Table("warnings", "Warnings", headings, tuple(rows)),), folded=True)
