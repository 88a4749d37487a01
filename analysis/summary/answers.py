"""Checks of how many requests were answered. `findings.py` has their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.data.load import RunData
from records.findings.load_generator import FEW_SAMPLES
from records.formatting import counted
from records.view import Evidence, StageView


def too_few_samples(view: StageView) -> Evidence | None:
    if view.ok >= FEW_SAMPLES:
        return None
    return Evidence(
        "warn" if view.ok < FEW_SAMPLES / 5 else "note",
        f"{counted(view.ok, 'request')} succeeded in the steady window: too few for tail percentiles",
    )


def all_failed(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if not any(view.ok for view in stages) and any(view.failed for view in stages):
        yield Evidence("invalid", "no request succeeded")


def all_censored(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if stages and not any(view.ok or view.failed for view in stages):
        yield Evidence("invalid", "no request ended before the run did")
