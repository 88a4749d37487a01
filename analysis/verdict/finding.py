"""One thing that speaks against a run: its evidence, and what to do about it.

A `note` helps to read the numbers, a `warn` makes some of them doubtful, and `invalid` means that they are not those of
the server: the load generator was too slow, or nothing was measured. A run with an invalid finding names no winner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "warn", "invalid"]
Kind = Literal[
    "censored",
    "client_cpu_bound",
    "client_error",
    "client_late",
    "event_loop_late",
    "failures",
    "littles_law_off",
    "never_steady",
    "not_calibrated",
    "past_calibration",
    "records_lost",
    "read_together",
    "reconnected",
    "run_to_run",
    "several_hosts",
    "spoilt_lines",
    "stopped_early",
    "token_count_disagrees",
    "tokens_per_chunk",
    "too_few_samples",
    "users_missing",
    "workers_missing",
    "workloads_differ",
]

FEW_SAMPLES = 100  # requests: with fewer, a p99 is one of them


@dataclass(frozen=True, slots=True)
class Finding:
    """`users` is the step it belongs to, `None` for the whole run; `label` the run, as reports call it."""

    kind: Kind
    severity: Severity
    evidence: str
    remedy: str
    users: int | None = None
    label: str | None = None


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    grave = {"invalid": 0, "warn": 1, "note": 2}
    return tuple(sorted(findings, key=lambda finding: grave[finding.severity]))
