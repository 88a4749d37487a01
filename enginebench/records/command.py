"""The command line that a run and a benchmark record, so that it can be repeated: without secrets and without paths of
the machine on which it was typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path


def typed_command(secret_flags: Collection[str] = ()) -> tuple[str, ...]:
    """Return the command of this process, as typed in its working folder."""
    main = sys.modules["__main__"].__spec__  # None unless it was started by `python -m`
    program = (Path(sys.argv[0]).name,) if main is None else ("python", "-m", main.name.removesuffix(".__main__"))
    return (*program, *publishable(sys.argv[1:], secret_flags))


def publishable(words: Sequence[str], secret_flags: Collection[str] = ()) -> tuple[str, ...]:
    """Remove the values of `secret_flags`, and make absolute paths in the working folder or the user's home relative to
    the working folder."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        flag, equals, value = word.partition("=")
        if hide_next:
            shown.append("***")
        elif not equals:
            shown.append(_relative(word))
        else:
            shown.append(f"{flag}={'***' if flag in secret_flags else _relative(value)}")
        hide_next = word in secret_flags
    return tuple(shown)


def _relative(word: str) -> str:
    path = Path(word)
    if not path.is_absolute():
        return word
    here, home = Path.cwd(), Path(os.path.expanduser("~"))
    return os.path.relpath(path, here) if path.is_relative_to(here) or path.is_relative_to(home) else word
