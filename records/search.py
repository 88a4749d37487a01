"""The steps and the result of a search for capacity: the part of `meta.json` that explains the stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["locate", "refine", "below", "above"]
Verdict = Literal["met", "missed", "undecided"]
State = Literal["running", "found", "undecided", "missed at the lowest load", "met at the highest load"]
Limit = Literal["queue", "prefill", "decode", "failures", "time to first token", "time to the whole answer"]

ERROR_RATE = "The error rate is calibrated by simulation, not proven: see docs/statistics.md."


@dataclass(frozen=True, slots=True)
class ProbeShare:
    """One objective in one probe: the share of requests that met it, of so many effective ones."""

    objective: str
    good: float
    effective: float


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """One stage of the search. `requests` are those that were judged."""

    stage: int
    load: float
    role: Role
    verdict: Verdict
    reason: str
    requests: int
    shares: tuple[ProbeShare, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """`met` is the highest load certified to meet every objective, `missed` the lowest certified to miss one."""

    by: str
    unit: str
    objectives: tuple[str, ...]
    state: State = "running"
    estimate: float | None = None
    met: float | None = None
    missed: float | None = None
    limited_by: Limit | None = None
    requests: int = 0
    probes: tuple[ProbeRecord, ...] = ()
    error_rate: str = ERROR_RATE

    @property
    def sentence(self) -> str:
        """The answer."""
        unit, slo = self.unit, ", ".join(self.objectives)
        about = f"about {self.estimate:.3g} {unit}" if self.estimate is not None else "unknown"
        certified = [f"{self.met:.4g} {unit} meet it"] if self.met is not None else []
        certified += [f"{self.missed:.4g} {unit} do not"] if self.missed is not None else []
        bracket = f"certified: {' and '.join(certified)}" if certified else "nothing certified yet"
        because = f"; limited by {self.limited_by}" if self.limited_by else ""
        judged = f" ({len(self.probes)} probes, {self.requests:,} requests)"
        match self.state:
            case "found":
                return f"Capacity at {slo} is {about}; {bracket}{because}{judged}."
            case "running":
                return f"capacity {about}, {bracket}"
            case "undecided":
                known = f"{about}; {bracket}" if self.estimate is not None or certified else "nothing was certified"
                return f"Capacity at {slo} is undecided: {known}{because}{judged}."
            case _:
                return f"Capacity at {slo} was not found: it is {self.state}{because}{judged}."
