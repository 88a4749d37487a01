"""The check that an answer contains the exact answer to its question."""

from __future__ import annotations

import re


def is_correct(text: str, expected: str) -> bool:
    """Return whether `expected` occurs in the answer as whole words or a whole number, in any case and spacing.

    The 42 in 142, -42, 1,042 and 42.5 is not the number 42.
    """
    words = r"\s+".join(map(re.escape, expected.split()))
    return re.search(rf"(?<![\w-])(?<!\d[.,]){words}(?!\w|[.,]\d)", text, re.IGNORECASE) is not None
