"""The number of tokens of the pieces of prompts, and a check that whole prompts have their sum.

Between two marks, a piece has the same tokens as between other pieces, so one text shows the tokens of many pieces. If
the sum is wrong for whole prompts, the source is not `length_measured`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import fmean

from loadtests.harness.workload.prompt_source import PromptSource, assumed
from loadtests.harness.workload.prompt_words import INSTRUCTION, START, WORDS, Kind, Unit

Count = Callable[[str], int | None]
"""Returns the number of tokens of a prompt, chat template included; `None` if it is not known."""
Encode = Callable[[str], Sequence[int]]
"""Returns the token ids of a text, without a template; none if they are not known."""

MARK = " |"
MAX_MARKED = 2000  # characters of pieces in one text: a server may refuse texts that are longer than its context
MIN_WORDS = 40
CHECKED_LENGTHS = (24, 60, 250, 700)


def measured(count: Count, encode: Encode, kind: Kind) -> PromptSource | None:
    """Return a source of prompts; `None` if tokens cannot be counted."""
    template = count(START)
    if template is None:
        return None
    words = list(_costs(encode))
    ids = sorted(set(encode("".join(WORDS)))) if kind == "ids" else []
    if len(words) < MIN_WORDS:
        return replace(assumed(kind, chat=False), template=template, ids=tuple(ids))
    single = [unit for unit in words if unit[1] == 1]
    instruction = (count(START + WORDS[0] + INSTRUCTION) or 0) - (count(START + WORDS[0]) or 0)
    source = PromptSource(kind, template, instruction, tuple(single if len(single) >= MIN_WORDS else words), tuple(ids))
    rng = Random("check")
    factor = round(fmean(cost for _, cost in source.words) + 0.5)
    lengths = [length * factor + template for length in CHECKED_LENGTHS]
    return replace(source, length_measured=all(count(source.prompt(tokens, rng)) == tokens for tokens in lengths))


def _costs(encode: Encode) -> Iterator[Unit]:
    """Yield the words with their tokens, up to the first words whose tokens the tokenizer does not show."""
    separator = encode(START + 2 * MARK)[len(encode(START + MARK)) :]
    size = len(separator)
    for group in _groups(WORDS):
        ids = encode(START + MARK + "".join(word + MARK for word in group))
        marks = [at for at in range(len(ids) - size + 1) if size and ids[at : at + size] == separator]
        if len(marks) != len(group) + 1:
            return
        yield from ((piece, end - start - size) for piece, (start, end) in zip(group, pairwise(marks), strict=True))


def _groups(pieces: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for piece in pieces:
        if group and sum(map(len, group)) + len(piece) > MAX_MARKED:
            yield group
            group = []
        group.append(piece)
    yield group
