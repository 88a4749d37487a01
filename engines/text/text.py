"""From token ids to text that may be shown: never half a character, never a stop string.

Shared by the engines that get token ids from their library. Each object serves one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTEXT = 8  # prompt tokens that decide whether the first word begins with a space
LONGEST_CHARACTER = 4  # bytes of UTF-8, and so the most tokens that one character can take


class Detokeniser:
    """Turns ids into text one by one, holding back what is not yet a whole character."""

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._held: list[int] = []
        self._begin(prompt_token_ids[-CONTEXT:])

    def _begin(self, context: Sequence[int]) -> None:
        from tokenizers.decoders import DecodeStream

        self._stream = DecodeStream(ids=list(context), skip_special_tokens=True)

    def add(self, id: int) -> str:
        """The text that became ready; empty while a character is incomplete, and for special tokens."""
        text: str | None = self._stream.step(self._tokenizer, id)
        if text is not None:
            self._held.clear()
            return text
        self._held.append(id)
        if len(self._held) < LONGEST_CHARACTER:
            return ""
        # So many tokens and still no character: bytes that will never be one, or special tokens. Begin afresh.
        text = self.rest()
        self._begin([])
        return text

    def rest(self) -> str:
        """What is still held when the answer ends; an incomplete character becomes U+FFFD."""
        text: str = self._tokenizer.decode(self._held, skip_special_tokens=True)
        self._held.clear()
        return text


class StopStrings:
    """Lets text through up to the first stop string, also where that comes in pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.met = False

    def add(self, text: str) -> str:
        """The part that may be shown now. Once `met`, nothing more comes."""
        if not self._stops or self.met:
            return "" if self.met else text
        text = self._held + text
        if cuts := [at for stop in self._stops if (at := text.find(stop)) >= 0]:
            self.met, self._held = True, ""
            return text[: min(cuts)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """What was held back for a stop string that never came."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters of `text` may be the beginning of `stop`."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
