"""The number of tokens of the pieces of prompts, and a check that whole prompts have the sum.

With most tokenizers every common word is one token, which a single count of all words shows; otherwise pieces are
counted separately, up to a limit. If the sum is wrong for whole prompts, prompts are not `exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from loadtests.harness.workload.prompt_source import PromptSource, assumed
from loadtests.harness.workload.prompt_words import INSTRUCTION, START, WORDS, Kind, Unit

Count = Callable[[str], int | None]
"""Returns the number of tokens of a prompt, chat template included; `None` if it is not known."""

MAX_COUNTS = 64  # of words: by halving, and one by one
MAX_PER_WORD = 1.1  # tokens on average, beyond which halving finds too few words
MIN_WORDS = 40
CHECKED_LENGTHS = (24, 60, 250, 700)


def measured(count: Count, kind: Kind, ids: Sequence[int]) -> PromptSource | None:
    """Return a source of prompts with the token ids `ids`; `None` if tokens cannot be counted."""
    template = count(START)
    if template is None:
        return None

    def cost(units: Sequence[str]) -> int:
        return (count(START + "".join(units)) or 0) - template

    words = _costs(cost)
    if len(words) < MIN_WORDS:
        return replace(assumed(kind, chat=False), template=template, ids=tuple(ids))
    instruction = cost([WORDS[0], INSTRUCTION]) - cost([WORDS[0]])
    source = PromptSource(kind, template, instruction, tuple(words), tuple(ids))
    rng = Random("check")
    lengths = [length * source.costliest + template for length in CHECKED_LENGTHS]
    return replace(source, exact=all(count(source.prompt(tokens, rng)) == tokens for tokens in lengths))


def _costs(cost: Callable[[Sequence[str]], int]) -> list[Unit]:
    """Find words of one token by halving groups with more; if they are too few, count some words one by one."""
    single: list[Unit] = []
    left, counts = [list(WORDS)] if cost(WORDS) <= MAX_PER_WORD * len(WORDS) else [], 1
    while left and counts < MAX_COUNTS:
        group = left.pop()
        counts += 1
        if cost(group) == len(group):
            single += ((word, 1) for word in group)
        elif len(group) > 1:
            left += (group[: len(group) // 2], group[len(group) // 2 :])
    if len(single) >= MIN_WORDS:
        return single
    some = Random("words").sample(WORDS, MAX_COUNTS)
    return [(word, tokens) for word in some if (tokens := cost([word])) > 0]
