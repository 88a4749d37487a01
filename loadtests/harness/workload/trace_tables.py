"""Traces that are tables, with a row for each request: JSONL, CSV with a header, or Parquet.

A format is defined by the names of its columns. To add one, add its row to `FORMATS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from enginebench.records.stage import MAX_DURATION
from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import TraceArrival, TraceRequest
from loadtests.harness.workload.lengths import MAX_TOKENS

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of a format's columns. Times are multiples of `unit` seconds, or dates. `blocks` has lists of names of
    the prompt's blocks, each of `block_tokens`; `delay` has milliseconds after the answer to the session's previous
    row."""

    time: str
    prompt: str
    output: str
    session: str = ""
    unit: float = 1.0
    blocks: str = ""
    block_tokens: int = 0
    delay: str = ""

    def read(self, row: Any, place: str) -> Iterator[TraceArrival | None]:
        """Yield the request; `None` if it failed and has no tokens. Raises `UserMistake`."""
        if not isinstance(row, Mapping):
            raise UserMistake("it is not a JSON object")
        session = following(row, self.session, self.delay)
        if missing := [name for name in (self.prompt, self.output) if name not in row]:
            raise UserMistake(f"it has no {missing[0]}, only {', '.join(row)}")
        prompt, output = (_whole(row[name] or 0) for name in (self.prompt, self.output))
        if prompt <= 0 or output <= 0:
            yield None
            return
        request = TraceRequest(prompt, output, self._blocks(row, prompt), self.block_tokens, row=place, **session)
        yield TraceArrival(seconds_of(row[self.time], self.unit) if self.time in row else None, (request,))

    def _blocks(self, row: Row, prompt: int) -> tuple[int, ...]:
        """Return the names of the blocks. Other traces have the same columns with another size of blocks, which is a
        `UserMistake`."""
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
    """Return the name of the format whose columns a file's first row has; it may lack the times."""
    return next((form for form, columns in FORMATS.items() if {columns.prompt, columns.output} <= first.keys()), None)


def following(row: Row, session: str, delay: str) -> dict[str, Any]:
    """Return the fields `session`, and if the row has a delay, `pause`. Raises `UserMistake`."""
    name, pause = row.get(session) if session else None, row.get(delay) if delay else None
    fields: dict[str, Any] = {"session": None if name in (None, "") else session_name(name)}
    if pause in (None, "") or (fields["session"] is None and number_of(pause) == 0):
        return fields
    if fields["session"] is None or not 0 <= number_of(pause) / 1000 <= MAX_DURATION:
        raise UserMistake(f"its `{delay}` of {pause} ms needs a `{session}`, and to be from 0 to {MAX_DURATION:,} s")
    return fields | {"pause": number_of(pause) / 1000}


def session_name(name: Any) -> str:
    """Raises `UserMistake` for half a character, which JSON's escapes allow."""
    text = str(name)
    if not text.isascii() and text != text.encode(errors="replace").decode():
        raise UserMistake(f"its session {text!r} is not text")
    return text


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
    if number_of(value) % 1 or number_of(value) > MAX_TOKENS:
        raise UserMistake(f"`{value}` is no whole number up to {MAX_TOKENS:,}")
    return int(number_of(value))


def seconds_of(value: Any, unit: float) -> float:
    """Read a number, or a date and time, in UTC if it has no zone. Raises `UserMistake`."""
    try:
        return number_of(value) * unit
    except UserMistake:
        pass
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise UserMistake(f"`{value}` is no time") from None
