"""The capacity of one replica within its objectives: a bracket between measured loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.plan.safe_load import Limit, safe_load
from analysis.summary.run_summary import RunSummary
from analysis.summary.slo import overall


@dataclass(frozen=True, slots=True)
class SloCapacity:
    engine: str
    unit: str
    met: float | None
    missed: float | None
    undecided: tuple[float, ...]
    limit: Limit | None
    sentence: str


def slo_capacity(runs: Sequence[RunSummary]) -> SloCapacity | None:
    stages = [stage for run in runs for stage in run.stages if stage.attainment is not None]
    if not stages or len({stage.load_unit for stage in stages}) > 1:
        return None
    answers: dict[float, set[str]] = {}
    for stage in stages:
        assert stage.attainment is not None
        answers.setdefault(stage.load, set()).add(overall(v.answer for v in stage.attainment.verdicts))
    missed = min((load for load, said in answers.items() if "missed" in said), default=None)
    met = max((ld for ld, said in answers.items() if said == {"met"} and (missed is None or ld < missed)), default=None)
    open_ = tuple(sorted(ld for ld, said in answers.items() if "not enough evidence" in said))
    old, unit = safe_load(stages), stages[0].load_unit
    sentence = f"met at {met} {unit}, missed at {missed}"
    return SloCapacity(runs[0].label, unit, met, missed, open_, old.limit if old else None, sentence)
