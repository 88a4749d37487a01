"""What grows: with the load the throughput until it saturates, and the parts of TTFT; with the context the time of the
prefill and of a token, where one user asks alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from enginebench.analysis.compare.engine_runs import EngineRuns, by_load, engine_runs_of, stages_of
from enginebench.analysis.compare.limit import PARTS, mean_parts
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_ratio, format_seconds, format_share, in_words
from enginebench.records.view import StageView

MANY = 4  # engines, from which on a sentence is about several
NEARLY = 0.995  # share of the growth that is called nearly all of it
FLAT = 0.1  # share: less than this from one load to the next is no growth
LEAST_STAGES = 3
APART = 1.5  # the longest context is at least so many times the shortest, or its cost cannot be known
EXPLAINED = 0.9  # R² below which a straight line says nothing
LEVEL = 0.1  # share of the mean by which a line may rise over what was measured and be called level
ALIKE = (0.5, 2.0)  # the time of a token over that of the prefill of its context: between these it is a prefill


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
        if self.part is None:
            after = f"the mean TTFT does not grow ({format_seconds(self.after)} at {self.last})"
            return f"{start}: from {self.first} to {self.last} {after}."
        seconds = " to ".join(map(format_seconds, (self.before, self.after)))
        whole = f"{start}: from {self.first} to {self.last} the mean TTFT went from {seconds}"
        share = self.more / (self.after - self.before)
        of_growth = f"{format_share(share)} of the growth" if share < NEARLY else "nearly all of the growth"
        of_growth = "all of the growth" if share > 1 else of_growth
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


def context_sentences(summaries: Sequence[RunSummary]) -> list[str]:
    """One for each engine that one user asked with prompts of several lengths."""
    sentences = [_of_context(engine) for engine in engine_runs_of(summaries)]
    return [sentence for sentence in sentences if sentence is not None]


@dataclass(frozen=True, slots=True)
class Line:
    """seconds = base + per_token · context, by least squares; `explained` is R²."""

    base: float
    per_token: float
    explained: float
    shortest: float
    longest: float

    def seconds(self, context: float) -> float:
        return self.base + self.per_token * context

    @property
    def level(self) -> bool:
        """No longer for the longest context than for the shortest."""
        rise = self.per_token * (self.longest - self.shortest)
        return abs(rise) <= LEVEL * self.seconds((self.shortest + self.longest) / 2)

    @property
    def text(self) -> str:
        """`12.0 ms + 310 µs per token of context (R² 0.99)`"""
        slope = f"{format_seconds(self.per_token)} per token of context"
        return f"{format_seconds(self.base)} + {slope} (R² {self.explained:.2f})"


def line_through(points: Sequence[tuple[float, float]]) -> Line | None:
    """Through (context, seconds) of three contexts or more; `None` where they are too close to one another."""
    contexts, seconds = (np.array(side) for side in zip(*points, strict=True)) if points else (np.zeros(0), np.zeros(0))
    if len(np.unique(contexts)) < LEAST_STAGES or contexts.max() < APART * max(contexts.min(), 1.0):
        return None
    per_token, base = np.polyfit(contexts, seconds, 1)
    variance = float(((seconds - seconds.mean()) ** 2).sum())
    left = float(((seconds - base - per_token * contexts) ** 2).sum())
    explained = 1 - left / variance if variance > 0 else 1.0
    return Line(float(base), float(per_token), explained, float(contexts.min()), float(contexts.max()))


def _of_context(engine: EngineRuns) -> str | None:
    """With a key/value cache a prompt is computed once, and then a token takes about as long whatever came before it.
    Without one, every token costs the whole context again."""
    alone = [stage for stage in engine.stages if stage.load_unit == "users" and stage.load == 1]
    prefill, token = line_through(_prefill(alone)), line_through(_token(alone))
    parts = [_line_text(prefill, "prefill takes"), _line_text(token, "each further token takes")]
    if token is not None and prefill is not None and token.explained >= EXPLAINED and not token.level:
        context = token.longest
        if ALIKE[0] <= token.seconds(context) / max(prefill.seconds(context), 1e-9) <= ALIKE[1]:
            parts.append("a token takes as long as the prefill of all before it: the engine keeps no key/value cache")
    known = [part for part in parts if part is not None]
    return f"{engine.label}, one request alone: {'; '.join(known)}." if known else None


def _line_text(line: Line | None, what: str) -> str | None:
    if line is None:
        return None
    if line.level:
        return f"{what} {format_seconds(line.seconds(line.longest))} at every context length"
    straight = line.explained >= EXPLAINED and line.base >= -LEVEL * line.seconds(line.longest)
    return f"{what} {line.text}" if straight else None


def _prefill(stages: Sequence[StageView]) -> list[tuple[float, float]]:
    """(mean prompt tokens, mean seconds) of each stage where both are known; TTFT where the server sent no parts."""
    points = [(stage.value("prompt_tokens"), stage.value("ttft_prefill")) for stage in stages]
    if any(seconds is None for _, seconds in points):
        points = [(stage.value("prompt_tokens"), stage.metrics["ttft"].mean) for stage in stages]
    return [(prompt, seconds) for prompt, seconds in points if prompt is not None and seconds is not None]


def _token(stages: Sequence[StageView]) -> list[tuple[float, float]]:
    """(mean context, seconds per token); a token's context holds half of the answer."""
    points = []
    for stage in stages:
        prompt, seconds = stage.value("prompt_tokens"), stage.metrics["tpot"].mean
        if prompt is not None and seconds is not None:
            points.append((prompt + (stage.value("output_tokens") or 0.0) / 2, seconds))
    return points
