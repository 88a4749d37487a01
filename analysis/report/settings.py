"""The settings of `enginebench report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.plan.settings import PlanSettings
from analysis.verdict.margin import MARGIN
from settings_schema import setting, settings_of

OF_A_PLAN = ("slo", "peak", "headroom", "spares", "price", "gpu", "gpus", "prices")
NOT_ASKED = {one.name for one in settings_of(PlanSettings)} - {*OF_A_PLAN}
"""What only `enginebench plan` asks for."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Those of a plan stand beside them, as far as a report has a use for them: `OF_A_PLAN`."""

    tokenizer: Path | None = setting(
        None, "A tokenizer.json, to count the answers of servers that send no usage.", metavar="FILE"
    )
    margin: float = setting(
        MARGIN, "Ratio from which a difference is of practical significance.", metavar="RATIO", least=1.0
    )
    allow_invalid: bool = setting(False, "Name a winner and exit with 0 despite invalid findings.")
