"""Prompts of an exact number of tokens, out of pieces whose tokens are known.

    start | words | lines of code | instruction

A tokenizer cuts text at white space before it does anything else, so a word with its space costs the same wherever it
stands: what the pieces cost is measured once, before the run (`measuring.py`), and making a prompt is addition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random

from loadtests.harness.workload.words import (
    ASSUMED_CHARACTERS,
    ASSUMED_INSTRUCTION,
    ASSUMED_TEMPLATE,
    INSTRUCTION,
    LINES,
    START,
    WORDS,
    Kind,
    Unit,
)

MIN_WORDS = 4  # however short the prompt shall be: fewer would repeat themselves among many users
WORDS_BEFORE_CODE = 12


@dataclass(frozen=True, slots=True)
class Material:
    """`template` are the tokens of a prompt that has only its start, chat template included; `ids` those to draw from.

    `exact` says that prompts made of it were checked against the tokenizer, so that they have the tokens wanted.
    """

    kind: Kind
    template: int
    instruction: int
    words: tuple[Unit, ...]
    lines: tuple[Unit, ...] = ()
    ids: tuple[int, ...] = ()
    exact: bool = False

    def shared(self, tokens: int, rng: Random) -> str:
        """Words to stand at the start of many prompts, of so many tokens."""
        return self.text(tokens, rng) if tokens else ""

    def prompt(self, tokens: int, rng: Random, shared: str = "", shared_tokens: int = 0) -> str:
        """A prompt of `tokens` tokens, or of the fewest that keep prompts apart. `shared` comes after the start."""
        start = START[self._source] + shared
        rest = tokens - self.template - shared_tokens - self.instruction
        if rest >= self._least:
            return start + self.text(rest, rng) + INSTRUCTION[self._source]
        return start + self.text(max(self._least, rest + self.instruction), rng)

    def message(self, tokens: int, rng: Random) -> str:
        """A later message of a conversation."""
        return self.prompt(tokens + self.template, rng)

    def token_ids(self, tokens: int, rng: Random) -> tuple[int, ...]:
        return tuple(rng.choices(self.ids, k=tokens))

    def text(self, tokens: int, rng: Random) -> str:
        """Words, and lines of code where there are some, of `tokens` tokens in all."""
        lines, rest = _drawn(self.lines, tokens - WORDS_BEFORE_CODE * self.dearest, rng) if self.lines else ("", 0)
        words, left = _drawn(self.words, (rest + WORDS_BEFORE_CODE * self.dearest) if lines else tokens, rng)
        return words + "".join(_filling(self.words, left, rng)) + lines

    @property
    def _source(self) -> str:
        return "code" if self.kind == "code" else "words"

    @property
    def dearest(self) -> int:
        """Tokens of the word that has most."""
        return max(cost for _, cost in self.words)

    @property
    def _least(self) -> int:
        return MIN_WORDS * min(cost for _, cost in self.words)


def _drawn(units: tuple[Unit, ...], tokens: int, rng: Random) -> tuple[str, int]:
    """Random pieces that leave less than two of the dearest to be filled, and how many tokens are left."""
    dearest = max(cost for _, cost in units)
    if dearest == 1:
        return "".join(text for text, _ in rng.choices(units, k=max(0, tokens))), 0
    pieces: list[str] = []
    while tokens >= 2 * dearest:
        drawn = rng.choices(units, k=tokens // dearest - 1)
        pieces += (text for text, _ in drawn)
        tokens -= sum(cost for _, cost in drawn)
    return "".join(pieces), tokens


def _filling(units: tuple[Unit, ...], tokens: int, rng: Random) -> list[str]:
    """Random pieces of exactly `tokens` tokens where some add up to it, else of as many as do."""
    by_cost, reachable = _sums(units)
    while tokens > 0 and not reachable[tokens]:
        tokens -= 1
    pieces = []
    while tokens > 0:
        cost = rng.choice([cost for cost in by_cost if cost <= tokens and reachable[tokens - cost]])
        pieces.append(rng.choice(by_cost[cost]))
        tokens -= cost
    return pieces


@cache
def _sums(units: tuple[Unit, ...]) -> tuple[dict[int, list[str]], list[bool]]:
    """The pieces by their cost, and which sums up to two of the dearest they add up to."""
    by_cost: dict[int, list[str]] = {}
    for text, cost in units:
        by_cost.setdefault(cost, []).append(text)
    reachable = [True]
    for total in range(1, 2 * max(by_cost) + 1):
        reachable.append(any(cost <= total and reachable[total - cost] for cost in by_cost))
    return by_cost, reachable


def assumed(kind: Kind, chat: bool) -> Material:
    """Where there is no tokenizer: a token a word."""
    return Material(
        kind,
        template=1 + (ASSUMED_TEMPLATE if chat else 0),
        instruction=ASSUMED_INSTRUCTION,
        words=tuple((word, 1) for word in WORDS),
        lines=tuple((line, max(1, len(line) // ASSUMED_CHARACTERS)) for line in LINES) if kind == "code" else (),
    )


def with_template(material: Material, prompt_tokens: int | None, known: bool) -> Material:
    """The same, where the server counted `prompt_tokens` for a prompt of the start alone; it may not have counted."""
    template = material.template if prompt_tokens is None else prompt_tokens
    return replace(material, template=template, exact=material.exact and known)
