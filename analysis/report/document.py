"""A whole report as a value, as one JSON document, and the schema of that document.

python -m analysis.report.document > docs/report.schema.json
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from analysis.compare.knee import growth_sentences
from analysis.compare.winner import Comparison
from analysis.report.decision import Decision
from analysis.summary.run_summary import SCHEMA_VERSION, RunSummary, as_document, without_infinities
from records.rules import Answer, overall


@dataclass(frozen=True, slots=True)
class Report:
    """Runs, what compares them, and the conclusions of both. `objectives` is `None` where there was none to judge."""

    schema: int
    runs: tuple[RunSummary, ...]
    comparison: Comparison
    growth: tuple[str, ...]  # which part of TTFT grew with the load, and what grew with the context
    decision: Decision  # what to deploy, and at what cost
    invalid: bool
    objectives: Answer | None  # whether every stage of every run met every objective
    report: str  # where the page is


def report_of(summaries: Sequence[RunSummary], comparison: Comparison, decision: Decision, page: Path) -> Report:
    attainments = [stage.attainment for summary in summaries for stage in summary.stages]
    answers = [attainment.answer for attainment in attainments if attainment is not None]
    return Report(
        schema=SCHEMA_VERSION,
        runs=tuple(summaries),
        comparison=comparison,
        growth=tuple(growth_sentences(summaries)),
        decision=decision,
        invalid=comparison.invalid or any(summary.invalid for summary in summaries),
        objectives=overall(answers) if answers else None,
        report=str(page),
    )


def as_json_document(report: Report) -> dict[str, Any]:
    """What `--json` prints: every run's `summary.json`, the comparison and the conclusions."""
    names = [field.name for field in dataclasses.fields(report)]
    document = {name: getattr(report, name) for name in names}
    document["runs"] = [as_document(run) | {"folder": str(run.folder)} for run in report.runs]
    for name in ("comparison", "decision"):
        document[name] = without_infinities(dataclasses.asdict(getattr(report, name)))
    return document


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the document."""
    (reference,), parts = msgspec.json.schema_components(
        [Report], schema_hook=_path_schema, ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        if "description" in part:  # a docstring, which Python 3.13 compiles without its indentation
            part["description"] = cleandoc(part["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"enginebench report, version {SCHEMA_VERSION}",
        **reference,
        "$defs": parts,
    }


def _path_schema(kind: type[Any]) -> dict[str, Any]:
    if issubclass(kind, Path):
        return {"type": "string"}
    raise NotImplementedError(kind)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
