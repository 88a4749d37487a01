"""One problem of a run: its evidence, and what to do about it.

A `note` helps to read the numbers, a `warn` makes some of them doubtful, and `invalid` means that they are not those of
the server: the load generator was too slow, or nothing was measured. A run with an invalid finding names no winner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from analysis.run.windows import StageKey

Severity = Literal["note", "warn", "invalid"]
Kind = Literal[
    "backlog_grew",
    "censored",
    "client_cpu_bound",
    "client_error",
    "client_late",
    "clients_differ",
    "commits_differ",
    "cut_short",
    "empty_answers",
    "event_loop_late",
    "failures",
    "formats_differ",
    "imported",
    "littles_law_off",
    "lock_step",
    "memory_grew",
    "never_steady",
    "not_calibrated",
    "not_streamed",
    "past_calibration",
    "process_lost",
    "prompts_cached",
    "prompts_missed",
    "read_together",
    "reconnected",
    "records_lost",
    "recovery",
    "retries",
    "run_to_run",
    "scenarios_differ",
    "several_hosts",
    "malformed_lines",
    "stopped_early",
    "token_count_disagrees",
    "tokens_per_chunk",
    "too_few_samples",
    "unanswered",
    "unserved_users",
    "users_missing",
    "workers_missing",
    "workloads_differ",
]

FEW_SAMPLES = 100  # requests: with fewer, a p99 is one of them


@dataclass(frozen=True, slots=True)
class Finding:
    """`stage` is `None` for what concerns the whole run; `label` is the run's, as reports call it."""

    kind: Kind
    severity: Severity
    evidence: str
    remedy: str
    stage: StageKey | None = None
    label: str | None = None


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first."""
    grave = {"invalid": 0, "warn": 1, "note": 2}
    return tuple(sorted(findings, key=lambda finding: grave[finding.severity]))
