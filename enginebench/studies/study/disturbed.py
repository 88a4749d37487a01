"""Runs that were disturbed: far from the other runs of their engine, in a round in which other engines were not.

The logarithm of a disturbed run's tokens per second differs from its engine's median over the rounds, after correcting
for the round's effect on the other engines: a drift of the machine, which all engines share, is no disturbance.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from enginebench.records.files import read_meta, read_requests
from enginebench.records.stage import SECOND
from enginebench.studies.study.folder import StudyFolder
from enginebench.studies.study.grid import Cell

MIN_ROUNDS = 3  # with two, either may be the disturbed one
MIN_FACTOR = 1.5  # between a disturbed run's tokens per second and the rate that its neighbours explain
MAD = 1.4826  # standard deviation over median absolute deviation of a normal distribution
SPREADS = 4.0  # distance of a disturbed run, in robust standard deviations of all runs of the part


def disturbed_cells(study: StudyFolder) -> dict[Cell, str]:
    """Return the disturbed cells of complete parts, each with the reason, except cells that were repeated before."""
    disturbed: dict[Cell, str] = {}
    for part in study.grid.parts:
        for model in study.grid.models:
            states = study.select(part.name, model.label)
            if part.kind != "load" or any(state.outcome == "left" for state in states):
                continue
            done = [state for state in states if state.outcome == "done"]
            stages: dict[Cell, dict[str, float]] = {}
            for state in done:
                with contextlib.suppress(OSError, ValueError):  # a damaged run is listed by the report
                    if path := study.result(state):
                        stages[state.cell] = stage_rates(path)
            rates = {
                cell: _mean(rates, [r for c, r in stages.items() if c.engine == cell.engine])
                for cell, rates in stages.items()
            }
            for cell, (rate, usual) in outlying(rates).items():
                if cell.id not in study.disturbed:
                    disturbed[cell] = f"{rate:.3g} output tokens/s, and {usual:.3g} by its other runs and its round."
    return disturbed


def stage_rates(run: Path) -> dict[str, float]:
    """Return output tokens per second by stage, for stages with tokens."""
    requests = [request for request in read_requests(run) if request.outcome == "ok" and request.output_tokens]
    rates = {}
    for stage in read_meta(run).stages:
        start, end = stage.steady_start or 0, stage.steady_end or 0
        tokens = sum(request.output_tokens or 0 for request in requests if start <= request.t_sched < end)
        if tokens:
            rates[stage.label] = tokens * SECOND / (end - start)
    return rates


def _mean(rates: Mapping[str, float], all_rates: Sequence[Mapping[str, float]]) -> float | None:
    """Return the geometric mean over the stages that all runs have."""
    common = set(rates).intersection(*all_rates)
    return math.exp(fmean(math.log(rates[label]) for label in common)) if common else None


def outlying(rates: Mapping[Cell, float | None]) -> dict[Cell, tuple[float, float]]:
    """Return the cells whose rate the neighbours do not explain, with the actual and the explained rate."""
    logs = {cell: math.log(rate) for cell, rate in rates.items() if rate is not None}
    by_engine: dict[str, list[float]] = {}
    for cell, value in logs.items():
        by_engine.setdefault(cell.engine, []).append(value)
    usual = {engine: median(values) for engine, values in by_engine.items() if len(values) >= MIN_ROUNDS}
    residuals = {cell: value - usual[cell.engine] for cell, value in logs.items() if cell.engine in usual}
    if not residuals:
        return {}
    limit = max(math.log(MIN_FACTOR), SPREADS * MAD * median(map(abs, residuals.values())))
    outliers = {}
    for cell, residual in residuals.items():
        same_round = [value for c, value in residuals.items() if c.repeat == cell.repeat and c != cell]
        unexplained = residual - (median(same_round) if same_round else 0.0)
        if min(abs(residual), abs(unexplained)) > limit:
            outliers[cell] = math.exp(logs[cell]), math.exp(logs[cell] - unexplained)
    return outliers
