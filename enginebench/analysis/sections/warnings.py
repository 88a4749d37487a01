"""Findings of all runs as warnings: one for each kind and remedy, with the engines and loads that it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def doubtful(warned: Sequence[Warning]) -> bool:
    return any(warning.severity != "note" for warning in warned)


def _merge(names: set[str], findings: list[Finding], several: bool) -> Warning:
    """Merge the most severe findings into one warning, with the evidence of the heaviest load and the loads with that
    evidence. If the test has a single load, it is not named."""
    severity = min((finding.severity for finding in findings), key=SEVERITIES.index)
    findings = [finding for finding in findings if finding.severity == severity]
    worst = max(findings, key=lambda finding: -1 if finding.stage is None else finding.stage.index)
    engines = tuple(dict.fromkeys(finding.label for finding in findings if finding.label))
    same = [finding for finding in findings if finding.evidence == worst.evidence] if several else []
    places = [finding.stage for finding in same if finding.stage is not None]
    stages = tuple(dict.fromkeys(stage.label for stage in sorted(places, key=lambda stage: stage.index)))
    concerned = engines if len(names) == 2 or set(engines) != names else ()
    return Warning(worst.kind, worst.severity, worst.evidence, worst.remedy, concerned, stages, len(findings))


def _of_comparison(frame: Frame) -> Iterator[Warning]:
    """Warn about different workloads, which are not compared, and repeats that are not interleaved, so not paired."""
    runs = len(frame.runs)
    for difference in frame.differences:
        if difference.incomparable:
            evidence = ", ".join(difference.settings) or difference.kind.value
            yield _warning("different_workload", "invalid", evidence, count=runs)
        elif difference.hidden:
            yield _warning("different", "note", difference.kind.value, count=runs)
    if noisy := {engine.label: spreads for engine in frame.engines if (spreads := run_to_run(engine))}:
        largest = format_share(max(spread for spreads in noisy.values() for spread in spreads.values()))
        evidence = f"up to {largest}" if len(noisy) > 1 else largest
        places = {place for spreads in noisy.values() for place in spreads}
        stages = tuple(view.label for view in frame.stages if view.label in places)
        engines = () if len(noisy) == len(frame.engines) > 2 else tuple(noisy)
        yield _warning("run_to_run", "warn", evidence, engines, stages, runs)
    if len(frame.engines) > 1 and frame.tested.repeats[1] > 1 and not frame.tested.interleaved:
        yield _warning("not_interleaved", "warn", count=runs)


def _warning(
    kind: str,
    severity: Severity,
    evidence: str = "",
    engines: tuple[str, ...] = (),
    stages: tuple[str, ...] = (),
    count: int = 1,
) -> Warning:
    return Warning(kind, severity, evidence, KIND_BY_NAME[kind].remedy, engines, stages, count)


def warnings_section(warnings: tuple[Warning, ...]) -> Section:
    """A study's first screen has the warnings of its first part only."""
    headings = (
        Column("", text=True),
        Column("where", text=True),
        Column("warning", text=True),
        Column("what to do", text=True),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            Word(warning.severity, TONES[warning.severity]),
            Word(", ".join((*warning.engines, *warning.stages))),
            Word(warning.evidence or warning.kind.replace("_", " ")),
            Word(warning.remedy),
        )
        for warning in warnings
    ]
    return Section("warnings", "Warnings", (Table("warnings", "Warnings", headings, tuple(rows)),), folded=True)
