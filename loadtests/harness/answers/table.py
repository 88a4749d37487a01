"""What was found about the answers, as a table for the terminal and sentences that say what it means."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from loadtests.harness.answers.agreement import Agreement
from loadtests.harness.answers.asking import Perplexity
from loadtests.harness.answers.check import Checked


def table(results: Sequence[Checked]) -> Table:
    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    made.add_column("engine")
    made.add_column("number\nformat")
    for title in ("identical\nunder load", "first\ndifference", "largest difference\nof log-probability"):
        made.add_column(title, justify="right")
    compared = any(result.with_reference is not None for result in results)
    if compared:
        for title in (
            f"identical to\n{results[0].label}'s",
            "first\ndifference",
            "largest difference\nof log-probability",
        ):
            made.add_column(title, justify="right")
    made.add_column("perplexity", justify="right")
    for result in results:
        cells = [result.label, result.dtype or "unknown", *_cells(result.under_load)]
        if compared:
            cells += ["reference", "", ""] if result.with_reference is None else _cells(result.with_reference)
        made.add_row(*cells, _perplexity(result.perplexity))
    return made


def sentences(results: Sequence[Checked]) -> list[str]:
    """One for each server under load, one for each that is compared with the reference."""
    said = [_under_load(result) for result in results]
    return said + [
        _with_reference(result, results[0].label, result.with_reference)
        for result in results
        if result.with_reference is not None
    ]


def _under_load(result: Checked) -> str:
    found = result.under_load
    if found.identical == found.answers:
        return f"{result.label} gave the same answers under load as alone: {found.answers} of {found.answers}."
    return (
        f"{result.label} gave different answers under load in {found.answers - found.identical} of {found.answers} "
        f"cases, first at {found.unit} {found.earliest}: its results depend on what else is in the batch."
    )


def _with_reference(result: Checked, reference: str, found: Agreement) -> str:
    if found.identical == found.answers:
        return f"{result.label} gave the answers of {reference}: {found.answers} of {found.answers}."
    return (
        f"{result.label} gave {found.identical} of {found.answers} answers as {reference} did; the others differ from "
        f"{found.unit} {found.typical:g} on (median), the first from {found.unit} {found.earliest} on."
    )


def _cells(found: Agreement) -> list[str]:
    first = "–" if found.earliest is None else f"{found.unit} {found.earliest}"
    gap = "n/a" if found.logprob_difference is None else f"{found.logprob_difference:.1e}"
    return [f"{found.identical} of {found.answers}", first, gap]


def _perplexity(found: Perplexity | None) -> str:
    if found is None:
        return "n/a"
    if found.outside:
        return f"≥ {found.value:.1f} ({found.outside} of {found.tokens} tokens unlikely)"
    return f"{found.value:.1f}"
