"""What the length of the context costs one request alone: its prefill, and each token after it.

An engine with a key/value cache computes a prompt once, and then a token takes about as long whatever came before it.
Without one, every token costs the whole context again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.compare.engine_runs import Contender, contenders_of
from analysis.summary.run_summary import RunSummary
from records.view import StageView
from records.formatting import format_seconds

LEAST_STAGES = 3
APART = 1.5  # times the shortest context, at least, to tell its cost
EXPLAINED = 0.9  # R² below which a straight line says nothing
LEVEL = 0.1  # share of the mean by which a line may rise over what was measured and be called level
ALIKE = (0.5, 2.0)  # a token over a prefill of its context: between these it is one


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


def context_sentences(summaries: Sequence[RunSummary]) -> list[str]:
    """For each engine that one user asked with prompts of three lengths or more, as far as a line describes it."""
    said = [_sentence(contender) for contender in contenders_of(summaries)]
    return [sentence for sentence in said if sentence is not None]


def _sentence(contender: Contender) -> str | None:
    alone = [s for run in contender.runs for s in run.stages if s.load_unit == "users" and s.load == 1]
    token, prefill = line_through(_points(alone, "token")), line_through(_points(alone, "prefill"))
    said = [_said(prefill, "prefill takes"), _said(token, "each further token takes")]
    if token is not None and prefill is not None and token.explained >= EXPLAINED and not token.level:
        context = token.longest
        if ALIKE[0] <= token.seconds(context) / max(prefill.seconds(context), 1e-9) <= ALIKE[1]:
            said.append("a token takes as long as the prefill of all before it: the engine keeps no key/value cache")
    known = [one for one in said if one is not None]
    return f"{contender.label}, one request alone: {'; '.join(known)}." if known else None


def _said(line: Line | None, what: str) -> str | None:
    if line is None:
        return None
    if line.level:
        return f"{what} {format_seconds(line.seconds(line.longest))} at every context length"
    straight = line.explained >= EXPLAINED and line.base >= -LEVEL * line.seconds(line.longest)
    return f"{what} {line.text}" if straight else None


def _points(stages: Sequence[StageView], of: str) -> list[tuple[float, float]]:
    """(mean context, seconds) of each stage where both are known; a token's context holds half of the answer."""
    found = []
    for stage in stages:
        prompt, output = stage.answers.prompt_tokens, stage.answers.output_tokens
        seconds = stage.ttft_parts.prefill if stage.ttft_parts is not None else stage.latencies["ttft"].mean
        if of == "token":
            seconds, prompt = stage.latencies["tpot"].mean, None if prompt is None else prompt + (output or 0) / 2
        if prompt is not None and seconds is not None:
            found.append((prompt, seconds))
    return found
