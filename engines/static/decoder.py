"""A static step with its cache: prompts are read in chunks, and a batch of sequences advances by one token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from engines.static.buckets import Buckets, StepShape
    from engines.static.step import Step

RunStep = Callable[..., torch.Tensor]  # (ids, starts, last, *cache) -> logits, as `Step.forward`


class Cache:
    """Keys and values: for each layer two tensors `[rows, length, key heads, head width]`. One sequence per row."""

    def __init__(self, step: Step, rows: int, length: int) -> None:
        shape, like = step.shape, step.weights.norm
        size = rows, length, shape.key_heads, shape.head_width
        self.tensors = [
            torch.zeros(size, dtype=like.dtype, device=like.device) for _ in range(2 * shape.layers)
        ]  # not `empty`: masked values count as 0 × what is there, and that must not be NaN
        self._views: dict[tuple[int, int, int], list[torch.Tensor]] = {}

    def view(self, row: int, rows: int, length: int) -> list[torch.Tensor]:
        """The beginning of so many rows. Kept: cutting two tensors per layer costs as much as a small step."""
        at = row, rows, length
        if at not in self._views:
            self._views[at] = [tensor[row : row + rows, :length] for tensor in self.tensors]
        return self._views[at]

    def move(self, source: int, target: int, tokens: int) -> None:
        for tensor in self.tensors:
            tensor[target, :tokens] = tensor[source, :tokens]

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


class Decoder:
    """`prepare` makes a callable of a step in one shape; it gets inputs of that shape as an example."""

    def __init__(
        self, step: Step, buckets: Buckets, prepare: Callable[[Step, StepShape, tuple[torch.Tensor, ...]], RunStep]
    ) -> None:
        self.buckets = buckets
        self.cache = Cache(step, buckets.batches[-1], buckets.lengths[-1])
        self._device = step.weights.norm.device
        self._prepared: dict[StepShape, RunStep] = {}
        with torch.no_grad():
            for shape in dict.fromkeys(buckets.all()):
                example = self._inputs([[0] * shape.tokens] * shape.batch, [0] * shape.batch, 0)
                cache = self.cache.view(0, shape.batch, shape.length)
                self._prepared[shape] = prepare(step, shape, (*example, *cache))

    @torch.no_grad()
    def read(self, row: int, tokens: Sequence[int], start: int) -> torch.Tensor:
        """Read up to a chunk of a prompt, of which `start` tokens (a multiple of the chunk) are in the cache.

        Returns the logits `[vocabulary]` after its last token.
        """
        shape = self.buckets.reading(start + self.buckets.chunk)
        padded = [*tokens, *[0] * (shape.tokens - len(tokens))]
        inputs = self._inputs([padded], [start], len(tokens) - 1)
        return self._prepared[shape](*inputs, *self.cache.view(row, 1, shape.length))[0]

    @torch.no_grad()
    def advance(self, tokens: Sequence[int], starts: Sequence[int]) -> torch.Tensor:
        """Logits `[rows, vocabulary]` after one more token in each of the first rows, which have `starts` in the cache.

        The key and value of each token are written behind its start, also for a row whose logits are of no interest.
        """
        rows = len(tokens)
        shape = self.buckets.decoding(rows, max(starts) + 1)
        unused = [0] * (shape.batch - rows)
        inputs = self._inputs([[token] for token in (*tokens, *unused)], [*starts, *unused], 0)
        return self._prepared[shape](*inputs, *self.cache.view(0, shape.batch, shape.length))[:rows]

    def _inputs(self, ids: Sequence[Sequence[int]], starts: Sequence[int], last: int) -> tuple[torch.Tensor, ...]:
        numbers = ids, starts, [last] * len(starts)
        return tuple(torch.tensor(one, device=self._device) for one in numbers)
