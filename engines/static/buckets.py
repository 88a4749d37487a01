"""The few shapes ("buckets") in which a static step exists: batches of some sizes, contexts of some lengths.

Each is prepared while the engine loads (traced, compiled, captured), and every step runs in the smallest that is large
enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepShape:
    batch: int
    tokens: int  # of each row
    length: int  # of the part of the cache that attention reads


@dataclass(frozen=True, slots=True)
class Buckets:
    """`batches` and `lengths` in rising order; a length is a multiple of `chunk`, the tokens of a prompt's piece."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    chunk: int

    @classmethod
    def of(cls, batches: Sequence[int], lengths: Sequence[int], chunk: int, context_length: int) -> Buckets:
        """No longer than the model's context, which takes the place of lengths beyond it."""
        limited = {-(-min(length, context_length) // chunk) * chunk for length in lengths}
        return cls(tuple(sorted(set(batches))), tuple(sorted(limited)), chunk)

    @property
    def cached_tokens(self) -> int:
        """That the cache has places for: a row of the longest length for each sequence of the largest batch."""
        return self.batches[-1] * self.lengths[-1]

    def decoding(self, sequences: int, tokens: int) -> StepShape:
        """The shape for so many sequences, the longest of which has so many tokens with its next one."""
        return StepShape(_least(self.batches, sequences), 1, _least(self.lengths, tokens))

    def reading(self, tokens: int) -> StepShape:
        """The shape for a chunk of a prompt that ends with so many tokens in the cache, padding included."""
        return StepShape(1, self.chunk, _least(self.lengths, tokens))

    def all(self) -> Iterator[StepShape]:
        for length in self.lengths:
            yield StepShape(1, self.chunk, length)
            yield from (StepShape(batch, 1, length) for batch in self.batches)


def _least(choices: tuple[int, ...], wanted: int) -> int:
    return next(choice for choice in choices if choice >= wanted)
