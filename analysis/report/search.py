"""A search for capacity as a table: each probe with what it showed. The answer is the report's own sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.summary.run_summary import RunSummary
from records.formatting import format_count, format_share
from records.rules import Answer
from records.search import ProbeRecord

ROLES = {"locate": "locate", "refine": "refine the estimate", "below": "certify below it", "above": "certify above it"}
ANSWERS: dict[str, Answer] = {"met": "met", "missed": "missed", "undecided": "not enough evidence"}


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """`shares` are those of the requests that met each objective, and of how many effective ones."""

    engine: str
    number: int
    load: str
    purpose: str
    requests: int
    shares: tuple[tuple[str, str], ...]
    answer: Answer
    reason: str


@dataclass(frozen=True, slots=True)
class Searches:
    """Of all runs; they have the same objectives, or each row's are in the order of its own run."""

    unit: str
    objectives: tuple[str, ...]
    rows: tuple[ProbeRow, ...]
    error_rate: str


def searches_of(summaries: Sequence[RunSummary]) -> Searches | None:
    """`None` where nothing was searched for."""
    found = [(summary.label, summary.search) for summary in summaries if summary.search is not None]
    if not found:
        return None
    rows = [_row(label, probe) for label, search in found for probe in search.probes]
    first = found[0][1]
    return Searches(first.unit, first.objectives, tuple(rows), first.error_rate)


def _row(label: str, probe: ProbeRecord) -> ProbeRow:
    return ProbeRow(
        engine=label,
        number=probe.stage + 1,
        load=f"{probe.load:.4g}",
        purpose=ROLES[probe.role],
        requests=probe.requests,
        shares=tuple((format_share(one.good), f"≈{format_count(round(one.effective))}") for one in probe.shares),
        answer=ANSWERS[probe.verdict],
        reason=probe.reason,
    )
