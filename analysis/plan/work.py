"""What simulated requests ask, and when their tokens came."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.plan.steps import Flags, Floats, Generator, Integers

NOISES = 4096  # steps whose noise is drawn ahead
LEAST_NOISE = 0.2  # of a step's duration
Completion = tuple[float, int]  # instant, request


class Work:
    """The requests of one simulation, by number: what they ask, and when their first and last tokens came."""

    __slots__ = ("first", "last", "steps", "tokens")

    def __init__(self, tokens: list[float], steps: list[int]) -> None:
        """`tokens` are prompt tokens to be prefilled, `steps` those that the answer takes; at least one."""
        self.tokens, self.steps = tokens, steps
        self.first = [math.nan] * len(steps)
        self.last = [math.nan] * len(steps)

    def add(self, tokens: float, steps: int) -> None:
        self.tokens.append(tokens)
        self.steps.append(steps)
        self.first.append(math.nan)
        self.last.append(math.nan)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompts and answers to draw requests from, or to replay in order: one element a request."""

    prefilled: Floats  # prompt tokens that the engine computes
    prompt: Floats
    output: Floats

    def __len__(self) -> int:
        return len(self.output)

    def at(self, picked: Integers | Flags) -> Lengths:
        return Lengths(self.prefilled[picked], self.prompt[picked], self.output[picked])

    def drawn(self, count: int, rng: Generator) -> Lengths:
        return self.at(rng.integers(len(self), size=count))

    def work(self, tokens_per_step: float) -> Work:
        steps = np.maximum(np.rint(self.output / tokens_per_step), 1).astype(int)
        return Work(self.prefilled.tolist(), steps.tolist())
