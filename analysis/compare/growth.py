"""What grows with the load: the throughput until it saturates, and the parts of TTFT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from analysis.compare.engine_runs import EngineRuns, by_load, engine_runs_of, stages_of
from analysis.compare.limit import PARTS, mean_parts
from analysis.summary.run_summary import RunSummary
from records.formatting import format_ratio, format_seconds, format_share, in_words

MANY = 4  # engines, from which on a sentence is about several
FLAT = 0.1  # share: less than this from one load to the next is no growth


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
    """For each engine with two loads or more whose server sent the parts of TTFT."""
    if not by_load(summaries):
        return []
    labels = [stage.label for stage in stages_of(summaries)]
    growths = [growth for engine in engine_runs_of(summaries) if (growth := _growth(engine, labels)) is not None]
    return [growth.sentence for growth in growths] if len(growths) < MANY else _of_many(growths)


@dataclass(frozen=True, slots=True)
class TtftGrowth:
    """Mean TTFT of one engine at its first and its last stage, and the part of it that grew most: `None` without
    growth. Where the throughput saturates (`knee`), the first stage is that one."""

    engine: str
    knee: str | None
    first: str
    last: str
    before: float
    after: float
    part: str | None
    more: float  # seconds by which that part grew

    @property
    def sentence(self) -> str:
        start = f"{self.engine} saturates at {self.knee}" if self.knee else self.engine
        seconds = " to ".join(map(format_seconds, (self.before, self.after)))
        whole = f"{start}: from {self.first} to {self.last} the mean TTFT went from {seconds}"
        if self.part is None:
            return f"{whole}."
        share = self.more / (self.after - self.before)
        of_growth = f"{format_share(share)} of the growth" if share <= 1 else "all of the growth"
        return f"{whole}; {of_growth} is {self.part} (+{format_seconds(self.more)})."


def _growth(engine: EngineRuns, labels: Sequence[str]) -> TtftGrowth | None:
    """`labels` are the stages by load. `None` where fewer than two of them have the parts."""
    parts = {label: means for label in labels if (means := mean_parts(engine.at(label)))}
    if len(parts) < 2:
        return None
    rates = [(label, engine.value(label, "throughput")) for label in parts]
    knee = saturated_from([(label, rate) for label, rate in rates if rate is not None and math.isfinite(rate)])
    first, last = knee or next(iter(parts)), list(parts)[-1]
    before, after = (sum(parts[label].values()) for label in (first, last))
    grown = {name: parts[last][name] - parts[first][name] for name in PARTS}
    name, most = max(grown.items(), key=lambda item: item[1])
    part = None if after - before <= FLAT * before else PARTS[name]
    return TtftGrowth(engine.label, knee, first, last, before, after, part, most)


def _of_many(growths: Sequence[TtftGrowth]) -> list[str]:
    """One sentence for the engines of which the same part grew between the same stages."""
    knees: dict[str, list[str]] = {}
    alike: dict[tuple[str, str, str | None], list[TtftGrowth]] = {}
    for growth in growths:
        alike.setdefault((growth.first, growth.last, growth.part), []).append(growth)
        if growth.knee:
            knees.setdefault(growth.knee, []).append(growth.engine)
    sentences = [
        f"{in_words(engines)} saturate{'s' * (len(engines) == 1)} at {knee}." for knee, engines in knees.items()
    ]
    for (first, last, part), group in alike.items():
        if len(group) == 1:
            sentences.append(replace(group[0], knee=None).sentence)
            continue
        times = sorted(growth.after / growth.before for growth in group)
        factors = " to ".join(dict.fromkeys(format_ratio(ratio, None, None) for ratio in (times[0], times[-1])))
        most = f"; most of the growth is {part}" if part else ""
        engines = in_words([growth.engine for growth in group])
        sentences.append(f"{engines}: from {first} to {last} the mean TTFT became {factors} as long{most}.")
    return sentences
