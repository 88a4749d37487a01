"""Traces that are tables, a row for each request: JSONL, CSV with a header, or Parquet.

A format is the names of its columns. To read another one: its row in `FORMATS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import TraceArrival, TraceRequest

Row = Mapping[str, Any]
PREVIOUS = -1  # of what a request follows, until its session is put together: the row before it


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of a format's columns. Times are multiples of `unit` seconds, or dates; without a column of times the
    trace has none. `blocks` has lists of names of the prompt's blocks, each of `block_tokens`; `delay` has milliseconds
    after the answer to the row before it in its session."""

    time: str
    prompt: str
    output: str
    session: str = ""
    unit: float = 1.0
    blocks: str = ""
    block_tokens: int = 0
    delay: str = ""

    def fitting(self, first: Any) -> Columns:
        """Return the columns of a published format as the file with this first row has them: with or without times."""
        return self if not isinstance(first, Mapping) or self.time in first else replace(self, time="")

    def read(self, row: Any, place: str) -> Iterator[TraceArrival | None]:
        """`None` for a request that failed: its prompt or answer has no tokens. Raises `UserMistake`."""
        if not isinstance(row, Mapping):
            raise UserMistake("it is not a JSON object")
        session = following(row, self.session, self.delay)
        time = "" if "after" in session and self.time not in row else self.time
        if missing := [name for name in (self.prompt, self.output, time) if name and name not in row]:
            raise UserMistake(f"it has no {missing[0]}, only {', '.join(row)}")
        prompt, output = (_whole(row[name] or 0) for name in (self.prompt, self.output))
        if prompt <= 0 or output <= 0:
            yield None
            return
        request = TraceRequest(prompt, output, self._blocks(row, prompt), self.block_tokens, row=place, **session)
        yield TraceArrival(seconds_of(row[time], self.unit) if time else None, (request,))

    def _blocks(self, row: Row, prompt: int) -> tuple[int, ...]:
        """Other traces have the same columns with blocks of another size."""
        blocks = (row.get(self.blocks) or ()) if self.blocks else ()
        if not isinstance(blocks, list | tuple):
            raise UserMistake(f"`{self.blocks}` is not a list")
        if blocks and len(blocks) != math.ceil(prompt / self.block_tokens):
            raise UserMistake(
                f"it has {len(blocks)} {self.blocks} for {prompt} tokens, not one for each {self.block_tokens}: leave "
                f"{self.blocks} out of the file"
            )
        return tuple(blocks)


FORMATS = {
    # Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake, FAST25-release/traces. Sessions as AIPerf has them
    "mooncake": Columns(
        "timestamp", "input_length", "output_length", "session_id",
        unit=1e-3, blocks="hash_ids", block_tokens=512, delay="delay",
    ),
    # of 2023 and of 2024: Patel et al., ISCA 2024; Stojkovic et al., HPCA 2025; github.com/Azure/AzurePublicDataset
    "azure": Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    # sessions since 2.0: Wang et al., 2024; github.com/HPMLL/BurstGPT
    "burstgpt": Columns("Timestamp", "Request tokens", "Response tokens", "Session ID"),
}  # fmt: skip


def format_of(first: Row) -> str | None:
    """Return which of `FORMATS` has columns of the names in a file's first row; a trace without times is one too."""
    return next((form for form, columns in FORMATS.items() if {columns.prompt, columns.output} <= first.keys()), None)


def following(row: Row, session: str, delay: str) -> dict[str, Any]:
    """Return the session of a request and, if the row has a delay, that it follows the row before it in that session.
    Raises `UserMistake`."""
    name, pause = row.get(session) if session else None, row.get(delay) if delay else None
    known: dict[str, Any] = {"session": None if name in (None, "") else str(name)}
    if pause in (None, "") or (known["session"] is None and number_of(pause) == 0):
        return known
    if known["session"] is None or number_of(pause) < 0:
        raise UserMistake(f"its `{delay}` of {pause} needs a `{session}`, and to be 0 or more")
    return known | {"after": (PREVIOUS,), "pause": number_of(pause) / 1000}


def number_of(value: Any) -> float:
    """Raises `UserMistake`."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UserMistake(f"`{value}` is no number")
    return number


def _whole(value: Any) -> int:
    """Raises `UserMistake`."""
    if number_of(value) % 1:
        raise UserMistake(f"`{value}` is no whole number")
    return int(number_of(value))


def seconds_of(value: Any, unit: float) -> float:
    """A number, or a date and time, in which UTC is taken where no zone is named. Raises `UserMistake`."""
    try:
        return number_of(value) * unit
    except UserMistake:
        pass
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise UserMistake(f"`{value}` is no time") from None
