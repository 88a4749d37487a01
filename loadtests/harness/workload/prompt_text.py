"""A text of the user's as pieces for prompts.

It is cut at single spaces between words, where tokenizers cut, too. Other white space stays inside a piece: many
tokenizers join punctuation with the line break after it.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from enginebench.records.formatting import counted
from enginebench.settings.schema import UserMistake
from loadtests.harness.workload.rows import opened

CUT = re.compile(r"(?<=\S) (?=\S)")
MAX_CHARACTERS = 2**20  # of a text: it is sent to every client process
MIN_PIECES = 100


def pieces_of(path: str) -> tuple[str, ...]:
    """Return the pieces, each with the space before it. Raises `UserMistake`."""
    try:
        with opened(Path(path)) as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserMistake(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    except UnicodeDecodeError:
        raise UserMistake(f"{path} is not text in UTF-8: convert it first.") from None
    cut = CUT.split(text[:MAX_CHARACTERS].strip())
    pieces = tuple(f" {piece}" for piece in (cut if len(text) <= MAX_CHARACTERS else cut[:-1]))
    if len(pieces) < MIN_PIECES:
        raise UserMistake(
            f"{path} has {counted(len(pieces), 'word')} with spaces between them, and prompts need at least "
            f"{MIN_PIECES}: choose a longer text."
        )
    return pieces
