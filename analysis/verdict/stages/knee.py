"""Which part of TTFT grew with the load, beyond the knee above which throughput grows no further."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from analysis.units import format_seconds, format_share
from analysis.verdict.comparison.contenders import Contender, by_load, contenders_of, stages_of
from analysis.verdict.context import context_sentences
from analysis.verdict.stages.ttft_parts import NAMES, TtftParts
from analysis.verdict.summary import RunSummary

FLAT = 0.1  # share: less than this from one stage to the next is no growth


def mean_parts(contender: Contender, stage: str) -> TtftParts | None:
    """The mean over the engine's runs."""
    told = [parts for at in contender.at(stage) if (parts := at.ttft_parts) is not None]
    if not told:
        return None
    means = {name: sum(getattr(parts, name) for parts in told) / len(told) for name in NAMES}
    return TtftParts(**means, n=sum(parts.n for parts in told))


def saturated_from(values: Sequence[tuple[str, float]]) -> str | None:
    """Of (stage, throughput) by load: the stage after which it grew by less than a tenth for good; `None` if it still
    does."""
    full = None
    for (label, value), (_, following) in pairwise(values):
        if following > value * (1 + FLAT):
            full = None
        elif full is None:
            full = label
    return full


def growth_sentences(summaries: Sequence[RunSummary]) -> list[str]:
    """What grew with the load, for each engine with two loads or more whose server told where TTFT went; and with the
    context, for each that one user asked with prompts of several lengths."""
    return [*_by_load(summaries), *context_sentences(summaries)]


def _by_load(summaries: Sequence[RunSummary]) -> list[str]:
    if not by_load(summaries):
        return []
    labels = [stage.label for stage in stages_of(summaries)]
    said = [_growth(contender, labels) for contender in contenders_of(summaries)]
    return [sentence for sentence in said if sentence is not None]


def _growth(contender: Contender, labels: Sequence[str]) -> str | None:
    """A sentence on which part of TTFT grew beyond the knee, where throughput stops to grow; without a knee, over all
    loads. `labels` are the stages by load. `None` where fewer than two of them have parts."""
    told = {label: parts for label in labels if (parts := mean_parts(contender, label)) is not None}
    if len(told) < 2:
        return None
    rates = [(label, contender.estimate(lambda stage: stage.throughput, label).value) for label in told]
    knee = saturated_from([(label, rate) for label, rate in rates if rate is not None and math.isfinite(rate)])
    first, last = knee or next(iter(told)), list(told)[-1]
    before, after = told[first], told[last]
    said = f"{contender.label}: throughput grew no further above {first}; " if knee else f"{contender.label}: "
    ends = " to ".join(format_seconds(parts.total) for parts in (before, after))
    whole = f"from {first} to {last} the mean TTFT went from {ends}"
    grown = {name: after.lengths[name] - before.lengths[name] for name in NAMES}
    more = after.total - before.total
    if more <= FLAT * before.total:
        return f"{said}{whole}."
    name, most = max(grown.items(), key=lambda item: item[1])
    share = f"{format_share(most / more)} of the growth" if most <= more else "all of the growth"
    return f"{said}{whole}: {share} is {NAMES[name]} (+{format_seconds(most)})."
