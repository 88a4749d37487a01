"""Convert token ids to text, without incomplete characters: for engines whose library returns token ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTEXT = 8  # prompt tokens that decide whether the first word begins with a space
REPLACEMENT = "\ufffd"  # the result of decoding an incomplete character
MAX_CHARACTER_BYTES = 4  # bytes of UTF-8, and so the maximum of a character's tokens


def tokenizer_of(folder: Path) -> Tokenizer:
    """Load the tokenizer of a model's folder."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def token_text(tokenizer: Tokenizer, id: int) -> tuple[str, tuple[int, ...] | None]:
    """Return the text of one token, special ones included, and its bytes if it is a part of a character."""
    text = str(tokenizer.decode([id], skip_special_tokens=False))
    if REPLACEMENT not in text:
        return text, None
    token = str(tokenizer.id_to_token(id))
    if match := re.fullmatch(r"<0x([0-9A-F]{2})>", token):  # SentencePiece
        return text, (int(match[1], 16),)
    alphabet = byte_alphabet()
    return text, tuple(alphabet[letter] for letter in token) if all(letter in alphabet for letter in token) else None


@cache
def byte_alphabet() -> dict[str, int]:
    """Return the byte that each character of byte-level BPE stands for: itself if printable, else one from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(unprintable)}


class Detokenizer:
    """Turn token ids into text one by one, holding back incomplete characters. One per request."""

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._held: list[int] = []
        context = list(prompt_token_ids[-CONTEXT:])
        whole = self._without_incomplete_character(context)
        self._context = whole
        self._begin()
        for id in context[len(whole) :]:  # the answer may complete the character
            self._stream.step(tokenizer, id)

    def _without_incomplete_character(self, ids: list[int]) -> list[int]:
        """Cut an incomplete character off: with it the decoder would keep no context, and repeat the prompt's text."""
        for end in range(len(ids), max(len(ids) - MAX_CHARACTER_BYTES, -1), -1):
            if not self._tokenizer.decode(ids[:end], skip_special_tokens=True).endswith(REPLACEMENT):
                return ids[:end]
        return ids

    def _begin(self) -> None:
        from tokenizers.decoders import DecodeStream

        self._stream = DecodeStream(ids=self._context, skip_special_tokens=True)

    def add(self, id: int) -> str:
        """Return the text that became ready; empty while a character is incomplete, and for special tokens."""
        text: str | None
        try:
            text = self._stream.step(self._tokenizer, id)
        except Exception:  # SentencePiece decodes a line break before an invalid byte as invalid, too
            text = self._tokenizer.decode([*self._held, id], skip_special_tokens=True)
            self._context = [id]
            self._begin()
            self._held.clear()
            return text
        if text is not None:
            self._context = [*self._held, id]
            self._held.clear()
            return text
        if not self._held and not self._tokenizer.decode([id], skip_special_tokens=True):
            self._begin()  # without the special token, which is no part of a character
            return ""
        self._held.append(id)
        if len(self._held) < MAX_CHARACTER_BYTES:
            return ""
        # This many tokens without a character are invalid bytes: start again from here.
        text = self.rest()
        self._context = []
        self._begin()
        return text

    def rest(self) -> str:
        """Return the text that is still held back when the answer ends; an incomplete character becomes U+FFFD."""
        text: str = self._tokenizer.decode(self._held, skip_special_tokens=True)
        self._held.clear()
        return text
