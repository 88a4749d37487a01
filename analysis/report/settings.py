"""What `enginebench report` asks of a plan."""

from __future__ import annotations

from analysis.plan.settings import PlanSettings
from settings_schema import settings_of

OF_A_PLAN = ("slo", "peak", "headroom", "spares", "price", "gpu", "gpus", "prices")
NOT_ASKED = {one.name for one in settings_of(PlanSettings)} - {*OF_A_PLAN}
"""What only `enginebench plan` asks for."""
