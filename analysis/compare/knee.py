"""Which part of TTFT grew with the load, beyond the knee above which throughput grows no further."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from analysis.compare.context import context_sentences
from analysis.compare.engine_runs import Contender, by_load, contenders_of, stages_of
from analysis.summary.run_summary import RunSummary
from analysis.summary.ttft_parts import NAMES, TtftParts
from records.formatting import format_ratio, format_seconds, format_share, in_words

MANY = 4  # engines, from which on a sentence tells of several
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
    told = [_growth(contender, labels) for contender in contenders_of(summaries)]
    known = [growth for growth in told if growth is not None]
    return [growth.sentence for growth in known] if len(known) < MANY else _of_many(known)


@dataclass(frozen=True, slots=True)
class _Growth:
    """Mean TTFT of one engine from one stage to another, and the part of it that grew most: `None` without growth."""

    engine: str
    knee: str | None
    first: str
    last: str
    before: float
    after: float
    part: str | None
    more: float  # seconds by which that part grew

    @property
    def share(self) -> float:
        return self.more / (self.after - self.before)

    @property
    def sentence(self) -> str:
        said = f"{self.engine}: throughput grew no further above {self.knee}; " if self.knee else f"{self.engine}: "
        ends = " to ".join(map(format_seconds, (self.before, self.after)))
        whole = f"{said}from {self.first} to {self.last} the mean TTFT went from {ends}"
        if self.part is None:
            return f"{whole}."
        share = f"{format_share(self.share)} of the growth" if self.share <= 1 else "all of the growth"
        return f"{whole}: {share} is {self.part} (+{format_seconds(self.more)})."


def _of_many(growths: Sequence[_Growth]) -> list[str]:
    """One sentence for the engines of which the same part grew between the same stages."""
    knees: dict[str, list[str]] = {}
    alike: dict[tuple[str, str, str | None], list[_Growth]] = {}
    for one in growths:
        alike.setdefault((one.first, one.last, one.part), []).append(one)
        if one.knee:
            knees.setdefault(one.knee, []).append(one.engine)
    said = [f"{in_words(names)}: throughput grew no further above {knee}." for knee, names in knees.items()]
    for (first, last, part), group in alike.items():
        if len(group) == 1:
            said.append(replace(group[0], knee=None).sentence)
            continue
        times = sorted(one.after / one.before for one in group)
        range_of = " to ".join(dict.fromkeys(format_ratio(ratio, None, None) for ratio in (times[0], times[-1])))
        of = f"; most of the growth is {part}" if part else ""
        names = in_words([one.engine for one in group])
        said.append(f"{names}: from {first} to {last} the mean TTFT became {range_of} as long{of}.")
    return said


def _growth(contender: Contender, labels: Sequence[str]) -> _Growth | None:
    """Which part of TTFT grew beyond the knee, where throughput stops to grow; without a knee, over all loads. `labels`
    are the stages by load. `None` where fewer than two of them have parts."""
    told = {label: parts for label in labels if (parts := mean_parts(contender, label)) is not None}
    if len(told) < 2:
        return None
    rates = [(label, contender.estimate(lambda stage: stage.throughput, label).value) for label in told]
    knee = saturated_from([(label, rate) for label, rate in rates if rate is not None and math.isfinite(rate)])
    first, last = knee or next(iter(told)), list(told)[-1]
    before, after = told[first], told[last]
    grown = {name: after.lengths[name] - before.lengths[name] for name in NAMES}
    flat = after.total - before.total <= FLAT * before.total
    name, most = max(grown.items(), key=lambda item: item[1])
    part = None if flat else NAMES[name]
    return _Growth(contender.label, knee, first, last, before.total, after.total, part, most)
