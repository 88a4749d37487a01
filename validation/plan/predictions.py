"""How large are the errors of all plan predictions whose true values are known?

    python -m validation.plan.predictions --output validation/results/predictions.json

For committed studies, each load of each engine is predicted from a fit to its other loads, all repeats together, as in
a plan. Predictions beyond the fitted loads are from plan_real_engines.json, and the largest error of each simulated
system is from plans.json. The table has the median, p90 and maximum of each figure's absolute errors.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.plan.accuracy import MAX_ERROR, HeldOut, fit_stages, hold_out
from enginebench.analysis.plan.measured import declared_slots, measured_stages
from enginebench.analysis.plan.not_planned import CannotPlan
from enginebench.analysis.plan.requests import FIGURES
from enginebench.studies.study.archive import unpack
from enginebench.studies.study.folder import StudyFolder, load_study
from validation.program import RESULTS, ROOT, command_line, write

Errors = Mapping[str, float]  # by figure, relative


@dataclass(frozen=True, slots=True)
class Prediction:
    """A load of an engine that was left out of the fit."""

    study: str
    engine: str
    load: str
    errors: Errors
    accepted: bool  # the fit is good enough for a plan to simulate replicas


def predictions_of(study: StudyFolder) -> Iterator[Prediction]:
    """Predict each load of each engine and part. Engines without a fitted model are left out."""
    for part in study.grid.parts:
        for model in study.grid.models:
            for engine in study.grid.engines:
                states = [s for s in study.select(part.name, model.label) if s.cell.engine == engine.label]
                folders = [path for state in states if (path := study.result(state)) and path.is_dir()]
                held = _held_out(folders)
                accepted = bool(held) and max(load.largest_error for load in held) <= MAX_ERROR
                name = f"{study.facts.name}, {part.name}, {model.label}"
                yield from (Prediction(name, engine.label, load.stage, load.errors, accepted) for load in held)


def _held_out(folders: Sequence[Path]) -> tuple[HeldOut, ...]:
    runs = [load_run(folder) for folder in folders]
    try:
        stages = measured_stages(runs)
        return hold_out(stages, fit_stages(stages, declared_slots(runs)))
    except CannotPlan:
        return ()


def committed() -> Iterator[Prediction]:
    for archive in sorted((ROOT / "docs" / "results").glob("*/records.tar.xz")):
        with tempfile.TemporaryDirectory() as name:
            unpack(archive, Path(name) / "study")
            yield from predictions_of(load_study(Path(name) / "study"))


def summarised(errors: Sequence[Errors]) -> dict[str, tuple[float, float, float] | None]:
    """Return median, p90 and maximum of each figure's absolute errors."""
    summary: dict[str, tuple[float, float, float] | None] = {}
    for figure in FIGURES:
        values = [abs(row[figure]) for row in errors if math.isfinite(row.get(figure, math.nan))]
        summary[figure] = (float(np.median(values)), float(np.quantile(values, 0.9)), max(values)) if values else None
    return summary


def table(groups: Mapping[str, Sequence[Errors]]) -> str:
    """Write the Markdown table of docs/capacity-planning.md."""
    rows = [f"| predictions | {' | '.join(FIGURES.values())} |", f"|{'---|' * (1 + len(FIGURES))}"]
    for name, errors in groups.items():
        shown = ["—" if of is None else " / ".join(f"{100 * v:.1f}" for v in of) for of in summarised(errors).values()]
        rows.append(f"| {name} ({len(errors)}) | {' | '.join(shown)} |")
    return "\n".join(rows)


def main() -> None:
    settings = command_line(__doc__).parse_args()
    studies = list(committed())
    real = json.loads((RESULTS / "plan_real_engines.json").read_bytes())["engines"].values()
    simulated = json.loads((RESULTS / "plans.json").read_bytes())["held_out"]
    groups: dict[str, list[Errors]] = {
        "simulated servers, the worst load of each": [system["largest"] for system in simulated],
        "real engines, up to 1.5 times beyond the fitted loads": [row["errors"] for e in real for row in e["unseen"]],
        "committed studies, fits that a plan accepts": [p.errors for p in studies if p.accepted],
        "committed studies, all": [p.errors for p in studies],
    }
    print(table(groups))
    write(
        settings.output,
        summary={name: summarised(errors) for name, errors in groups.items()},
        studies=[asdict(prediction) for prediction in studies],
    )


if __name__ == "__main__":
    main()
