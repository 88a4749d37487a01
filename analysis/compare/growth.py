"""What grows with the load or with the context: the throughput until it saturates, the parts of TTFT, the part of an
objective's latency between the load that meets it and the one that does not, and the cost of a token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from analysis.compare.engine_runs import EngineRuns, by_load, engine_runs_of, stages_of
from analysis.summary.run_summary import RunSummary
from records.formatting import format_ratio, format_seconds, format_share, in_words
from records.slo import Objective
from records.view import StageView

PARTS = {
    "ttft_client": "the load generator's own delay",
    "ttft_queue": "waiting for admission",
    "ttft_prefill": "prefill",
    "ttft_delivery": "delivery",
}
"""The quantities that add up to the mean TTFT since the request was due."""
DECODING = "decoding"
MANY = 4  # engines, from which on a sentence is about several
FLAT = 0.1  # share: less than this from one load to the next is no growth
LEAST_STAGES = 3
APART = 1.5  # the longest context is at least so many times the shortest, or its cost cannot be known
EXPLAINED = 0.9  # R² below which a straight line says nothing
LEVEL = 0.1  # share of the mean by which a line may rise over what was measured and be called level
ALIKE = (0.5, 2.0)  # the time of a token over that of the prefill of its context: between these it is a prefill


def mean_parts(engine: EngineRuns, stage: str) -> dict[str, float]:
    """Mean seconds of each of `PARTS` over the engine's runs; empty where a run has none of them."""
    return _mean_parts(engine.at(stage))


def _mean_parts(stages: Sequence[StageView]) -> dict[str, float]:
    values = {name: [stage.value(name) for stage in stages] for name in PARTS}
    known = {name: [value for value in of_part if value is not None] for name, of_part in values.items()}
    if not stages or any(len(of_part) < len(stages) for of_part in known.values()):
        return {}
    return {name: sum(of_part) / len(of_part) for name, of_part in known.items()}


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
    """What grew with the load, for each engine with two loads or more whose server sent the parts of TTFT; and with the
    context, for each that one user asked with prompts of several lengths."""
    engines = engine_runs_of(summaries)
    context = [sentence for engine in engines if (sentence := _of_context(engine)) is not None]
    if not by_load(summaries):
        return context
    labels = [stage.label for stage in stages_of(summaries)]
    growths = [growth for engine in engines if (growth := _growth(engine, labels)) is not None]
    of_load = [growth.sentence for growth in growths] if len(growths) < MANY else _of_many(growths)
    return [*of_load, *context]


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
    parts = {label: means for label in labels if (means := mean_parts(engine, label))}
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


@dataclass(frozen=True, slots=True)
class Limit:
    """The objective that is missed first as the load grows, and the part of its latency that grew most from the highest
    load that meets it to the lowest that does not. `part` is `None` where the server sent no durations."""

    objective: Objective
    part: str | None

    @property
    def sentence(self) -> str:
        """`TTFT p95 ≤ 300 ms (waiting for admission grows most)`"""
        return self.objective.text + (f" ({self.part} grows most)" if self.part else "")


def limit_of(objective: Objective, below: Sequence[StageView], above: Sequence[StageView]) -> Limit:
    """`below` are the repeats of the highest load that meets the objective, `above` those of the lowest that misses
    it."""
    return Limit(objective, _grown(objective, below, above))


def _grown(objective: Objective, below: Sequence[StageView], above: Sequence[StageView]) -> str | None:
    if objective.judged is None or not below or not above:
        return None
    if objective.metric == "tpot":
        return DECODING
    before, after = _with_decoding(objective, below), _with_decoding(objective, above)
    grown = {name: after[name] - seconds for name, seconds in before.items() if name in after}
    name, most = max(grown.items(), key=lambda item: item[1], default=("", 0.0))
    return (PARTS | {DECODING: DECODING})[name] if most > 0 else None


def _with_decoding(objective: Objective, stages: Sequence[StageView]) -> dict[str, float]:
    """For the latency of whole answers also the time from the first token to the last."""
    parts = _mean_parts(stages)
    if objective.metric in {"e2e", "ntpot"}:
        means = [(stage.metrics["e2e"].mean, stage.metrics["ttft"].mean) for stage in stages]
        known = [e2e - ttft for e2e, ttft in means if e2e is not None and ttft is not None]
        if len(known) == len(stages):
            parts[DECODING] = sum(known) / len(known)
    return parts


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
