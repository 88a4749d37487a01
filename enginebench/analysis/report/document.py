"""A report as one JSON document with its schema, as a long table, and the files that it can be written as.

python -m enginebench.analysis.report.document > docs/report.schema.json
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from enginebench.analysis.compare.capacity import SloCapacity
from enginebench.analysis.compare.tables import comparison_rows
from enginebench.analysis.documents import as_document, document_type
from enginebench.analysis.first_screen import FirstScreen
from enginebench.analysis.report.card import card
from enginebench.analysis.report.contents import Report
from enginebench.analysis.report.costs import Costs
from enginebench.analysis.report.decision import Decision
from enginebench.analysis.report.markdown import markdown
from enginebench.analysis.report.page import render
from enginebench.analysis.summary.frame import SCHEMA, frame
from enginebench.analysis.summary.run_summary import SCHEMA_VERSION, summary_document
from enginebench.records.files import write_atomically, write_inside
from enginebench.records.slo import write_objectives
from enginebench.records.view import Estimate
from enginebench.settings.schema import UserMistake


def as_json_document(report: Report) -> dict[str, Any]:
    """What `--json` prints: every run's `summary.json`, the comparison and the conclusions."""
    runs = [summary_document(run) | {"folder": str(run.folder)} for run in report.runs]
    document: dict[str, Any] = as_document(replace(report, runs=()))
    return document | {"runs": runs}


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the document."""
    (reference,), parts = msgspec.json.schema_components(
        [document_type(Report)], schema_hook=_path_schema, ref_template="#/$defs/{name}"
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


def numbers_of(report: Report) -> pl.DataFrame:
    """Every number of every stage of every run, the findings, the comparison, the capacities and the conclusions, a row
    each; a sentence stands in the column `why`."""
    rows = [
        {"metric": "headline", "why": report.headline},
        *_screen_rows(report.screen),
        *comparison_rows(report.comparison),
        *map(_capacity_row, _capacities(report)),
        *({"metric": "growth", "why": sentence} for sentence in report.growth),
        *_decision_rows(report.decision),
    ]
    return pl.concat([frame(report.runs), pl.DataFrame(rows, schema=SCHEMA)])


def _screen_rows(screen: FirstScreen) -> Iterator[dict[str, Any]]:
    """Its sentences: the numbers of its table have rows of their own."""
    notes = [("notes", screen.table.caption)] if screen.table is not None else []
    for heading, sentence in [("answer", screen.answer), *screen.sentences, *notes]:
        yield {"metric": "first screen", "statistic": heading, "why": sentence}


def _decision_rows(decision: Decision) -> Iterator[dict[str, Any]]:
    for advice in decision.advice:
        yield {"label": advice.engine, "metric": "advice", "statistic": advice.topic, "why": advice.text}
    for planned in decision.replicas:
        row = {"label": planned.engine, "metric": "replicas", "statistic": f"for {planned.peak}"}
        yield row | {"value": planned.count, "low": planned.low, "high": planned.high, "why": planned.sentence}
        if planned.month is not None:
            yield row | {"metric": "cost of the replicas", "unit": "US dollars a month", "value": planned.month}
    yield from [] if decision.costs is None else _cost_rows(decision.costs)


def _cost_rows(costs: Costs) -> Iterator[dict[str, Any]]:
    for cost in costs.engines:
        numbers = {
            ("replica hours per 1M tokens", "h"): cost.hours,
            ("price of an hour", "US dollars"): Estimate(cost.price, why=None if cost.price else "no price"),
            ("cost per 1M tokens", "US dollars"): cost.cost,
            (f"cost over {costs.baseline}", None): cost.against,
            ("energy of a token", "J"): Estimate(cost.joules, why="not measured" if cost.joules is None else None),
            ("requests per replica-hour", None): cost.requests,
        }
        for (statistic, unit), estimate in numbers.items():
            place = {"label": cost.engine, "stage": cost.stage, "metric": "cost", "statistic": statistic, "unit": unit}
            yield place | {name: getattr(estimate.finite, name) for name in ("value", "low", "high", "n", "why")}


def _capacities(report: Report) -> list[SloCapacity]:
    return [*report.capacities, *report.matrix]


def _capacity_row(capacity: SloCapacity) -> dict[str, Any]:
    """From the highest load that meets the objectives to the lowest that misses one."""
    return {
        "label": capacity.engine,
        "metric": f"capacity {write_objectives(capacity.objectives)}",
        "statistic": "value",
        "unit": capacity.unit,
        "value": capacity.met,
        "low": capacity.met,
        "high": capacity.missed,
        "n": len(capacity.loads),
        "why": capacity.bracket,
    }


def _csv(numbers: pl.DataFrame) -> str:
    """Texts that a spreadsheet would take for a formula get an apostrophe, with which it shows them as they are."""
    return numbers.with_columns(pl.col(pl.String).str.replace("^[=+@\t\r-]", "'$0")).write_csv()


def _parquet(report: Report) -> bytes:
    file = io.BytesIO()
    numbers_of(report).write_parquet(file)
    return file.getvalue()


FORMATS: Mapping[str, Callable[[Report], str | bytes]] = {
    ".html": render,
    ".md": markdown,
    ".csv": lambda report: _csv(numbers_of(report)),
    ".parquet": _parquet,
    ".json": lambda report: json.dumps(as_json_document(report), indent=1, allow_nan=False) + "\n",
    ".svg": card,
}


def write(report: Report, path: Path, beside: bool = False) -> None:
    """Write to a file that was named, or `beside` the runs, whose folder may come from elsewhere.

    Raises `UserMistake` where `path` cannot be written.
    """
    content = FORMATS[path.suffix](report)
    try:
        write_inside(path.parent, path.name, content) if beside else write_atomically(path, content)
    except OSError as error:
        raise UserMistake(f"{path} cannot be written ({error.strerror}): choose another place with -o.") from None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
