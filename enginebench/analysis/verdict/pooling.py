"""One objective at one load over all repeats of an engine. Repeats are independent, so their effective requests add up;
where the runs differ by more than that explains, the spread between them counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import stdev

from enginebench.analysis.stats.estimate import t_quantile
from enginebench.analysis.stats.intervals import clopper_pearson, requests_needed
from enginebench.analysis.stats.repeats import REPEATS, repeats_interval
from enginebench.records.rules import SloAnswer, answer_of
from enginebench.records.slo import Objective
from enginebench.records.view import DEPENDS_ON_CUT_OFF, Estimate, Judgement

MOST_RUNS = 100  # repeats that are thought of when it is said how many would decide
MORE_REPEATS = f"{REPEATS} repeats would be judged by their spread"
UNDECIDED: SloAnswer = "not enough evidence"


def pooled(judgements: Sequence[Judgement]) -> Judgement:
    """Of each repeat its own judgement, by one objective. As within one run, the answer is one that the requests whose
    outcome was cut off do not change."""
    if len(judgements) == 1:
        return _with_need(judgements[0])
    unknown = sum(judgement.unknown for judgement in judgements)
    together = replace(_together(judgements), unknown=unknown)
    cases = [[_settled(judgement, met) for judgement in judgements] for met in ((0.0, 1.0) if unknown else ())]
    if together.answer == UNDECIDED or all(_together(case).answer == together.answer for case in cases):
        return together
    share = replace(together.share, why=DEPENDS_ON_CUT_OFF)
    return Judgement(together.objective, share, UNDECIDED, unknown=unknown)


def _settled(judgement: Judgement, met: float) -> Judgement:
    """As if all requests whose outcome was cut off had met the objective (1), or missed it (0)."""
    if not judgement.unknown:
        return judgement
    known, n = judgement.share, judgement.share.n + judgement.unknown
    value = ((known.value or 0.0) * known.n + met * judgement.unknown) / n
    return replace(judgement, share=replace(known, value=value, n=n))


def _together(judgements: Sequence[Judgement]) -> Judgement:
    """A run without requests, as of a server that hung, does not show that the load is served: with it the load may be
    missed, and is not met."""
    known = [judgement for judgement in judgements if judgement.share.value is not None]
    if len(known) == len(judgements):
        return _of_known(known)
    others = (_of_known(known) if len(known) > 1 else known[0]) if known else judgements[0]
    why = next(judgement.share.why for judgement in judgements if judgement.share.value is None)
    if known:
        why = f"{why} of {len(judgements) - len(known)} of {len(judgements)} runs"
    return Judgement(
        others.objective, replace(others.share, why=why), "missed" if others.answer == "missed" else UNDECIDED
    )


def _of_known(judgements: Sequence[Judgement]) -> Judgement:
    objective = judgements[0].objective
    shares = [judgement.share for judgement in judgements]
    total, values = sum(share.n for share in shares), [share.value or 0.0 for share in shares]
    value = sum(share * of.n for share, of in zip(values, shares, strict=True)) / total if total else 0.0
    if len(judgements) < REPEATS and {"met", "missed"} <= {judgement.answer for judgement in judgements}:
        conflict = f"the runs contradict each other; {MORE_REPEATS}"
        return Judgement(objective, Estimate(value, n=total, why=conflict), UNDECIDED)
    if any(share.low is None or share.effective is None for share in shares):
        between = repeats_interval(values).within(0.0, 1.0)
        if between.low is not None and between.low < (between.high or 0.0):  # the runs are samples of their own
            return _between_runs(objective, replace(between, n=total), values)
        why = next(share.why for share in shares if share.low is None or share.effective is None)
        if len(shares) < REPEATS:
            why = "; ".join(filter(None, (why, MORE_REPEATS)))
        return Judgement(objective, Estimate(value, n=total, why=why), _agreed(judgements))
    effective = sum(share.effective or 0.0 for share in shares)
    if len(shares) >= REPEATS and 0 < value < 1:
        apart = sum((share - value) ** 2 for share in values) / (len(shares) - 1) / len(shares)
        if apart > 0:
            effective = min(effective, value * (1 - value) / apart)
    low, high = clopper_pearson(value, max(effective, 1e-9))
    share = Estimate(value, low, high, total, effective=effective)
    return _with_need(Judgement(objective, share, answer_of(share.low, share.high, objective.q)))


def _between_runs(objective: Objective, share: Estimate, runs: Sequence[float]) -> Judgement:
    """By the spread of the runs alone, with how many requests the further repeats have that would decide: the share and
    the spread would have to stay what they are."""
    answer, needed = answer_of(share.low, share.high, objective.q), None
    if answer == UNDECIDED and share.value is not None:
        spread, distance = stdev(runs), abs(share.value - objective.q)
        counts = range(len(runs) + 1, MOST_RUNS)
        enough = (count for count in counts if t_quantile(count - 1) * spread / math.sqrt(count) < distance)
        if (count := next(enough, None)) is not None:
            needed = share.n * (count / len(runs) - 1)
        share = replace(share, why="judged by the spread between runs, so more repeats are needed")
    return Judgement(objective, share, answer, needed)


def _agreed(judgements: Sequence[Judgement]) -> SloAnswer:
    answers = {judgement.answer for judgement in judgements}
    return answers.pop() if len(answers) == 1 else UNDECIDED


def _with_need(judgement: Judgement) -> Judgement:
    """About how many requests more would decide, where not enough of them is what an answer lacks."""
    total = requests_needed(judgement.share, judgement.objective.q)
    if judgement.answer != UNDECIDED or total is None or total <= judgement.share.n:
        return judgement
    return replace(judgement, requests_needed=float(total - judgement.share.n))
