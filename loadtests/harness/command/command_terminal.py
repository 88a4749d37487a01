"""Where a command says what happens, and how it is stopped."""

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

# Of Locust's log: what our own modules say to the person who watches.
SAID = re.compile(
    r"\[[^]]*\] \S+/(?:WARNING/loadtests\.(?!harness\.users\.failures)|INFO/loadtests\.harness\.run\.)\S+: (.+)"
)


@dataclass
class Terminal:
    """Print what happens; each sentence of Locust's log once, however many runs have it."""

    console: Console = field(default_factory=stderr)
    _said: set[str] = field(default_factory=set)

    def say(self, text: str, style: str | None = None) -> None:
        self.console.print(plain_lines(text), style=style, soft_wrap=not self.console.is_terminal)

    def say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def repeat(self, log: TextIO) -> None:
        """The lines that were added to Locust's log and are for the person who watches."""
        begins = log.tell()
        while (line := log.readline()).endswith("\n"):
            begins = log.tell()
            if (match := SAID.match(line)) is not None:
                self.say_once(match[1])
        log.seek(begins)  # a line that is not complete yet


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """However the command is stopped, servers and Locust must not keep running."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before: Mapping[signal.Signals, object] = {s: signal.signal(s, interrupt) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
