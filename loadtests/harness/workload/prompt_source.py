"""Prompts of an exact number of tokens, made of pieces whose tokens are known.

    start | words | instruction

A tokenizer cuts text at white space first, so a word with its space has the same number of tokens everywhere: the
tokens of the pieces are counted once, before the run (`piece_tokens.py`), and added up for each prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import chain
from random import Random

from loadtests.harness.workload.prompt_words import (
    ASSUMED_INSTRUCTION,
    ASSUMED_TEMPLATE,
    INSTRUCTION,
    START,
    WORDS,
    Kind,
    Unit,
)

MIN_WORDS = 4  # per prompt: with fewer words, the prompts of many users would repeat
LONG = 2048  # tokens; prompts from this length on are made of runs that were drawn beforehand
UNIQUE = 512  # tokens of a long prompt before its runs, so that a prefix cache cannot hit the runs
KEPT_BLOCKS = 50_000  # blocks of recorded prompts: 20 MB for blocks of 64 tokens
RUN, RUNS = 64, 512  # pieces of a run, and number of runs


class Pieces:
    """Pieces of text with their numbers of tokens, for random draws."""

    def __init__(self, units: tuple[Unit, ...]) -> None:
        self._units = units
        self._by_cost: dict[int, list[str]] = {}
        for text, cost in units:
            self._by_cost.setdefault(cost, []).append(text)
        self.cheapest, self.costliest = min(self._by_cost), max(self._by_cost)
        self._reachable = [True]  # for each number of tokens, whether some pieces have this sum
        for total in range(1, 2 * self.costliest + 1):
            self._reachable.append(any(cost <= total and self._reachable[total - cost] for cost in self._by_cost))

    def drawn(self, tokens: int, rng: Random) -> tuple[str, int]:
        """Draw random pieces, and return them with the number of tokens left, less than two of the costliest pieces."""
        fresh = tokens if tokens < LONG else UNIQUE
        text, left = _drawn(self._units, self.costliest, fresh, rng)
        if fresh == tokens:
            return text, left
        runs, left = _drawn(*self._runs, left + tokens - fresh, rng)
        rest, left = _drawn(self._units, self.costliest, left, rng)
        return text + runs + rest, left

    @cached_property
    def _runs(self) -> tuple[list[Unit], int]:
        """Draw the runs of long prompts, and return them with the tokens of the costliest run.

        Drawing 100 000 words one by one would block all other requests of the process for 40 ms.
        """
        rng = Random("runs")
        drawn = [rng.choices(self._units, k=RUN) for _ in range(RUNS)]
        runs = [("".join(text for text, _ in run), sum(cost for _, cost in run)) for run in drawn]
        return runs, max(cost for _, cost in runs)

    def filling(self, tokens: int, rng: Random) -> str:
        """Draw random pieces of exactly `tokens` tokens, or of the nearest smaller sum."""
        while tokens > 0 and not self._reachable[tokens]:
            tokens -= 1
        pieces = []
        while tokens > 0:
            fitting = [cost for cost in self._by_cost if cost <= tokens and self._reachable[tokens - cost]]
            cost = rng.choice(fitting)
            pieces.append(rng.choice(self._by_cost[cost]))
            tokens -= cost
        return "".join(pieces)


def _drawn(units: Sequence[Unit], costliest: int, tokens: int, rng: Random) -> tuple[str, int]:
    """Draw random units, and return them with the number of tokens left, less than two of the costliest units."""
    pieces: list[str] = []
    while tokens >= 2 * costliest:
        texts, costs = zip(*rng.choices(units, k=tokens // costliest - 1), strict=True)
        pieces += texts
        tokens -= sum(costs)
    return "".join(pieces), tokens


@dataclass(frozen=True)
class PromptSource:
    """The pieces of prompts. `template` is the number of tokens of a prompt with only its start, chat template
    included; `ids` are the token ids to draw from.

    `length_measured` is true if the lengths of prompts were checked with the tokenizer.
    """

    kind: Kind
    template: int
    instruction: int
    words: tuple[Unit, ...]
    ids: tuple[int, ...] = ()
    length_measured: bool = False

    def prompt(self, tokens: int, rng: Random, shared_tokens: int = 0, shared_seed: str = "") -> str:
        """Return a prompt of `tokens` tokens, or of the minimum with which prompts differ.

        The first `shared_tokens` after the start are the same for all prompts with the same `shared_seed`.
        """
        start = START + (self._shared(shared_tokens, shared_seed) if shared_tokens else "")
        rest = tokens - self.template - shared_tokens - self.instruction
        least = MIN_WORDS * self._words.cheapest
        if rest >= least:
            return start + self._text(rest, rng) + INSTRUCTION
        return start + self._text(max(least, rest + self.instruction), rng)

    def of_blocks(self, tokens: int, blocks: Sequence[str], block_tokens: int, rng: Random) -> str | tuple[int, ...]:
        """Return a prompt of `tokens` tokens made of named blocks, and of further words if the blocks are too short.

        The first block includes the chat template. Prompts that begin with the same blocks begin with the same text,
        or with the same token ids.
        """
        if self.kind == "ids":
            return tuple(chain.from_iterable(self._block_ids(name, block_tokens) for name in blocks))[:tokens]
        parts, left = [START], tokens - self.template
        for name in blocks:
            size = block_tokens - (self.template if len(parts) == 1 else 0)
            if size <= left:
                parts.append(self._block(name, size))
            elif left > 0:
                parts.append(self._text(left, Random(f"block {name}")))
            left -= size
        return "".join(parts) + (self._text(left, rng) if left > 0 else "")

    def message(self, tokens: int, rng: Random) -> str:
        """Return a later message of a conversation, which adds `tokens` tokens and the template's tokens around it."""
        least = MIN_WORDS * self._words.cheapest
        if tokens >= least + self.instruction:
            return self._text(tokens - self.instruction, rng).lstrip() + INSTRUCTION
        return self._text(max(least, tokens), rng).lstrip()

    def token_ids(self, tokens: int, rng: Random) -> tuple[int, ...]:
        if tokens < LONG:
            return tuple(rng.choices(self.ids, k=tokens))
        runs = rng.choices(self._id_runs, k=(tokens - UNIQUE) // RUN)
        own = rng.choices(self.ids, k=tokens - RUN * len(runs))
        return tuple(chain(own, *runs))

    def _text(self, tokens: int, rng: Random) -> str:
        """Return words with `tokens` tokens in total."""
        words, left = self._words.drawn(tokens, rng)
        return words + self._words.filling(left, rng)

    @cached_property
    def _block(self) -> Callable[[str, int], str]:
        """Return a cached function for the text of a block: a session repeats most blocks in each request."""
        return lru_cache(KEPT_BLOCKS)(lambda name, tokens: self._text(tokens, Random(f"block {name}")))

    @cached_property
    def _block_ids(self) -> Callable[[str, int], tuple[int, ...]]:
        return lru_cache(KEPT_BLOCKS)(lambda name, tokens: self.token_ids(tokens, Random(f"block {name}")))

    @cached_property
    def _shared(self) -> Callable[[int, str], str]:
        return cache(lambda tokens, seed: self._text(tokens, Random(f"prefix {seed}")))

    @cached_property
    def _id_runs(self) -> list[list[int]]:
        rng = Random("runs")
        return [rng.choices(self.ids, k=RUN) for _ in range(RUNS)]

    @cached_property
    def _words(self) -> Pieces:
        return Pieces(self.words)


def assumed(kind: Kind, chat: bool) -> PromptSource:
    """Return a source for an unknown tokenizer, with one token for each word."""
    return PromptSource(
        kind,
        template=1 + (ASSUMED_TEMPLATE if chat else 0),
        instruction=ASSUMED_INSTRUCTION,
        words=tuple((word, 1) for word in WORDS),
    )


def with_template(source: PromptSource, prompt_tokens: int | None) -> PromptSource:
    """Return the source with the template's tokens: the server counted `prompt_tokens` for a prompt with only its
    start. Without a count, their length is not measured."""
    if prompt_tokens is None:
        return replace(source, length_measured=False)
    return replace(source, template=prompt_tokens)
