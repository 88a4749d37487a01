"""A search for capacity in words: each probe with what it showed, and the answer."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.units import format_count, format_share
from analysis.verdict.statistics import Answer
from analysis.verdict.summary import RunSummary
from records.search import ProbeRecord, SearchRecord

ROLES = {
    "locate": "locating",
    "refine": "refining the estimate",
    "below": "certifying below it",
    "above": "certifying above it",
}
ANSWERS: dict[str, Answer] = {"met": "met", "missed": "missed", "undecided": "not enough evidence"}


def search_lines(summaries: Sequence[RunSummary]) -> list[tuple[Answer, str]]:
    """A verdict and a line for each probe; then the answer of each search."""
    lines = []
    for summary in summaries:
        search = summary.search
        if search is not None:
            lines += [(ANSWERS[probe.verdict], _probe(search, probe)) for probe in search.probes]
    return lines


def search_sentences(summaries: Sequence[RunSummary]) -> list[str]:
    """What each search found, and how far its error rate is known."""
    searches = [(summary.label, summary.search) for summary in summaries if summary.search is not None]
    return [f"{label}: {search.sentence} {search.error_rate}" for label, search in searches]


def _probe(search: SearchRecord, probe: ProbeRecord) -> str:
    shares = ", ".join(
        f"{share.objective} {format_share(share.good)} (≈{format_count(round(share.effective))} effective)"
        for share in probe.shares
    )
    told = f"probe {probe.stage + 1}, {probe.load:.4g} {search.unit}, {ROLES[probe.role]}"
    return f"{told}: {shares or 'no evidence'} of {format_count(probe.requests)} requests; {probe.reason}"
