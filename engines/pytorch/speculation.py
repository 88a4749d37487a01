"""Assisted generation: a cheap guess of the next tokens, which the model checks in one forward pass.

The model samples at every guessed position and keeps what it sampled; the guess only decides how many positions one
pass yields. So the answer is that of the model alone, whatever was guessed (Leviathan et al. 2023, for a guess without
randomness).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from engines.contract.errors import EngineUnavailable

if TYPE_CHECKING:
    import torch

LONGEST_MATCH = 3  # tokens at the end of the text that are looked up earlier in it


class Guesser(Protocol):
    """One per request."""

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow `ids`, the prompt and what has been generated."""
        ...


class NgramGuesser:
    """What followed the last words when they stood in the text before (Saxena 2023, prompt lookup)."""

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        for size in range(min(LONGEST_MATCH, len(ids) - 1), 0, -1):
            end = list(ids[-size:])
            for at in range(len(ids) - size - 1, -1, -1):
                if list(ids[at : at + size]) == end:
                    return list(ids[at + size : at + size + most])
        return []


class DraftGuesser:
    """The greedy answer of a smaller model, which keeps a cache of its own."""

    def __init__(self, net: Any, device: torch.device) -> None:
        self._net, self._device = net, device
        self._cache: Any = None
        self._cached: list[int] = []

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        import torch

        same = 0  # tokens at the beginning that are in the cache: of its last guess the model may have rejected some
        while same < min(len(self._cached), len(ids) - 1) and self._cached[same] == ids[same]:
            same += 1
        if self._cache is not None:
            self._cache.crop(same - len(self._cached))
        self._cached, new, guessed = list(ids[:same]), list(ids[same:]), list[int]()
        while len(guessed) < most:
            out = self._net(
                input_ids=torch.tensor([new], device=self._device), past_key_values=self._cache, use_cache=True
            )
            self._cache = out.past_key_values
            self._cached += new
            new = [int(out.logits[0, -1].argmax())]
            guessed += new
        return guessed


def check_draft(net: Any, draft: Any) -> None:
    """Raises `EngineUnavailable` where the two vocabularies differ."""
    ours, theirs = net.config.vocab_size, draft.config.vocab_size
    if ours != theirs:
        raise EngineUnavailable(
            f"the draft model has a vocabulary of {theirs} tokens and the model one of {ours}: take a draft of the "
            "same family."
        )
