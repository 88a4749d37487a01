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
    tokens: int  # per row
    length: int  # of the part of the cache that attention reads


@dataclass(frozen=True, slots=True)
class Buckets:
    """All fields are in ascending order. A length is a multiple of `chunk`, the tokens of a prompt's piece; `prompts`
    are the numbers of prompts of which a piece is read in one step, 1 included."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    chunk: int
    prompts: tuple[int, ...] = (1,)

    @classmethod
    def within(
        cls, batches: Sequence[int], lengths: Sequence[int], chunk: int, context_length: int, prompts: int = 1
    ) -> Buckets:
        """Limit the lengths to the model's context. Up to `prompts` are read in one step, in powers of two."""
        limited = {-(-min(length, context_length) // chunk) * chunk for length in lengths}
        most = min(prompts, max(batches))
        doubled = tuple(1 << power for power in range(most.bit_length()))
        return cls(tuple(sorted(set(batches))), tuple(sorted(limited)), chunk, doubled)

    @property
    def cached_tokens(self) -> int:
        """Count the tokens that the cache can hold: the longest length for each sequence of the largest batch."""
        return self.batches[-1] * self.lengths[-1]

    def decoding(self, sequences: int, tokens: int) -> StepShape:
        """Return the shape for a batch whose longest sequence has `tokens` with its next one."""
        return StepShape(_least(self.batches, sequences), 1, _least(self.lengths, tokens))

    def reading(self, prompts: int, tokens: int) -> StepShape:
        """Return the shape for a chunk of each of some prompts, the longest of which ends with `tokens` in the cache,
        padding included. It may have fewer rows than `prompts`, never more: padding would write into the next rows."""
        rows = next(choice for choice in reversed(self.prompts) if choice <= prompts)
        return StepShape(rows, self.chunk, _least(self.lengths, tokens))

    def all(self) -> Iterator[StepShape]:
        """Yield the largest first: the smaller ones then share the memory of their captures."""
        for length in reversed(self.lengths):
            yield from (StepShape(rows, self.chunk, length) for rows in reversed(self.prompts))
            yield from (StepShape(batch, 1, length) for batch in reversed(self.batches))


def _least(choices: tuple[int, ...], least: int) -> int:
    return next(choice for choice in choices if choice >= least)
