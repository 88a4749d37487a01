"""Prompts of an exact number of tokens, out of pieces whose tokens are known.

    start | words | instruction

A tokenizer cuts text at white space before it does anything else, so a word with its space costs the same wherever it
stands: what the pieces cost is measured once, before the run (`measuring.py`), and making a prompt is addition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
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

MIN_WORDS = 4  # however short the prompt: with fewer, the prompts of many users would repeat
LONG = 2048  # tokens from which a prompt is made of runs that were drawn beforehand,
UNIQUE = 512  # after so many that are its own, so that a prefix cache cannot hit the runs
KEPT_BLOCKS = 50_000  # of recorded prompts: some 20 MB where a block has 64 tokens
RUN, RUNS = 64, 512  # pieces of a run, and how many runs there are


class Pieces:
    """Pieces of text and their tokens, to be drawn from."""

    def __init__(self, units: tuple[Unit, ...]) -> None:
        self._units = units
        self._by_cost: dict[int, list[str]] = {}
        for text, cost in units:
            self._by_cost.setdefault(cost, []).append(text)
        self.cheapest, self.costliest = min(self._by_cost), max(self._by_cost)
        self._reachable = [True]  # which sums some pieces add up to
        for total in range(1, 2 * self.costliest + 1):
            self._reachable.append(any(cost <= total and self._reachable[total - cost] for cost in self._by_cost))

    def drawn(self, tokens: int, rng: Random) -> tuple[str, int]:
        """Random pieces that leave less than two of the costliest to be filled, and how many tokens are left."""
        fresh = tokens if tokens < LONG else UNIQUE
        text, left = _drawn(self._units, self.costliest, fresh, rng)
        if fresh == tokens:
            return text, left
        runs, left = _drawn(*self._runs, left + tokens - fresh, rng)
        rest, left = _drawn(self._units, self.costliest, left, rng)
        return text + runs + rest, left

    @cached_property
    def _runs(self) -> tuple[list[Unit], int]:
        """Runs of pieces drawn beforehand, and the tokens of the costliest: a long prompt is made of them.

        Drawing 100 000 words one by one would block all other requests of the process for 40 ms.
        """
        rng = Random("runs")
        drawn = [rng.choices(self._units, k=RUN) for _ in range(RUNS)]
        runs = [("".join(text for text, _ in run), sum(cost for _, cost in run)) for run in drawn]
        return runs, max(cost for _, cost in runs)

    def filling(self, tokens: int, rng: Random) -> str:
        """Random pieces of exactly `tokens` tokens where some add up to it, else of as many as do."""
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
    """Random ones of `units` that leave less than two of the costliest to be filled, and how many tokens are left."""
    pieces: list[str] = []
    while tokens >= 2 * costliest:
        texts, costs = zip(*rng.choices(units, k=tokens // costliest - 1), strict=True)
        pieces += texts
        tokens -= sum(costs)
    return "".join(pieces), tokens


@dataclass(frozen=True)
class PromptSource:
    """`template` are the tokens of a prompt that has only its start, chat template included; `ids` those to draw from.

    `exact` says that prompts made of it were checked against the tokenizer, so that they have the tokens wanted.
    """

    kind: Kind
    template: int
    instruction: int
    words: tuple[Unit, ...]
    ids: tuple[int, ...] = ()
    exact: bool = False

    def prompt(self, tokens: int, rng: Random, shared_tokens: int = 0, shared_seed: str = "") -> str:
        """A prompt of `tokens` tokens, or of the fewest that keep prompts apart.

        The first `shared_tokens` after the start are the same for all of one `shared_seed`.
        """
        start = START + (self._shared(shared_tokens, shared_seed) if shared_tokens else "")
        rest = tokens - self.template - shared_tokens - self.instruction
        least = MIN_WORDS * self._words.cheapest
        if rest >= least:
            return start + self._text(rest, rng) + INSTRUCTION
        return start + self._text(max(least, rest + self.instruction), rng)

    def of_blocks(self, tokens: int, blocks: Sequence[str], block_tokens: int, rng: Random) -> str:
        """A prompt of `tokens` tokens made of blocks by their names, and of words of its own where they end earlier.

        The first block holds the chat template too. Prompts that begin with the same blocks begin with the same text.
        """
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
        """A later message of a conversation, which adds `tokens` tokens and what the template puts around it."""
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

    @property
    def costliest(self) -> int:
        """Tokens of the word that has most."""
        return self._words.costliest

    def _text(self, tokens: int, rng: Random) -> str:
        """Words of `tokens` tokens in all."""
        words, left = self._words.drawn(tokens, rng)
        return words + self._words.filling(left, rng)

    @cached_property
    def _block(self) -> Callable[[str, int], str]:
        """The text of a block. A session sends most of its blocks again with each request."""
        return lru_cache(KEPT_BLOCKS)(lambda name, tokens: self._text(tokens, Random(f"block {name}")))

    def _shared(self, tokens: int, seed: str) -> str:
        if (tokens, seed) not in self._made:
            self._made[tokens, seed] = self._text(tokens, Random(f"prefix {seed}"))
        return self._made[tokens, seed]

    @cached_property
    def _id_runs(self) -> list[list[int]]:
        rng = Random("runs")
        return [rng.choices(self.ids, k=RUN) for _ in range(RUNS)]

    @cached_property
    def _words(self) -> Pieces:
        return Pieces(self.words)

    @cached_property
    def _made(self) -> dict[tuple[int, str], str]:
        return {}


def assumed(kind: Kind, chat: bool) -> PromptSource:
    """Where there is no tokenizer: a token a word."""
    return PromptSource(
        kind,
        template=1 + (ASSUMED_TEMPLATE if chat else 0),
        instruction=ASSUMED_INSTRUCTION,
        words=tuple((word, 1) for word in WORDS),
    )


def with_template(source: PromptSource, prompt_tokens: int | None, known: bool) -> PromptSource:
    """The same, where the server counted `prompt_tokens` for a prompt of the start alone; it may not have counted."""
    template = source.template if prompt_tokens is None else prompt_tokens
    return replace(source, template=template, exact=source.exact and known)
