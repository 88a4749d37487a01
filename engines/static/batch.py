"""Continuous batching on a static decoder: requests join and leave between two steps.

A chunk of one prompt (on a GPU, of several) is read, then every sequence whose prompt is complete advances by one
token, and so on. So a long prompt delays the running answers by one chunk at a time. The rows in use are always the
first ones: when a sequence leaves, the last one's keys and values move into its row.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engines.contract.base import Chunk, GenerateRequest
from engines.contract.errors import EngineError
from engines.contract.stepping import Generated, ends
from engines.text.sampler import OVERFLOWED, SampledAnswer

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

    from engines.static.decoder import Decoder


class Sequence:
    """A request and how many of its tokens are computed."""

    def __init__(
        self,
        request: GenerateRequest,
        tokenizer: Tokenizer,
        end_ids: frozenset[int],
        device: torch.device,
        context_length: int,
    ) -> None:
        """Raise `BadRequest` if the prompt leaves no room for an answer."""
        self.request = request
        self.cancelled = False
        self.cached = 0  # tokens whose keys and values are in the cache
        self.next_token: int | None = None  # generated, but not yet in the cache; none while the prompt is being read
        self._answer = SampledAnswer(request, tokenizer, end_ids, request.token_limit(context_length), device)

    def chunk(self, logits: torch.Tensor, likeliest: int) -> Chunk | EngineError:
        """Sample the next token from these logits, and return its chunk of the answer; an error if they are not finite.

        `likeliest` is the result of `Decoder.likeliest` for them.
        """
        if likeliest < 0:
            self.next_token = None
            return EngineError(OVERFLOWED)
        self.next_token, chunk = self._answer.next(logits, likeliest)
        return chunk


class Batch:
    """The running sequences, one per row of the decoder's cache, and those that wait for a row."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._rows: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    @property
    def sequences(self) -> list[Sequence]:
        return [*self._rows, *self._waiting]

    @property
    def cache_usage(self) -> float:
        """Return the share of the cache's places that hold a token, 0 to 1."""
        return sum(sequence.cached for sequence in self._rows) / self.decoder.buckets.cached_tokens

    def step(self) -> Iterator[Generated]:
        yield self.admit()
        yield self.read()
        yield self.advance()

    def admit(self) -> Generated:
        """Release cancelled sequences, and give free rows to waiting ones."""
        left = [sequence for sequence in self.sequences if sequence.cancelled]
        for sequence in left:
            self._remove(sequence)
        while self._waiting and len(self._rows) < self.decoder.buckets.batches[-1]:
            self._rows.append(self._waiting.popleft())
        return [(sequence, None) for sequence in left]

    def read(self) -> Generated:
        """Read a chunk of each of the first adjacent prompts that are incomplete. A prompt that this completes gets its
        first token."""
        row = next((row for row, sequence in enumerate(self._rows) if sequence.next_token is None), None)
        if row is None:
            return []
        chunk = self.decoder.buckets.chunk
        reading = list(itertools.takewhile(lambda sequence: sequence.next_token is None, self._rows[row:]))
        pieces = [sequence.request.prompt_token_ids[sequence.cached : sequence.cached + chunk] for sequence in reading]
        logits = self.decoder.read(row, pieces, [sequence.cached for sequence in reading])
        read = list(zip(reading, pieces, logits, strict=False))  # a step may read fewer
        for sequence, piece, _ in read:
            sequence.cached += len(piece)
        ended = [
            at for at, (sequence, *_) in enumerate(read) if sequence.cached == len(sequence.request.prompt_token_ids)
        ]
        best = self.decoder.likeliest(logits) if ended else []
        return self._without_finished([(read[at][0], read[at][0].chunk(read[at][2], best[at])) for at in ended])

    def advance(self) -> Generated:
        """Generate one token for each sequence whose prompt is read."""
        running = [(row, sequence) for row, sequence in enumerate(self._rows) if sequence.next_token is not None]
        if not running:
            return []
        tokens = [sequence.next_token or 0 for sequence in self._rows]
        logits = self.decoder.advance(tokens, [sequence.cached for sequence in self._rows])
        best = self.decoder.likeliest(logits)
        generated: Generated = []
        for row, sequence in running:
            sequence.cached += 1
            generated.append((sequence, sequence.chunk(logits[row], best[row])))
        return self._without_finished(generated)

    def _without_finished(self, generated: Generated) -> Generated:
        for sequence, chunk in generated:
            if ends(chunk):
                self._remove(sequence)
        return generated

    def _remove(self, sequence: Sequence) -> None:
        if sequence in self._waiting:
            self._waiting.remove(sequence)
            return
        row, last = self._rows.index(sequence), len(self._rows) - 1
        self._leave(row)
        if row != last:
            self.decoder.cache.move(last, row, self._rows[last].cached)
            self._leave(last)
            self._rows[row] = self._rows[last]
        self._rows.pop()

    def _leave(self, row: int) -> None:
        """Clear keys and values from which no token was sampled yet: they may be NaN, and would count as 0 × NaN in the
        row's next sequence, although they are masked."""
        sequence = self._rows[row]
        if sequence.next_token is None and sequence.cached:
            self.decoder.cache.clear(row)
