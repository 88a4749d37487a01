"""Findings of all runs as warnings: one for each kind, with the engines and loads it is about and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.analysis.document import Cell, Column, Section, Table, Tone, Warning, Word
from enginebench.analysis.frame import Frame
from enginebench.records.view import SEVERITIES, Finding, Severity

TONES: dict[Severity, Tone] = {"invalid": Tone.BAD, "warn": Tone.CAUTION, "note": Tone.DIM}


def warnings(frame: Frame) -> tuple[Warning, ...]:
    """The most severe first, and of one severity those that concern most runs."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in frame.findings:
        groups.setdefault((finding.severity, finding.kind), []).append(finding)
    ordered = sorted(groups.items(), key=lambda item: (SEVERITIES.index(item[0][0]), -len(item[1])))
    merged = [_merge(frame, findings) for _, findings in ordered]
    return (*merged, *_of_comparison(frame))


def _merge(frame: Frame, findings: list[Finding]) -> Warning:
    """The evidence is that of the heaviest load."""
    worst = max(findings, key=lambda finding: -1 if finding.stage is None else finding.stage.index)
    engines = tuple(dict.fromkeys(finding.label for finding in findings if finding.label))
    stages = tuple(dict.fromkeys(finding.stage.label for finding in findings if finding.stage is not None))
    everywhere = set(engines) == set(frame.names)
    return Warning(
        worst.kind, worst.severity, worst.evidence, worst.remedy, () if everywhere else engines, stages, len(findings)
    )


def _of_comparison(frame: Frame) -> Iterator[Warning]:
    """Runs of a workload that differs are not compared; repeats that were not interleaved are compared unpaired."""
    for difference in frame.differences:
        if difference.incomparable:
            settings = ", ".join(difference.settings) or difference.kind.value
            yield Warning(
                f"different_{difference.kind.name.lower()}", "invalid", settings, "", tuple(difference.values)
            )
    repeated = len(frame.engines) > 1 and frame.tested.repeats[1] > 1
    if repeated and not frame.tested.interleaved:
        yield Warning("not_interleaved", "warn", "", "")


def warnings_section(warnings: tuple[Warning, ...]) -> Section:
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
            Word(warning.evidence),
            Word(warning.remedy),
        )
        for warning in warnings
    ]
    return Section("warnings", "Warnings", (Table("warnings", "Warnings", headings, tuple(rows)),), folded=True)
