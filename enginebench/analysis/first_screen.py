"""The first screen of report, plan and compare: answer, a row for each candidate, trade-off, and how sure it is.

It sets what the comparison, the plans and the costs say, and computes none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from enginebench.analysis.compare.capacity import SloCapacity, capacity_of, load_text
from enginebench.analysis.compare.comparison import Comparison
from enginebench.analysis.compare.engine_runs import EngineRuns, by_settings, engine_runs_of
from enginebench.analysis.console import TextTable, print_table
from enginebench.analysis.report.costs import Costs, dollars
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import MISSING, counted, format_seconds
from enginebench.records.rules import MARGIN
from enginebench.records.slo import of_tier, tiers_of

NAMED = 2  # candidates that a sentence names
MILLION = "per 1M tokens"  # at each one's own capacity, not at the peak


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


@dataclass(frozen=True, slots=True)
class Candidate:
    """What could be deployed. `per_million` is the cost of a million output tokens in US dollars at its capacity;
    `holds_more_than` names those of which the comparison claims that; TPOTs within `margin` are alike."""

    name: str
    engine: EngineRuns
    capacity: SloCapacity | None
    planned: PlannedReplicas | None = None
    per_million: float | None = None
    holds_more_than: frozenset[str] = frozenset()
    margin: float = MARGIN

    def within(self, tier: str) -> str:
        """Its capacity within that tier of objectives, for a cell."""
        return within(None if self.capacity is None else capacity_of(self.engine, tier), " missed")

    @property
    def tpot(self) -> float | None:
        """The median time per token in seconds, as measured at the highest load within the objectives."""
        stage = None if self.capacity is None else self.capacity.stage
        return None if stage is None else self.engine.value(stage, "tpot", "p50")


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """`table` has a row for each candidate; `sentences` are (heading, sentence). Both are empty where nothing was asked
    for."""

    answer: str
    table: TextTable | None
    sentences: tuple[tuple[str, str], ...]


def candidates_of(
    comparison: Comparison,
    summaries: Sequence[RunSummary],
    planned: Sequence[PlannedReplicas] = (),
    costs: Costs | None = None,
) -> list[Candidate]:
    """The engines of a comparison, the best first; where replicas could be planned, in the order of those, which are
    planned apart where runs of one label had different settings."""
    engines = {engine.label: engine for engine in engine_runs_of(summaries)}
    of_plans = {name: EngineRuns(name, tuple(runs)) for name, runs in by_settings(summaries).items()} | engines
    replicas = {each.engine: each for each in planned}
    million = {} if costs is None else {cost.engine: cost.cost.value for cost in costs.engines}
    return [
        Candidate(
            label,
            of_plans[label],
            comparison.capacity(label) if label in engines else capacity_of(of_plans[label]),
            replicas.get(label),
            million.get(label),
            frozenset(other for other in engines if _holds_more(comparison, label, other)),
            comparison.margin,
        )
        for label in (replicas if any(each.count is not None for each in planned) else comparison.engines)
    ]


def _holds_more(comparison: Comparison, engine: str, other: str) -> bool:
    ratio = comparison.capacity_ratio(engine, other)
    return ratio is not None and ratio.verdict == "better"


def first_screen(answer: str, candidates: Sequence[Candidate]) -> FirstScreen:
    """`candidates`: the best first."""
    table = _table(candidates)
    sentences = {} if table is None else {"trade-off": _trade_off(candidates), "how sure": _how_sure(candidates)}
    return FirstScreen(answer, table, tuple((name, text) for name, text in sentences.items() if text))


def _table(candidates: Sequence[Candidate]) -> TextTable | None:
    columns: dict[str, list[str]] = {}
    capacities = [each.capacity for each in candidates if each.capacity is not None]
    planned = [each.planned for each in candidates if each.planned is not None]
    tiers = tiers_of(candidates[0].engine.runs[0].objectives)
    if capacities:
        for tier in tiers:
            heading = f"{capacities[0].unit} within {tier if tier and len(tiers) > 1 else 'the SLO'}"
            columns[heading] = [each.within(tier) for each in candidates]
    if planned:
        columns[f"replicas for {planned[0].peak}"] = [_count(each.planned) for each in candidates]
    if any(each.month is not None for each in planned):
        columns["a month"] = [_month(each.planned) for each in candidates]
    if any(each.per_million is not None for each in candidates):
        costs = [each.per_million for each in candidates]
        columns[MILLION] = [MISSING if cost is None else dollars(cost) for cost in costs]
    if not columns:
        return None
    notes = []
    if capacities:
        objectives = candidates[0].engine.runs[0].objectives
        slos = {tier: " and ".join(each.text for each in of_tier(objectives, tier)) for tier in tiers}
        named = "; ".join(f"{tier if tier and len(tiers) > 1 else 'SLO'}: {slo}" for tier, slo in slos.items())
        them = "them" if " and " in named else "it"
        notes.append(f"{named}; in brackets the lowest measured load that misses {them}.")
        notes += [f"All else is about {tiers[0] or 'the SLO'}."] if len(tiers) > 1 else []
    if any(each.count is not None for each in planned):
        notes.append("Replicas: enough in 95 % of the simulated futures; in brackets, in 50 % and in 99 %.")
    if not all(each.reliable for each in planned):
        notes.append("*: not reliable.")
    whole = {"engine": [each.name for each in candidates]} | columns
    return TextTable("", tuple(whole), tuple(zip(*whole.values(), strict=True)), (0,), " ".join(notes))


def within(capacity: SloCapacity | None, missed: str = "") -> str:
    """`14 (20)`: 14 meet the objectives, and 20 do not."""
    if capacity is None:
        return MISSING
    if capacity.met is None and capacity.missed is None:
        return "undecided"
    if capacity.met is None:
        return f"< {load_text(capacity.missed)}"
    met = load_text(capacity.met)
    return f"≥ {met}" if capacity.missed is None else f"{met} ({load_text(capacity.missed)}{missed})"


def _count(planned: PlannedReplicas | None) -> str:
    if planned is None or planned.count is None:
        return MISSING
    high = "no bound" if planned.high is None else planned.high
    spares = f" + {planned.spares}" if planned.spares else ""
    return f"{planned.count - planned.spares} [{planned.low}, {high}]{spares}{_star(planned)}"


def _month(planned: PlannedReplicas | None) -> str:
    return MISSING if planned is None or planned.month is None else f"{dollars(planned.month)}{_star(planned)}"


def _star(planned: PlannedReplicas) -> str:
    return "" if planned.reliable else "*"


def _trade_off(candidates: Sequence[Candidate]) -> str:
    """What the best one costs less or holds more, and what its users get for it: against the first that is faster, else
    the next. Of one candidate, what a replica fewer would mean."""
    best, *others = candidates
    if not others:
        return "" if best.planned is None else best.planned.trade_off
    faster = [each for each in others if each.tpot and best.tpot and best.tpot >= each.tpot * best.margin]
    other = (faster or others)[0]
    lead = _lead(best, other)
    if not lead or not best.tpot or not other.tpot:
        return f"{lead}." if lead else ""
    ours, theirs = format_seconds(best.tpot), format_seconds(other.tpot)
    if faster:
        return f"{lead}, but at capacity a token takes {ours}, with {other.name} {theirs} (TPOT p50)."
    if other.tpot >= best.tpot * best.margin:
        return f"{lead}, and at capacity a token takes {ours}, with {other.name} {theirs} (TPOT p50)."
    return f"{lead}; at capacity a token takes about as long with both ({ours} and {theirs}, TPOT p50)."


def _lead(best: Candidate, other: Candidate) -> str:
    ours, theirs = best.planned, other.planned
    if ours is not None and theirs is not None and ours.count is not None and theirs.count is not None:
        if ours.month is None or theirs.month is None:
            return f"{best.name} needs {_fewer(theirs.count - ours.count)} {other.name}"
        more = theirs.month - ours.month
        cost = f"costs {dollars(more)} a month less than" if more > 0 else "costs as much as"
        return f"{best.name} {cost} {other.name}"
    if best.capacity is None or other.capacity is None or best.capacity.met is None or other.capacity.met is None:
        return ""
    unit, met = best.capacity.unit, other.capacity.met
    if met == best.capacity.met:
        return f"{best.name} holds as many {unit} as {other.name}"
    if other.name in best.holds_more_than:
        return f"{best.name} holds more {unit} than {other.name}"
    return f"{best.name} is shown to hold {load_text(best.capacity.met)} {unit}, {other.name} {load_text(met)}"


def _fewer(replicas: int) -> str:
    return f"{counted(replicas, 'replica')} fewer than" if replicas else "as many replicas as"


def _how_sure(candidates: Sequence[Candidate]) -> str:
    """How much was measured, and of the first ones what is undecided and how far their plans are off."""
    runs = sorted({len(each.engine.runs) for each in candidates})
    requests = sum(stage.requests for each in candidates for stage in each.engine.stages)
    each_has = f"{' to '.join(map(str, runs))} run{'' if runs == [1] else 's'}" + (" of each" * (len(candidates) > 1))
    parts = [f"{counted(requests, 'request')} measured in {each_has}"]
    for candidate in candidates[:NAMED]:
        name = f"{candidate.name}: " if len(candidates) > 1 else ""
        if name and candidate.capacity is not None and candidate.capacity.between:  # of one alone the answer says it
            parts.append(f"{name}{candidate.capacity.between}")
        if candidate.planned is not None and candidate.planned.how_sure:
            parts.append(f"{name}{candidate.planned.how_sure}")
    return f"{'; '.join(parts)}."


def print_first_screen(console: Console, screen: FirstScreen) -> None:
    console.print(Text(screen.answer, style="bold"))
    console.print()
    if screen.table is None:
        return
    print_table(console, replace(screen.table, caption=""), (MILLION,))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for heading, sentence in screen.sentences:
        grid.add_row(heading, Text(sentence))
    console.print(grid)
    if screen.table.caption:
        console.print(Text(screen.table.caption, style="dim"))
    console.print()
