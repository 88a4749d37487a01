"""A static step with its cache: prompts are read in chunks, and a batch of sequences advances by one token.

The inputs of a step stand at the same place in every step of its shape, so that a captured step finds them there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from engines.static.step import Step
    from engines.static.step_shapes import Buckets, StepShape

RunStep = Callable[..., torch.Tensor]  # (ids, starts, last, *cache) -> logits, as `Step.forward`
NO_TOKEN = -1  # if logits are not finite


class Cache:
    """Keys and values: for each layer two tensors `[rows, length, key heads, head width]`. One sequence per row."""

    def __init__(self, step: Step, rows: int, length: int) -> None:
        shape, like = step.shape, step.weights.norm
        size = rows, length, shape.key_heads, shape.head_width
        self.tensors = [
            torch.zeros(size, dtype=like.dtype, device=like.device) for _ in range(2 * shape.layers)
        ]  # not `empty`: a masked value is multiplied by 0, and must not be NaN
        self._views: dict[tuple[int, int, int], list[torch.Tensor]] = {}

    def view(self, row: int, rows: int, length: int) -> list[torch.Tensor]:
        """Return the beginning of some rows. Kept: cutting two tensors per layer costs as much as a small step."""
        at = row, rows, length
        if at not in self._views:
            self._views[at] = [tensor[row : row + rows, :length] for tensor in self.tensors]
        return self._views[at]

    def move(self, source: int, target: int, tokens: int) -> None:
        for tensor in self.tensors:
            tensor[target, :tokens] = tensor[source, :tokens]

    def clear(self, row: int) -> None:
        torch._foreach_zero_([tensor[row] for tensor in self.tensors])

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


class Inputs:
    """Token ids, starts and last positions of a step: one buffer, and on a GPU one copy from pinned memory."""

    def __init__(self, most: int, device: torch.device) -> None:
        """`most`: maximum of a step's tokens, and of its rows."""
        on_gpu = device.type == "cuda"
        size = 3 * _aligned(most)
        self._host = torch.zeros(size, dtype=torch.long, pin_memory=on_gpu)
        self._there = torch.zeros(size, dtype=torch.long, device=device) if on_gpu else self._host
        self._copied: Any = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]

    def fill(self, ids: Sequence[Sequence[int]], starts: Sequence[int], last: Sequence[int]) -> list[torch.Tensor]:
        """Copy the inputs to the device: `[rows, tokens]`, `[rows]` and `[rows]`."""
        if self._copied is not None:
            self._copied.synchronize()  # the previous step may not have copied its inputs yet
        rows, tokens = len(ids), len(ids[0])
        values = ([id for row in ids for id in row], starts, last)
        places = (0, _aligned(rows * tokens), _aligned(rows * tokens) + _aligned(rows))
        for at, part in zip(places, values, strict=True):
            self._host[at : at + len(part)] = torch.tensor(part)
        if self._copied is not None:
            end = places[-1] + rows
            self._there[:end].copy_(self._host[:end], non_blocking=True)
            self._copied.record()
        shapes = ((rows, tokens), (rows,), (rows,))
        parts = zip(places, values, shapes, strict=True)
        return [self._there[at : at + len(part)].view(shape) for at, part, shape in parts]


def _aligned(numbers: int) -> int:
    """Round up to 128 bytes: kernels are compiled for inputs that begin there."""
    return -(-numbers // 16) * 16


class Decoder:
    """`prepare` makes a callable of a step in one shape; it gets inputs of that shape as an example."""

    def __init__(
        self, step: Step, buckets: Buckets, prepare: Callable[[Step, StepShape, tuple[torch.Tensor, ...]], RunStep]
    ) -> None:
        self.buckets = buckets
        self.cache = Cache(step, buckets.batches[-1], buckets.lengths[-1])
        shapes = list(dict.fromkeys(buckets.all()))
        self._inputs = Inputs(max(shape.batch * shape.tokens for shape in shapes), step.weights.norm.device)
        self._prepared: dict[StepShape, RunStep] = {}
        with torch.no_grad():
            for shape in shapes:
                zeros = [0] * shape.batch
                example = self._inputs.fill([[0] * shape.tokens] * shape.batch, zeros, zeros)
                cache = self.cache.view(0, shape.batch, shape.length)
                self._prepared[shape] = prepare(step, shape, (*example, *cache))

    @torch.no_grad()
    def read(self, row: int, pieces: Sequence[Sequence[int]], starts: Sequence[int]) -> torch.Tensor:
        """Read up to a chunk of the prompts in consecutive rows from `row` on, of which `starts` tokens (multiples of
        the chunk) are in the cache.

        Returns the logits `[rows, vocabulary]` after the last token of each row that one step reads.
        """
        shape = self.buckets.reading(len(pieces), max(starts) + self.buckets.chunk)
        pieces, starts = pieces[: shape.batch], starts[: shape.batch]
        padded = [[*piece, *[0] * (shape.tokens - len(piece))] for piece in pieces]
        inputs = self._inputs.fill(padded, starts, [len(piece) - 1 for piece in pieces])
        return self._prepared[shape](*inputs, *self.cache.view(row, shape.batch, shape.length))

    @torch.no_grad()
    def advance(self, tokens: Sequence[int], starts: Sequence[int]) -> torch.Tensor:
        """Return logits `[rows, vocabulary]` after one more token in each of the first rows, which have `starts` in the
        cache.

        The key and value of each token are written behind its start, even for a row whose logits are not needed.
        """
        rows = len(tokens)
        shape = self.buckets.decoding(rows, max(starts) + 1)
        unused = [0] * (shape.batch - rows)
        ids = [[token] for token in (*tokens, *unused)]
        inputs = self._inputs.fill(ids, [*starts, *unused], [0] * shape.batch)
        return self._prepared[shape](*inputs, *self.cache.view(0, shape.batch, shape.length))[:rows]

    @staticmethod
    def likeliest(logits: torch.Tensor) -> list[int]:
        """Return the likeliest token of each row, or `NO_TOKEN`, in one copy to the host. The largest logit of a row
        reveals a NaN, which counts as the largest of all."""
        values, ids = logits.max(-1)
        tokens: list[int] = torch.where(values.abs() < torch.inf, ids, NO_TOKEN).tolist()
        return tokens
