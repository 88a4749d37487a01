"""Prompts of an exact number of tokens, all different, so that no prefix cache helps.

They are text whose ids are the tokenizer's own, because some engines take text and check it against the ids.
"""

from __future__ import annotations

from random import Random
from typing import Any

from engines.contract.base import Model
from engines.text.detokenize import tokenizer_of

WORDS = (
    *("time", "people", "way", "water", "day", "part", "place", "year", "work", "back", "name", "sentence", "man"),
    *("line", "land", "home", "hand", "high", "end", "house", "point", "world", "state", "story", "school", "night"),
    *("city", "tree", "food", "earth", "eye", "head", "page", "letter", "mother", "answer", "study", "light", "sun"),
)
MADE_UP_IDS = 1000  # for an engine without a model


class Prompts:
    """Drawn from one seed: every engine of a round gets the same ones."""

    def __init__(self, model: Model | None, seed: str) -> None:
        self._random = Random(seed)
        self._tokenizer: Any = None
        if model is not None:
            self._tokenizer = tokenizer_of(model.folder)
            self._tokenizer.no_truncation()
            self._start = len(self._encode(""))
            self._words = [word for word in WORDS if len(self._encode(f" {word}")) == self._start + 1]
            if not self._words:
                raise ValueError(f"the tokenizer of {model.name} has no single token for any of the words in prompts.")

    def of(self, tokens: int) -> tuple[str, tuple[int, ...]]:
        """Text and ids. Raises `ValueError` where the tokenizer cannot make this length."""
        if self._tokenizer is None:
            return "", tuple(self._random.randrange(MADE_UP_IDS) for _ in range(tokens))
        words = self._random.choices(self._words, k=max(tokens - self._start, 0))
        text = "".join(f" {word}" for word in words)
        ids = self._encode(text)
        if len(ids) != tokens:
            raise ValueError(f"this tokenizer makes {len(ids)} tokens of a prompt that should have {tokens}.")
        return text, ids

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text).ids)
