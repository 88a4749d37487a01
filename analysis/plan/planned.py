"""What a plan answers, without what it was computed from: for the first screen, the report and its document."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedReplicas:
    """How many replicas of an engine the peak needs, and what they cost a month in US dollars (`None` without a
    price).

    `count` includes `spares`, and is `None` where nothing can be planned. `sentence` is the answer, or why there is
    none; `trade_off` what one replica fewer would mean; `how_sure` how far predictions were off; `warnings` what speaks
    against the plan; all but `sentence` without full stops. `reliable` is that of the plan.
    """

    engine: str
    peak: str
    count: int | None
    low: int | None
    high: int | None
    month: float | None
    sentence: str
    reliable: bool = True
    warnings: tuple[str, ...] = ()
    trade_off: str = ""
    how_sure: str = ""
    spares: int = 0
