"""The terminal of a command: its messages, and the signals that stop it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TextIO

from rich.console import Console

from enginebench.records.plain_text import plain_lines
from enginebench.settings.console import stderr

# Messages of our modules in Locust's log, to be repeated on the terminal.
MESSAGE = re.compile(
    r"\[[^]]*\] \S+/(?:WARNING/loadtests\.(?!harness\.users\.failures)|INFO/loadtests\.harness\.run\.)\S+: (.+)"
)


@dataclass
class Terminal:
    """Print messages; each message of Locust's log once, even if several runs log it."""

    console: Console = field(default_factory=stderr)
    _printed: set[str] = field(default_factory=set)

    def say(self, text: str, style: str | None = None) -> None:
        self.console.print(plain_lines(text), style=style, soft_wrap=not self.console.is_terminal)

    def say_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            self.say(text)

    def repeat(self, log: TextIO) -> None:
        """Print the messages that were added to Locust's log."""
        begins = log.tell()
        while (line := log.readline()).endswith("\n"):
            begins = log.tell()
            if (match := MESSAGE.match(line)) is not None:
                self.say_once(match[1])
        log.seek(begins)  # to read an incomplete line again


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM and SIGHUP too, so that servers and Locust do not keep running."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before: Mapping[signal.Signals, object] = {s: signal.signal(s, interrupt) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
