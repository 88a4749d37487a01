"""Findings as people are told them: once each, with the steps they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.report.units import in_words
from analysis.verdict.finding import Finding, Kind, Severity, in_order


@dataclass(frozen=True, slots=True)
class Remark:
    """The same finding at several steps, said once, with the evidence of the largest step."""

    kind: Kind
    severity: Severity
    label: str | None
    steps: tuple[int, ...]
    evidence: str
    remedy: str

    @property
    def where(self) -> str:
        """`transformers, 10 and 20 users`; empty for what concerns all runs."""
        steps = f"{in_words([str(step) for step in self.steps])} users" if self.steps else None
        return ", ".join(part for part in (self.label, steps) if part)


def remarks(findings: Iterable[Finding]) -> tuple[Remark, ...]:
    """For people: gravest first, one remark for each kind, severity and run."""
    groups: dict[tuple[str, str, str | None], list[Finding]] = {}
    for finding in in_order(findings):
        groups.setdefault((finding.severity, finding.kind, finding.label), []).append(finding)
    said = []
    for group in groups.values():
        by_step = sorted(group, key=lambda finding: finding.users or 0)
        steps = tuple(dict.fromkeys(finding.users for finding in by_step if finding.users is not None))
        worst = by_step[-1]
        evidence = f"{worst.evidence} (at {worst.users} users)" if len(steps) > 1 else worst.evidence
        said.append(Remark(worst.kind, worst.severity, worst.label, steps, evidence, worst.remedy))
    return tuple(said)
