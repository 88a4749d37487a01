"""The plan as one JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from analysis.plan.answer import Plan
from analysis.plan.outcome import FIGURES
from analysis.plan.replicas import BEYOND
from analysis.summary.run_summary import without_infinities

SCHEMA_VERSION = 1


def as_document(plan: Plan) -> dict[str, Any]:
    """What `--json` prints: seconds, tokens and requests per second, shares."""
    model = plan.fitted.model.as_document()
    document = {
        "schema": SCHEMA_VERSION,
        "answer": plan.sentence,
        "label": plan.label,
        "runs": plan.runs,
        "stages": plan.stages,
        "peak": msgspec.structs.asdict(plan.load) | {"seconds": plan.peak_seconds},
        "objectives": [str(one) for one in plan.objectives],
        "replicas": asdict(plan.replicas),
        "spares": plan.spares,
        "bill": None if plan.bill is None else asdict(plan.bill),
        "price_source": None if plan.price_source is None else str(plan.price_source),
        "energy": {"joules_per_token": plan.joules_per_token, "kilowatts": plan.kilowatts},
        "next_run": plan.next_run,
        "beyond_measured": BEYOND,
        "model": model | {"undisturbed": asdict(plan.fitted.fit.undisturbed)},
        "fit": {
            "steps": plan.fitted.fit.steps,
            "explained": plan.fitted.fit.explained,
            "ten_seconds": [asdict(one) for one in plan.fitted.fit.ratios],
            "warnings": plan.fitted.warnings,
        },
        "held_out": [
            {
                "stage": one.stage,
                "measured": one.measured,
                "predicted": {figure: asdict(one.predicted[figure]) for figure in FIGURES},
                "errors": one.errors,
            }
            for one in plan.held_out
        ],
        "scalability": None if plan.scalability is None else asdict(plan.scalability),
        "contradiction": None if plan.contradiction is None else asdict(plan.contradiction),
        "safe_load": None if plan.safe is None else asdict(plan.safe),
    }
    finite: dict[str, Any] = without_infinities(document)
    return finite
