"""How long a run will take and on which loads it spends that time, as far as that is known before it starts."""

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
    """`seconds` as planned: warm-ups that are prolonged and the last answers come on top. `None` where the server
    decides. `loads` says in words what they are spent on."""

    seconds: float | None
    loads: str
    at_most: bool = False

    def sentence(self, runs: int = 1) -> str:
        """Describe the duration of `runs` runs, one after the other."""
        each = f"{runs} runs of " if runs > 1 else ""
        if self.seconds is None:
            return f"{each}{self.loads}: how long that takes depends on the server."
        bound = "at most" if self.at_most else "at least"
        total = f"{rounded_time(self.seconds * runs)}: {each and f'{each}{rounded_time(self.seconds)}: '}"
        return f"This takes {bound} {total}{self.loads}."


def duration_of(scenario: Scenario) -> Duration:
    """Raises `UserMistake` where nothing would be measured."""
    recorded, plan, search = scenario.recorded(), scenario.plan(), scenario.search_plan()
    rows = ""
    if recorded is not None and recorded.left_out:
        rows = f"; {counted(recorded.left_out, 'row')} without a prompt or an answer left out"
    if recorded is not None and recorded.unsent_columns:
        rows += f"; columns that are not sent: {', '.join(recorded.unsent_columns)}"
    objectives = write_objectives(scenario.slo)
    if search is not None:
        loads = f"a search for the highest {search.by if search.by == 'rate' else f'number of {search.by}'} within "
        return Duration(scenario.search_seconds, f"{loads}--slo {objectives}{rows}", at_most=True)
    if scenario.by == "growth":
        return Duration(
            scenario.search_seconds, f"users who double until --slo {objectives} is missed{rows}", at_most=True
        )
    times = [stage.seconds for stage in plan]
    known = [seconds for seconds in times if seconds is not None]
    return Duration(sum(known) if len(known) == len(times) else None, _loads(plan) + rows)


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
    """`90 s`, `5 min`, `4.5 h`: rounded, for plans."""
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
