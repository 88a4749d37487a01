"""Judge one objective at one load over all repeats of an engine.

Repeats are independent, so their effective requests add up. With three or more repeats, the runs are samples too: if
they differ by more than their requests explain, the spread between runs determines the width of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from enginebench.analysis.stats.intervals import clopper_pearson
from enginebench.analysis.stats.repeats import MIN_REPEATS, repeats_interval
from enginebench.records.rules import UNDECIDED, answer_of
from enginebench.records.view import Estimate, Judgement, Missing


def pooled(judgements: Sequence[Judgement]) -> Judgement:
    """Return the share over all runs with its interval, and whether it is above or below the objective's share.

    Cut-off requests are counted first as misses, then as hits; if the two verdicts differ, there is no verdict.
    """
    if len(judgements) == 1:
        return judgements[0]
    unknown = sum(judgement.unknown for judgement in judgements)
    together = replace(_together(judgements), unknown=unknown)
    cases = [[_settled(judgement, met) for judgement in judgements] for met in ((0.0, 1.0) if unknown else ())]
    if together.answer == UNDECIDED or all(_together(case).answer == together.answer for case in cases):
        return together
    return replace(together, share=replace(together.share, missing=Missing.CUT_OFF), answer=UNDECIDED)


def _settled(judgement: Judgement, met: float) -> Judgement:
    """Count all requests that were cut off as hits (1), or as misses (0)."""
    if not judgement.unknown:
        return judgement
    share, n = judgement.share, judgement.share.n + judgement.unknown
    value = ((share.value or 0.0) * share.n + met * judgement.unknown) / n
    return replace(judgement, share=replace(share, value=value, n=n))


def _together(judgements: Sequence[Judgement]) -> Judgement:
    """Pool the runs. A run without requests, because the server hung, is no evidence that the objective is met."""
    valued = [judgement for judgement in judgements if judgement.share.value is not None]
    if not valued:
        return judgements[0]
    pooled_runs = _pool(valued) if len(valued) > 1 else valued[0]
    if len(valued) == len(judgements) or pooled_runs.answer == "missed":
        return pooled_runs
    return replace(pooled_runs, share=replace(pooled_runs.share, missing=Missing.NOT_OBSERVED), answer=UNDECIDED)


def _pool(judgements: Sequence[Judgement]) -> Judgement:
    objective = judgements[0].objective
    shares = [judgement.share for judgement in judgements]
    total, values = sum(share.n for share in shares), [share.value or 0.0 for share in shares]
    value = sum(part * share.n for part, share in zip(values, shares, strict=True)) / total if total else 0.0
    plain = Estimate(value, n=total)
    if len(judgements) < MIN_REPEATS and {"met", "missed"} <= {judgement.answer for judgement in judgements}:
        return Judgement(objective, replace(plain, missing=Missing.FEW_REPEATS), UNDECIDED)
    if any(share.low is None or share.effective is None for share in shares):
        return _without_intervals(judgements, plain, values)
    effective = sum(share.effective or 0.0 for share in shares)
    if len(shares) >= MIN_REPEATS and 0 < value < 1:
        effective = min(effective, _worth(value, values))
    low, high = clopper_pearson(value, max(effective, 1e-9))
    share = replace(plain, low=low, high=high, effective=effective)
    return Judgement(objective, share, answer_of(low, high, objective.q))


def _worth(value: float, runs: Sequence[float]) -> float:
    """Return the number of independent requests with the same error as the spread between runs."""
    variance = sum((run - value) ** 2 for run in runs) / (len(runs) - 1) / len(runs)
    return value * (1 - value) / variance if variance > 0 else math.inf


def _without_intervals(judgements: Sequence[Judgement], plain: Estimate, runs: Sequence[float]) -> Judgement:
    """Judge by the spread of the runs if their requests do not show their correlation, else by the answer that all runs
    share."""
    objective, between = judgements[0].objective, repeats_interval(runs).clipped(0.0, 1.0)
    if between.low is not None and between.low < (between.high or 0.0):
        answer = answer_of(between.low, between.high, objective.q)
        return Judgement(objective, replace(plain, low=between.low, high=between.high), answer)
    answers = {judgement.answer for judgement in judgements}
    missing = next((judgement.share.missing for judgement in judgements if judgement.share.missing), None)
    return Judgement(objective, replace(plain, missing=missing), answers.pop() if len(answers) == 1 else UNDECIDED)
