"""Findings merged for reading: one for each kind and engine, with the stages it applies to; one for all engines where
many have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from enginebench.analysis.console import CAUTION
from enginebench.records.formatting import counted, in_words, join_labels
from enginebench.records.view import Finding, Severity, in_order

LONGEST = 60  # characters of a list of stages
OF_THE_TEST = {"prompts_missed", "too_few_samples", "tokens_per_chunk"}
"""Kinds of how the test was laid out, which stand behind those of the server and of the load generator."""

MANY = 3  # engines with the same kind of finding, from which on they share one remark


STYLES: Mapping[Severity, str] = {"invalid": "bold red", "warn": CAUTION, "note": "dim"}


@dataclass(frozen=True, slots=True)
class Remark:
    """The same finding at several stages, merged; the evidence is that of the last of them, in one run.

    `others` are those of further engines. All of them are named, and the evidence is of this one.
    """

    kind: str
    severity: Severity
    label: str | None
    stages: tuple[str, ...]
    runs: int  # of the engine, that have it
    of_runs: int  # of the engine
    last_evidence: str
    remedy: str
    others: tuple[Remark, ...] = ()

    @property
    def where(self) -> str:
        """`transformers, 10 and 20 users (4 runs)`; empty for what concerns all engines."""
        if self.others:
            engines: dict[str, list[str]] = {}
            for remark in (self, *self.others):
                engines.setdefault(remark._at, []).append(remark.label or "")
            return "; ".join(_of(in_words(names), at) for at, names in engines.items())
        return _of(self.label or "", self._at)

    @property
    def text(self) -> str:
        return f"{self.where}: {self.evidence}" if self.where else self.evidence

    @property
    def evidence(self) -> str:
        """Where it is that of one stage or one engine among several, it says of which."""
        of = [self.label] if self.others and self.label else []
        of += [f"at {self.stages[-1]}"] if len(self.stages) > 1 else []
        of += ["in one run"] if self.runs > 1 and self.stages else []
        return f"{self.last_evidence} ({' '.join(of)})" if of else self.last_evidence

    @property
    def _at(self) -> str:
        stages = join_labels(self.stages) if self.stages else None
        if stages is not None and len(stages) > LONGEST and len(self.stages) > 2:
            stages = f"{len(self.stages)} stages from {self.stages[0]} to {self.stages[-1]}"
        count = f"{self.runs} of {self.of_runs}" if self.runs < self.of_runs else f"{self.runs}"
        runs = f"({count} runs)" if self.of_runs > 1 and (stages or self.label) else ""
        return " ".join(part for part in (stages, runs) if part)


def _of(names: str, at: str) -> str:
    """`transformers, 10 users (4 runs)`, or `transformers (4 runs)` without a stage."""
    return f"{names} {at}" if names and at.startswith("(") else ", ".join(filter(None, (names, at)))


def remarks(findings: Iterable[Finding], labels: Iterable[str] = ()) -> tuple[Remark, ...]:
    """Gravest first, one remark for each kind, severity and engine. `labels` are those of all runs."""
    of_runs = Counter(labels)
    groups: dict[tuple[str, str, str | None], list[Finding]] = {}
    for finding in in_order(findings):
        groups.setdefault((finding.severity, finding.kind, finding.label), []).append(finding)
    merged = []
    for group in groups.values():
        by_stage = sorted(group, key=lambda finding: finding.stage.index if finding.stage else -1)
        stages = tuple(dict.fromkeys(finding.stage.label for finding in by_stage if finding.stage is not None))
        worst = by_stage[-1]
        runs = max(Counter(finding.stage for finding in group).values())
        total = runs if worst.kind == "run_to_run" else max(runs, of_runs[worst.label or ""])  # that one is of all runs
        merged.append(
            Remark(worst.kind, worst.severity, worst.label, stages, runs, total, worst.evidence, worst.remedy)
        )
    return _together(merged)


def _together(by_engine: list[Remark]) -> tuple[Remark, ...]:
    """One remark for the engines that have the same kind of finding, where they are many."""
    alike: dict[tuple[str, str], list[Remark]] = {}
    for remark in by_engine:
        if remark.label is not None:
            alike.setdefault((remark.severity, remark.kind), []).append(remark)
    merged: list[Remark] = []
    for remark in by_engine:
        group = alike.get((remark.severity, remark.kind), [])
        if remark.label is None or len(group) < MANY:
            merged.append(remark)
        elif remark is group[0]:
            merged.append(replace(remark, others=tuple(group[1:])))
    severities = list(dict.fromkeys(remark.severity for remark in merged))
    return tuple(sorted(merged, key=lambda remark: (severities.index(remark.severity), remark.kind in OF_THE_TEST)))


NAMES = {"waited_for_cpu": "waited for a CPU", "littles_law_off": "Little's law off"}


def caveats_line(caveats: Sequence[Remark], where: str) -> str:
    """`2 caveats (report): too few samples, lock step`: which there are; `where` explains them."""
    kinds = dict.fromkeys(NAMES.get(caveat.kind, caveat.kind.replace("_", " ")) for caveat in caveats)
    return f"{counted(len(caveats), 'caveat')} ({where}): {', '.join(kinds)}"


def print_remarks(console: Console, shown: Sequence[Remark]) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for remark in shown:
        text = Text.assemble(f"{remark.text}. ", (f"→ {remark.remedy}", "dim"))
        grid.add_row(Text(remark.severity, style=STYLES[remark.severity]), text)
    if shown:
        console.print(grid)
        console.print()
