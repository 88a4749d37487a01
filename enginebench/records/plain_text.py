"""Text of servers and other people, without the characters that terminals, pages and spreadsheets interpret."""

from __future__ import annotations

import re
from typing import Any

MAX_DEPTH = 40  # levels of a JSON document: ours have ten

SPACING = "\t\n\x0b\x0c\r\x85\u2028\u2029"
CONTROLS = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # C0, DEL and C1, with the escape sequences of terminals
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # text direction
    "\ufeff\ufff9-\ufffb\ufffe\uffff"  # byte order, annotations, noncharacters: not allowed in XML
)
UNSAFE = f"[{SPACING}{CONTROLS}]"
"""A regular expression, also for Polars, whose text has no surrogates."""

PICTURES = {code: 0x2400 + code for code in range(32)}
"""Replacements of control characters in names, which stay distinct: tokens are names too."""

_spacing = re.compile(f"[{SPACING}]+")
_removed = re.compile(f"[{CONTROLS}\ud800-\udfff]")  # surrogates cannot be written as UTF-8


def plain(text: str) -> str:
    """Return `text` on one line, without control characters (C0, C1, bidirectional)."""
    return text if text.isascii() and text.isprintable() else _removed.sub("", _spacing.sub(" ", text))


def plain_lines(text: str) -> str:
    """Return `text` without control characters except line breaks."""
    return "\n".join(map(plain, text.split("\n")))


def plain_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a decoded JSON value with all of its texts and names plain.

    Raises `ValueError` if it is nested too deeply or has a whole number of more than 64 bits.
    """
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number in it has more than 64 bits")
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [plain_json(part, depth - 1) for part in value]
    return {plain(name.translate(PICTURES)): plain_json(part, depth - 1) for name, part in value.items()}


def is_file_name(text: str) -> bool:
    """Return whether `text` can name a file inside a folder: it is not a path, a hidden file or a flag."""
    return bool(text) and text == plain(text) and text[0] not in ".-" and not re.search(r"[/\\]", text)
