"""The lines of `requests*.jsonl` as tables, block by block.

Blocks keep memory bounded: a million records of two gigabytes pass through a few megabytes at a time. A line that a
crash cut short is skipped; a malformed line in the middle of a file is skipped and counted. Unknown fields are ignored,
and missing optional ones have their defaults. A request that was sent and has no final line was in flight when its
process was killed: it is cut off.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from records.request import SENT, RequestRecord, SentRecord

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
TEXT_SCHEMA = pl.Schema(SCHEMA | dict.fromkeys(LISTS, pl.String()))  # of what `requests_of` gives
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RequestRecord)}
REQUIRED = [name for name, default in _DEFAULTS.items() if default is dataclasses.MISSING]
_FILLED = {
    name: pl.lit("" if name in LISTS else default, TEXT_SCHEMA[name])
    for name, default in _DEFAULTS.items()
    if name not in REQUIRED and default is not None
}
_OF_SENT = [field.name for field in dataclasses.fields(SentRecord) if field.name != "outcome"]

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
_of_sent = attrgetter(*_OF_SENT)


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, from one byte to another."""

    path: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Lines:
    """What a block holds: a row for each request that ended, with lists as text; the requests that were sent and are
    not among them; and how many of its lines are malformed."""

    ended: pl.DataFrame
    sent: pl.DataFrame
    malformed: int

    @property
    def last(self) -> int:
        """The latest instant that they know of."""
        stamps = [self.ended["t_send"], self.ended["t_end"], self.sent["t_send"]]
        return max(typing.cast("int | None", stamp.max()) or 0 for stamp in stamps)


def blocks_of(path: Path) -> Iterator[Block]:
    with path.open("rb") as file:
        start, size = 0, path.stat().st_size
        while start < size:
            file.seek(start + BLOCK_BYTES)
            file.readline()
            end = min(file.tell(), size)
            yield Block(path, start, end)
            start = end


def read_block(block: Block) -> Lines:
    with block.path.open("rb") as file:
        file.seek(block.start)
        text = file.read(block.end - block.start)
    # What follows the last newline was never finished: its writer was killed.
    lines, malformed = _decoded(text[: text.rfind(b"\n") + 1])
    of_ended = [line for line in lines if line.outcome != SENT]
    ended = _columns(of_ended, msgspec.structs.astuple, list(SCHEMA))
    if any(ended[name].null_count() for name in REQUIRED):
        ended = ended.drop_nulls(REQUIRED)
    of_sent = _not_in([line for line in lines if line.outcome == SENT], ended)
    sent = _columns(of_sent, _of_sent, _OF_SENT).drop_nulls()
    return Lines(_filled(ended), sent, malformed + len(of_ended) - len(ended) + len(of_sent) - len(sent))


def _not_in(sent: list[Any], ended: pl.DataFrame) -> list[Any]:
    """The requests that did not end: most did, and need no columns of their own."""
    ids = pl.DataFrame({"request_id": [line.request_id for line in sent]}, {"request_id": SCHEMA["request_id"]})
    left = ids.with_row_index().join(ended, on="request_id", how="anti", maintain_order="left")
    return [sent[index] for index in left["index"]]


def requests_of(blocks: Sequence[Block], read: Iterator[Lines]) -> Iterator[tuple[pl.DataFrame, int]]:
    """The requests of files, with the number of malformed lines; after each file those that never ended.

    `read` gives what each of `blocks` holds, in their order.
    """
    in_flight, last = pl.DataFrame(schema={name: SCHEMA[name] for name in _OF_SENT}), 0
    for index, (block, lines) in enumerate(zip(blocks, read, strict=True)):
        in_flight = in_flight.join(lines.ended, on="request_id", how="anti", maintain_order="left")
        in_flight = pl.concat([in_flight, lines.sent])
        last = max(last, lines.last)
        yield lines.ended, lines.malformed
        if index + 1 == len(blocks) or blocks[index + 1].path != block.path:
            yield _cut_off(in_flight, last), 0
            in_flight, last = in_flight.clear(), 0


def _cut_off(in_flight: pl.DataFrame, last: int) -> pl.DataFrame:
    known = in_flight.with_columns(outcome=pl.lit("cut_off"), detail=pl.lit(KILLED), t_end=pl.lit(last, pl.Int64))
    missing = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in known.columns]
    return _filled(known.with_columns(missing).select(SCHEMA.names()).cast(TEXT_SCHEMA))


def _decoded(text: bytes) -> tuple[list[Any], int]:
    """The records of whole lines, and how many of the lines are none."""
    try:
        return _decoder.decode_lines(text), 0
    except msgspec.DecodeError:
        lines = text.splitlines(keepends=True)
    if len(lines) == 1:
        return [], 1
    half = len(lines) // 2
    (first, skipped_first), (second, skipped_second) = (
        _decoded(b"".join(part)) for part in (lines[:half], lines[half:])
    )
    return first + second, skipped_first + skipped_second


def _columns(lines: list[Any], values_of: Callable[[Any], tuple[Any, ...]], names: Sequence[str]) -> pl.DataFrame:
    """A row for each line."""
    columns = zip(*map(values_of, lines), strict=True) if lines else ((),) * len(names)
    return pl.DataFrame([_series(name, values) for name, values in zip(names, columns, strict=True)])


def _series(name: str, values: tuple[Any, ...]) -> pl.Series:
    """Lists as text: `12,34`, without brackets; null is an empty list."""
    if name not in LISTS:
        return pl.Series(name, values, SCHEMA[name])
    texts = pl.Series(name, [bytes(raw) for raw in values], pl.Binary).cast(pl.String).str.strip_chars("[nul]")
    spaced = texts.str.contains(" ", literal=True).any()
    return texts.str.replace_all(" ", "", literal=True) if spaced else texts


def _filled(table: pl.DataFrame) -> pl.DataFrame:
    """Missing optional fields have their defaults."""
    return table.with_columns(
        pl.col(name).fill_null(default) for name, default in _FILLED.items() if table[name].null_count()
    )


def list_of(name: str, kind: pl.DataType) -> pl.Expr:
    """A column of lists from their text. Raises `ComputeError` for other than numbers of `kind`."""
    numbers = pl.when(pl.col(name) != "").then(pl.col(name)).str.split(",").cast(pl.List(kind))
    return numbers.fill_null(pl.lit([], pl.List(kind))).alias(name)
