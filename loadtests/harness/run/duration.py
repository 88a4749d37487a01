"""The planned duration of a run, and the loads that it is spent on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.records.formatting import counted
from enginebench.records.slo import write_objectives
from enginebench.records.stage import StagePlan
from loadtests.harness.scenario import Scenario

MAX_LISTED = 4  # stages that are listed one by one


@dataclass(frozen=True, slots=True)
class Duration:
    """`seconds` as planned, excluding longer warm-ups and the last answers; `None` if the duration depends on the
    server. `loads` describes the loads."""

    seconds: float | None
    loads: str
    at_most: bool = False

    def sentence(self, runs: int = 1) -> str:
        """Describe the duration of `runs` runs, one after the other."""
        count = f"{runs} runs of " if runs > 1 else ""
        if self.seconds is None:
            return f"{count}{self.loads}: the duration depends on the server."
        bound = "at most" if self.at_most else "at least"
        total = f"{rounded_time(self.seconds * runs)}: {count and f'{count}{rounded_time(self.seconds)}: '}"
        return f"This takes {bound} {total}{self.loads}."


def duration_of(scenario: Scenario) -> Duration:
    """Raise `UserMistake` if nothing would be measured."""
    recorded, plan, search = scenario.recorded(), scenario.plan(), scenario.search_plan()
    rows = ""
    if recorded is not None and recorded.left_out:
        rows = f"; {counted(recorded.left_out, 'row')} without a prompt or an answer left out"
    if recorded is not None and recorded.unsent_columns:
        rows += f"; columns that are not sent: {', '.join(recorded.unsent_columns)}"
    objectives = write_objectives(scenario.slo)
    if search is not None:
        highest = "highest rate" if search.by == "rate" else f"highest number of {search.by}"
        text = f"a search for the {highest} within --slo {objectives}{rows}"
        return Duration(scenario.search_seconds, text, at_most=True)
    if scenario.by == "growth":
        text = f"users who double until --slo {objectives} is missed{rows}"
        return Duration(scenario.search_seconds, text, at_most=True)
    planned = [stage.seconds for stage in plan if stage.seconds is not None]
    return Duration(sum(planned) if len(planned) == len(plan) else None, _loads(plan) + rows)


def _loads(plan: Sequence[StagePlan]) -> str:
    lengths = [_length(stage) for stage in plan]
    over = f"{len(plan)} stages, {plan[0].label} to {plan[-1].label}"
    if len(plan) > 1 and len(set(lengths)) == 1:
        return f"{over}, {lengths[0]} each"
    if len(plan) <= MAX_LISTED:
        return ", ".join(f"{length} at {stage.label}" for stage, length in zip(plan, lengths, strict=True))
    longest = max(plan, key=lambda stage: stage.seconds or stage.window.amount)
    return f"{over}, the longest {_length(longest)} at {longest.label}"


def _length(stage: StagePlan) -> str:
    return f"{stage.window.amount:g} requests" if stage.seconds is None else rounded_time(stage.seconds)


def rounded_time(seconds: float) -> str:
    """Return a rounded text such as `90 s`, `5 min` or `4.5 h`."""
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
