"""The lines of `requests*.jsonl` as tables, block by block.

Blocks keep memory bounded: a million records of two gigabytes pass through 16 MB at a time. A line that a crash cut
short is skipped; a malformed line in the middle of a file is skipped and counted. Unknown fields are ignored, and
missing optional ones have their defaults. A request that was sent and has no final line was in flight when its process
was killed: it is cut off.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from records.request import SENT, RequestRecord

BLOCK_BYTES = 16 * 1024 * 1024
KILLED = "its client process ended before the answer"  # detail of a request without a final line

_COLUMNS: dict[Any, pl.DataType] = {int: pl.Int64(), float: pl.Float64(), bool: pl.Boolean(), str: pl.String()}


def _type_of(hint: Any) -> Any:
    """int, float, bool or str: what a field of the record holds where it is known. Literals are text."""
    if hint in _COLUMNS:
        return hint
    arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    return arms[0] if arms[0] in _COLUMNS else str


_HINTS = typing.get_type_hints(RequestRecord)
LISTS = [name for name, hint in _HINTS.items() if typing.get_origin(hint) is tuple]
_TYPES = {name: _type_of(hint) for name, hint in _HINTS.items()}
SCHEMA = pl.Schema(
    {name: pl.List(_COLUMNS[kind]) if name in LISTS else _COLUMNS[kind] for name, kind in _TYPES.items()}
)
TEXT_SCHEMA = pl.Schema(SCHEMA | dict.fromkeys(LISTS, pl.String()))  # of what `records_of` gives
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RequestRecord)}
REQUIRED = [name for name, default in _DEFAULTS.items() if default is dataclasses.MISSING]
_FILLED = [
    pl.col(name).fill_null(pl.lit(default, SCHEMA[name]))
    for name, default in _DEFAULTS.items()
    if name not in REQUIRED and name not in LISTS and default is not None
]

# Lists are most of a run's bytes: their text goes to Polars as it is, instead of through a Python number for each.
_Line: Any = msgspec.defstruct(
    "_Line",
    [
        (name, msgspec.Raw, msgspec.Raw(b"null")) if name in LISTS else (name, kind | None, None)
        for name, kind in _TYPES.items()
    ],
    gc=False,
)
_decoder = msgspec.json.Decoder(_Line)
_required = attrgetter(*REQUIRED)


def records_of(path: Path) -> Iterator[tuple[pl.DataFrame, int]]:
    """The requests of one worker's file, lists as text, with the number of malformed lines; at last those that never
    ended."""
    in_flight: dict[str, Any] = {}
    last = 0
    for block in _whole_lines(path):
        lines, malformed = _decoded(block)
        ended = []
        for line in lines:
            if line.outcome == SENT:
                if line.request_id is None or line.t_sched is None or line.t_send is None:
                    malformed += 1
                    continue
                in_flight[line.request_id] = line
            elif None in _required(line):
                malformed += 1
                continue
            else:
                in_flight.pop(line.request_id, None)
                ended.append(line)
            last = max(last, line.t_send or 0, line.t_end or 0)
        yield _table_of(ended), malformed
    for line in in_flight.values():
        line.outcome, line.detail, line.t_end = "cut_off", KILLED, last
    yield _table_of(list(in_flight.values())), 0


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Blocks that end with a line. What follows the last newline was never finished: its writer was killed."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            block += file.readline()
            yield block[: block.rfind(b"\n") + 1]


def _decoded(block: bytes) -> tuple[list[Any], int]:
    """The block's records, and how many of its lines are none."""
    try:
        return _decoder.decode_lines(block), 0
    except msgspec.DecodeError:
        lines = block.splitlines(keepends=True)
    if len(lines) == 1:
        return [], 1
    half = len(lines) // 2
    (first, skipped_first), (second, skipped_second) = (
        _decoded(b"".join(part)) for part in (lines[:half], lines[half:])
    )
    return first + second, skipped_first + skipped_second


def _table_of(lines: list[Any]) -> pl.DataFrame:
    """A row for each line; lists as text."""
    columns = zip(*map(msgspec.structs.astuple, lines), strict=True) if lines else ((),) * len(SCHEMA)
    return pl.DataFrame([_series(name, values) for name, values in zip(SCHEMA, columns, strict=True)]).with_columns(
        _FILLED
    )


def _series(name: str, values: tuple[Any, ...]) -> pl.Series:
    if name in LISTS:
        return pl.Series(name, [bytes(raw).replace(b" ", b"") for raw in values], pl.Binary).cast(pl.String)
    return pl.Series(name, values, SCHEMA[name])


def list_of(name: str, kind: pl.DataType) -> pl.Expr:
    """A column of lists from its text, `[12,34]` or `null`. Raises `ComputeError` for other than numbers of `kind`."""
    inner = pl.col(name).str.strip_chars("[]")
    numbers = pl.when(~inner.is_in(["", "null"])).then(inner).str.split(",").cast(pl.List(kind))
    return numbers.fill_null(pl.lit([], pl.List(kind))).alias(name)
