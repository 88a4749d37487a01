"""Token ids for lm.rs, which accepts only text.

lm.rs maps each character of a message to the token whose text is that character, then merges neighbours whose joined
text is a token with a score. So the `tokenizer.bin` written here gives each token id a private character, and a message
made of these characters is read as exactly the ids that every other engine receives. Its output is translated back.

lm.rs also inserts its own chat template, as fixed ids around the message and around today's date, which it writes as
text. The tokens of today's date therefore keep their real text in the file, with the merges that lead to them.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from engines.models.random_model import AFTER_DATE, BEFORE_ASSISTANT, BEFORE_DATE, BEFORE_USER, END_OF_TURN

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BEFORE_MESSAGE = (*AFTER_DATE, *BEFORE_USER)
AFTER_MESSAGE = (END_OF_TURN, *BEFORE_ASSISTANT)
HIGHEST_ID = max(*BEFORE_DATE, *BEFORE_MESSAGE, *AFTER_MESSAGE)

FILE_HEADER = struct.Struct("<4I")  # tokens, longest text in bytes, beginning of text, end of text
TOKEN_HEADER = struct.Struct("<fI")  # score, bytes of text
NOT_MERGED = -1e10  # lm.rs merges only above this score
PRIVATE = 0x10000  # the first of the characters that stand for token ids
NEVER = 0xFFFFFFFF  # as the end-of-text id: no token has it, so lm.rs does not stop


@dataclass(frozen=True, slots=True)
class Alphabet:
    """The text that stands for each token id in lm.rs, on one day."""

    size: int  # of the model's vocabulary
    date: tuple[int, ...]  # today's date as the model's tokenizer reads it
    pieces: dict[str, int]  # the texts of these tokens
    steps: tuple[str, ...]  # characters and prefixes of `pieces` on the way to them; their ids follow the vocabulary

    @classmethod
    def for_day(cls, tokenizer: Tokenizer, size: int, day: datetime.date) -> Alphabet:
        encoded = tokenizer.encode(day.strftime("%d %b %Y"), add_special_tokens=False)
        pieces = {str(tokenizer.decode([id])): id for id in encoded.ids}
        steps = {piece[:end] for piece in pieces for end in range(1, len(piece))} | {c for text in pieces for c in text}
        return cls(size, tuple(encoded.ids), pieces, tuple(sorted(steps - pieces.keys())))

    def character(self, id: int) -> str:
        return next((text for text, piece in self.pieces.items() if piece == id), chr(PRIVATE + id))

    def id(self, text: str) -> int:
        """Return the token that lm.rs names by this text, as `character` gives it."""
        return self.pieces[text] if text in self.pieces else ord(text) - PRIVATE

    def score(self, text: str) -> float:
        """Score longer texts higher, to complete a merge that has begun: "2", "20", "202" before another "20"."""
        return float(len(text)) if len(text) > 1 else 2 * NOT_MERGED

    def write(self, path: Path, end: int) -> None:
        """Write a `tokenizer.bin`; with `end=NEVER` lm.rs continues after the end of text."""
        texts = [self.character(id).encode() for id in range(self.size)] + [step.encode() for step in self.steps]
        with path.open("wb") as file:
            file.write(FILE_HEADER.pack(len(texts), max(map(len, texts)), 0, end))
            for text in texts:
                score = self.score(text.decode())
                file.write(TOKEN_HEADER.pack(score, len(text)) + text)

    def read(self, text: str) -> list[int]:
        """Return the ids that lm.rs makes of a text of these characters, in its own way: the best merge first,
        leftmost."""
        mergeable = {*self.pieces, *self.steps}
        parts = list(text)
        while True:
            joined = [left + right for left, right in pairwise(parts)]
            scores = [self.score(text) if text in mergeable else NOT_MERGED for text in joined]
            if not scores or (best := max(scores)) <= NOT_MERGED:
                return [self.id(part) if part in self.pieces or ord(part[0]) >= PRIVATE else -1 for part in parts]
            at = scores.index(best)
            parts[at : at + 2] = [joined[at]]

    def message(self, ids: Sequence[int]) -> str | None:
        """Return text that lm.rs reads as these ids; `None` if tokens of the date stand side by side and would
        merge."""
        text = "".join(map(self.character, ids))
        if text.strip() != text:  # lm.rs trims messages
            return None
        for mergeable, run in groupby(ids, self.date.__contains__):
            if mergeable and self.read("".join(map(self.character, neighbours := list(run)))) != neighbours:
                return None
        return text

    def inside_template(self, ids: Sequence[int]) -> Sequence[int] | None:
        """Return the ids without those that lm.rs adds; `None` if the prompt is not in its chat template."""
        before = (*BEFORE_DATE, *self.date, *BEFORE_MESSAGE)
        inside = ids[len(before) : len(ids) - len(AFTER_MESSAGE)]
        return inside if (*before, *inside, *AFTER_MESSAGE) == tuple(ids) else None

    @property
    def template_tokens(self) -> int:
        return len(BEFORE_DATE) + len(self.date) + len(BEFORE_MESSAGE) + len(AFTER_MESSAGE)
