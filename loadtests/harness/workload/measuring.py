"""What the pieces of prompts cost in the served model's tokens, and a check that whole prompts add up.

With most tokenizers every common word is one token, which a single count of all words shows; what is not gets counted
piece by piece, up to a limit. A tokenizer for which pieces do not add up is noticed: prompts are then not `exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from loadtests.harness.workload.prompt_source import PromptSource, assumed
from loadtests.harness.workload.prompt_words import INSTRUCTION, START, WORDS, Kind, Unit

Count = Callable[[str], int | None]
"""How many tokens a prompt of this text has, chat template included; `None` where that is not known."""

MOST_COUNTS = 64  # for the words, by halving and again one by one
MOST_PER_WORD = 1.1  # tokens, on average; with more, halving finds too few
ENOUGH_WORDS = 40
CHECKED_LENGTHS = (24, 60, 250, 700)


def measured(count: Count, kind: Kind, ids: Sequence[int]) -> PromptSource | None:
    """`None` where nothing can be counted. `ids` are token ids that the tokenizer has given to words."""
    template = count(START)
    if template is None:
        return None

    def cost(units: Sequence[str]) -> int:
        return (count(START + "".join(units)) or 0) - template

    words = _costs(cost)
    if len(words) < ENOUGH_WORDS:
        return replace(assumed(kind, chat=False), template=template, ids=tuple(ids))
    instruction = cost([WORDS[0], INSTRUCTION]) - cost([WORDS[0]])
    source = PromptSource(kind, template, instruction, tuple(words), tuple(ids))
    rng = Random("check")
    lengths = [length * source.costliest + template for length in CHECKED_LENGTHS]
    return replace(source, exact=all(count(source.prompt(tokens, rng)) == tokens for tokens in lengths))


def _costs(cost: Callable[[Sequence[str]], int]) -> list[Unit]:
    """Words of one token, found by halving what has more; where those are too few, the costs of some, one by one."""
    single: list[Unit] = []
    left, counts = [list(WORDS)] if cost(WORDS) <= MOST_PER_WORD * len(WORDS) else [], 1
    while left and counts < MOST_COUNTS:
        group = left.pop()
        counts += 1
        if cost(group) == len(group):
            single += ((word, 1) for word in group)
        elif len(group) > 1:
            left += (group[: len(group) // 2], group[len(group) // 2 :])
    if len(single) >= ENOUGH_WORDS:
        return single
    some = Random("words").sample(WORDS, MOST_COUNTS)
    return [(word, tokens) for word in some if (tokens := cost([word])) > 0]
