"""How the time of the prefill and of a token grows with the context, where one user asks alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.compare.engine_runs import EngineRuns, engine_runs_of
from analysis.summary.run_summary import RunSummary
from records.formatting import format_seconds
from records.view import StageView

LEAST_STAGES = 3
APART = 1.5  # the longest context is at least so many times the shortest, or its cost cannot be known
EXPLAINED = 0.9  # R² below which a straight line says nothing
LEVEL = 0.1  # share of the mean by which a line may rise over what was measured and be called level
ALIKE = (0.5, 2.0)  # the time of a token over that of the prefill of its context: between these it is a prefill


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
