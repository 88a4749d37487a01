"""Traces that are tables, a row for each request: JSONL, CSV with a header, or Parquet.

A format is the names of its columns. To read another one: its row in `FORMATS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import TraceArrival, TraceRequest
from loadtests.harness.workload.rows import Row, rows

GRAMMAR = "time=COLUMN,prompt=COLUMN,output=COLUMN[,session=COLUMN], with time_ms or time_ns for other units"
UNITS = {"time": 1.0, "time_ms": 1e-3, "time_ns": 1e-9}


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of a format's columns. Times are multiples of `unit` seconds, or dates. `blocks` has lists of names of
    the prompt's blocks, each of `block_tokens`."""

    time: str
    prompt: str
    output: str
    session: str = ""
    unit: float = 1.0
    blocks: str = ""
    block_tokens: int = 0

    def arrival(self, row: Row) -> TraceArrival | None:
        """`None` for a request that failed: its prompt or answer has no tokens. Raises `KeyError` and `ValueError`."""
        prompt, output = (int(_number(row[name] or 0)) for name in (self.prompt, self.output))
        if prompt <= 0 or output <= 0:
            return None
        request = TraceRequest(prompt, output, self._blocks(row, prompt), self.block_tokens, session=self._session(row))
        return TraceArrival(_seconds(row[self.time], self.unit), (request,))

    def _session(self, row: Row) -> str | None:
        session = row.get(self.session) if self.session else None
        return None if session in (None, "") else str(session)

    def _blocks(self, row: Row, prompt: int) -> tuple[int, ...]:
        """Other traces have the same columns with times in seconds, or with blocks of another size."""
        blocks = tuple(row.get(self.blocks) or ()) if self.blocks else ()
        if blocks and len(blocks) != math.ceil(prompt / self.block_tokens):
            raise ValueError(
                f"it has {len(blocks)} {self.blocks} for {prompt} tokens, not one for each {self.block_tokens}: use "
                f"--trace-as time={self.time},prompt={self.prompt},output={self.output} (or time_ms), without its "
                "blocks"
            )
        return blocks


FORMATS = {
    # Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake, FAST25-release/traces
    "mooncake": Columns(
        "timestamp", "input_length", "output_length", unit=1e-3, blocks="hash_ids", block_tokens=512
    ),
    # of 2023 and of 2024: Patel et al., ISCA 2024; Stojkovic et al., HPCA 2025; github.com/Azure/AzurePublicDataset
    "azure": Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    # sessions since 2.0: Wang et al., 2024; github.com/HPMLL/BurstGPT
    "burstgpt": Columns("Timestamp", "Request tokens", "Response tokens", "Session ID"),
}  # fmt: skip


def columns_of(text: str) -> Columns:
    """`time=ts,prompt=in,output=out`. Raises `UserMistake`."""
    named = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    times = named.keys() & UNITS.keys()
    if not {"prompt", "output"} <= named.keys() or len(times) != 1:
        raise UserMistake(f"the columns of a trace are given as {GRAMMAR}, not `{text}`.")
    (time,) = times
    return Columns(named[time], named["prompt"], named["output"], named.get("session", ""), UNITS[time])


def format_of(path: Path) -> str | None:
    """Which of `FORMATS` has columns of the names that the file has. Raises `OSError` and `UserMistake`."""
    _, first = next(rows(path), (0, {}))
    for form, columns in FORMATS.items():
        if {columns.time, columns.prompt, columns.output} <= first.keys():
            return form
    return None


def read_table(path: Path, columns: Columns) -> Iterator[TraceArrival | None]:
    """`None` for each row that is left out. Raises `OSError`, and `UserMistake` with the first line that is wrong."""
    optional = columns in FORMATS.values()
    any_session = False
    for line, row in rows(path):
        try:
            arrival = columns.arrival(row)
        except KeyError as error:
            raise UserMistake(
                f"line {line} of the trace {path} has no {error.args[0]}, only {', '.join(map(str, row))}: "
                f"name its columns with --trace-as {GRAMMAR}."
            ) from None
        except ValueError as error:
            raise UserMistake(f"line {line} of the trace {path} cannot be read: {error}.") from None
        any_session = any_session or (arrival is not None and arrival.requests[0].session is not None)
        yield arrival
    if columns.session and not optional and not any_session:
        raise UserMistake(
            f"no line of the trace {path} has a {columns.session}: name its column of sessions, or leave it out."
        )


def _number(value: Any) -> float:
    """Raises `ValueError`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"`{value}` is no number")
    return number


def _seconds(value: Any, unit: float) -> float:
    """A number, or a date and time, in which UTC is taken where no zone is named. Raises `ValueError`."""
    try:
        return _number(value) * unit
    except ValueError:
        pass
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"`{value}` is no time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
