"""The steps and the result of a search for capacity: the part of `meta.json` that explains the stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from enginebench.records.formatting import counted
from enginebench.records.load import Count

ProbeRole = Literal["locate", "below", "above"]
ProbeVerdict = Literal["met", "missed", "undecided"]
SearchState = Literal["running", "found", "undecided", "missed at the lowest load", "met at the highest load"]


@dataclass(frozen=True, slots=True)
class ProbeShare:
    """An objective in a probe: the share of requests that met it, and the effective sample size."""

    objective: str
    good: float
    effective: float


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """A stage of the search. `requests` counts the judged ones. The verdict of a probe `below` or `above` the estimate
    is a certificate, from the evidence of all such probes; any other verdict only shows how the probe looked."""

    stage: Count
    load: float
    role: ProbeRole
    verdict: ProbeVerdict
    requests: Count
    shares: tuple[ProbeShare, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """`met` is the highest load certified to meet every objective, `missed` the lowest certified to miss one.

    `precision` is half the requested bracket as a share of its middle.
    """

    by: str
    unit: str
    objectives: tuple[str, ...]
    precision: float
    state: SearchState = "running"
    estimate: float | None = None
    met: float | None = None
    missed: float | None = None
    requests: Count = 0
    probes: tuple[ProbeRecord, ...] = ()

    @property
    def bracket(self) -> str:
        """Write `about 33 req/s; at least 27, at most 38 certified`."""
        about = f"about {_load(self.estimate)} {self.unit}" if self.estimate is not None else "unknown yet"
        ends = [f"at least {_load(self.met)}"] if self.met is not None else []
        ends += [f"at most {_load(self.missed)}"] if self.missed is not None else []
        if not ends:
            return f"{about}; nothing certified yet" if self.estimate is not None else about
        return f"{about}; {', '.join(ends)} certified"

    @property
    def sentence(self) -> str:
        slo = ", ".join(self.objectives)
        more = f"A longer search may reach ± {100 * self.precision:.3g} %: raise --search-seconds."
        basis = f" ({counted(len(self.probes), 'probe')}, {counted(self.requests, 'request')})"
        match self.state:
            case "running":
                return f"capacity {self.bracket}"
            case "found":
                return f"Capacity at {slo} is {self.bracket}{basis}."
            case "met at the highest load" if self.met is not None:
                return f"Capacity at {slo} is at least {_load(self.met)} {self.unit}, the highest load searched{basis}."
            case "missed at the lowest load" if self.missed is not None:
                return f"Capacity at {slo} is below {_load(self.missed)} {self.unit}, the lowest load searched{basis}."
            case _:
                return f"Capacity at {slo} is {self.bracket}{basis}. {more}"


def _load(load: float) -> str:
    return f"{load:,.0f}" if load >= 999.5 else f"{load:.3g}"
