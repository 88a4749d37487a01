"""One problem of a run: its evidence, and what to do about it.

A `note` helps to read the numbers, a `warn` makes some of them doubtful, and `invalid` means that they are not those of
the server: the load generator was too slow, or nothing was measured. A run with an invalid finding names no winner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from analysis.data.windows import StageKey

Severity = Literal["note", "warn", "invalid"]
FEW_SAMPLES = 100  # requests: with fewer, a p99 is one of them


@dataclass(frozen=True, slots=True)
class Finding:
    """`stage` is `None` for what concerns the whole run; `label` is the run's, as reports call it."""

    kind: str  # `client_late`, one of those in docs/metrics.md
    severity: Severity
    evidence: str
    remedy: str
    stage: StageKey | None = None
    label: str | None = None


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first."""
    grave = {"invalid": 0, "warn": 1, "note": 2}
    return tuple(sorted(findings, key=lambda finding: grave[finding.severity]))
