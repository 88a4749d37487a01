"""The parts of TTFT, and the part of an objective's latency that grew most between the highest load that meets it and
the lowest that misses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.records.slo import Objective
from enginebench.records.view import StageView

PARTS = {
    "ttft_client": "the load generator's own delay",
    "ttft_queue": "waiting for admission",
    "ttft_prefill": "prefill",
    "ttft_delivery": "delivery",
}
"""The quantities that add up to the mean TTFT since the request was due."""
DECODING = "decoding"


def mean_parts(stages: Sequence[StageView]) -> dict[str, float]:
    """Mean seconds of each of `PARTS` over the repeats of a stage; empty where one of them lacks some."""
    values = {name: [stage.value(name) for stage in stages] for name in PARTS}
    known = {name: [value for value in of_part if value is not None] for name, of_part in values.items()}
    if not stages or any(len(of_part) < len(stages) for of_part in known.values()):
        return {}
    return {name: sum(of_part) / len(of_part) for name, of_part in known.items()}


@dataclass(frozen=True, slots=True)
class Limit:
    """The objective that is missed first as the load grows, and the part of its latency that grew most from the highest
    load that meets it to the lowest that does not. `part` is `None` where the server sent no durations."""

    objective: Objective
    part: str | None

    @property
    def sentence(self) -> str:
        """`TTFT p95 ≤ 300 ms (waiting for admission grows most)`"""
        return self.objective.text + (f" ({self.part} grows most)" if self.part else "")


def limit_of(objective: Objective, below: Sequence[StageView], above: Sequence[StageView]) -> Limit:
    """`below` are the repeats of the highest load that meets the objective, `above` those of the lowest that misses
    it."""
    return Limit(objective, _grown(objective, below, above))


def _grown(objective: Objective, below: Sequence[StageView], above: Sequence[StageView]) -> str | None:
    if objective.judged is None or not below or not above:
        return None
    if objective.metric == "tpot":
        return DECODING
    before, after = _with_decoding(objective, below), _with_decoding(objective, above)
    grown = {name: after[name] - seconds for name, seconds in before.items() if name in after}
    name, most = max(grown.items(), key=lambda item: item[1], default=("", 0.0))
    return (PARTS | {DECODING: DECODING})[name] if most > 0 else None


def _with_decoding(objective: Objective, stages: Sequence[StageView]) -> dict[str, float]:
    """For the latency of whole answers also the time from the first token to the last."""
    parts = mean_parts(stages)
    if objective.metric in {"e2e", "ntpot"}:
        means = [(stage.metrics["e2e"].mean, stage.metrics["ttft"].mean) for stage in stages]
        known = [e2e - ttft for e2e, ttft in means if e2e is not None and ttft is not None]
        if len(known) == len(stages):
            parts[DECODING] = sum(known) / len(known)
    return parts
