"""Findings merged for reading: one for each kind and engine, with the stages it applies to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.units import join_labels
from analysis.verdict.finding import Finding, Kind, Severity, in_order

LONGEST = 60  # characters of a list of stages


@dataclass(frozen=True, slots=True)
class Remark:
    """The same finding at several stages, merged; the evidence is that of the last of them."""

    kind: Kind
    severity: Severity
    label: str | None
    stages: tuple[str, ...]
    runs: int  # of the engine, that have it
    evidence: str
    remedy: str

    @property
    def where(self) -> str:
        """`transformers, 10 and 20 users (4 runs)`; empty for what concerns all engines."""
        stages = join_labels(self.stages) if self.stages else None
        if stages is not None and len(stages) > LONGEST and len(self.stages) > 2:
            stages = f"{len(self.stages)} stages from {self.stages[0]} to {self.stages[-1]}"
        where = ", ".join(part for part in (self.label, stages) if part)
        return f"{where} ({self.runs} runs)" if self.runs > 1 and where else where


def remarks(findings: Iterable[Finding]) -> tuple[Remark, ...]:
    """Gravest first, one remark for each kind, severity and engine."""
    groups: dict[tuple[str, str, str | None], list[Finding]] = {}
    for finding in in_order(findings):
        groups.setdefault((finding.severity, finding.kind, finding.label), []).append(finding)
    said = []
    for group in groups.values():
        by_stage = sorted(group, key=lambda finding: finding.stage.index if finding.stage else -1)
        stages = tuple(dict.fromkeys(finding.stage.label for finding in by_stage if finding.stage is not None))
        worst = by_stage[-1]
        runs = max(Counter(finding.stage for finding in group).values())
        where = f" (at {stages[-1]})" if len(stages) > 1 else ""
        said.append(
            Remark(worst.kind, worst.severity, worst.label, stages, runs, f"{worst.evidence}{where}", worst.remedy)
        )
    return tuple(said)
