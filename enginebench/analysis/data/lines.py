"""The lines of `requests*.jsonl` as tables, a block of lines at a time: a million records of two gigabytes pass through
a few megabytes.

A line that a crash cut short is skipped; a malformed line in the middle of a file is skipped and counted. A request
that was sent and has no final line was in flight when its process was killed: it is cut off.
"""

from __future__ import annotations

import typing
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from enginebench.records.files import MALFORMED, blocks_of, decode_requests, request_files
from enginebench.records.load import Count
from enginebench.records.request import CUT_OFF, RequestRecord, SentRecord
from enginebench.records.stage import Nanoseconds

KILLED = "its client process ended before the answer"  # detail of a request without a final line
THREADS = 2  # one decodes while the other waits for Polars, which parses without the interpreter's lock
_KINDS: dict[Any, pl.DataType] = {
    Nanoseconds: pl.Int64(),
    Count: pl.Int32(),
    int: pl.Int32(),
    float: pl.Float64(),
    bool: pl.Boolean(),
    str: pl.String(),
}


def _kind_of(hint: Any) -> pl.DataType:
    """Return the column type for a field's type hint. Literals are text."""
    if hint in _KINDS:
        return _KINDS[hint]
    arms = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return pl.List(_KINDS[arms[0]])
    return next((_KINDS[arm] for arm in arms if arm in _KINDS), pl.String())


LINES_ONLY = {"token_ends", "logprobs"}  # fields of kept answers, which are read only to compare them
_HINTS = typing.get_type_hints(RequestRecord, include_extras=True)
SCHEMA = pl.Schema({name: _kind_of(hint) for name, hint in _HINTS.items() if name not in LINES_ONLY})
LISTS = [name for name, kind in SCHEMA.items() if isinstance(kind, pl.List)]


def schema_with(lists: pl.DataType) -> pl.Schema:
    """Return the schema of a table whose lists have this type."""
    return pl.Schema({name: pl.List(lists) if name in LISTS else kind for name, kind in SCHEMA.items()})


# Most of a run's bytes are lists. Polars parses their text, on all cores, in half the time of making Python numbers.
_RawRecord: Any = msgspec.defstruct(
    "_RawRecord",
    [(name, msgspec.Raw, msgspec.Raw(b"[]")) for name in LISTS],
    bases=(RequestRecord,),
    frozen=True,
    kw_only=True,
    gc=False,
)
_decoder = msgspec.json.Decoder(_RawRecord | SentRecord)


@dataclass(frozen=True, slots=True)
class Lines:
    """A block of lines: a row for each request that ended, and the sent requests without a final line.

    `last` is the latest instant in the block.
    """

    ended: pl.DataFrame
    sent: dict[str, SentRecord]
    last: int
    malformed: int


def requests_of(folder: Path, lists: pl.DataType) -> Iterator[tuple[pl.DataFrame, int]]:
    """Yield all requests of a run, with the number of lines skipped; requests that never ended come after their file.

    Lists have the type `lists`. Raises `pl.exceptions.InvalidOperationError` if a number does not fit it.
    """
    for path in request_files(folder):
        in_flight: dict[str, SentRecord] = {}
        last = 0
        for lines in _read_ahead(path, lists):
            in_flight |= lines.sent
            for request in in_flight.keys() & set(lines.ended["request_id"]):
                del in_flight[request]
            last = max(last, lines.last)
            yield lines.ended, lines.malformed
        yield table_of([_cut_off(sent, last) for sent in in_flight.values()], lists), 0


def _read_ahead(path: Path, lists: pl.DataType) -> Iterator[Lines]:
    """Yield the contents of each block in order."""
    reading: deque[Future[Lines]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for block in blocks_of(path):
            reading.append(pool.submit(read_block, block, lists))
            if len(reading) > THREADS:
                yield reading.popleft().result()
        while reading:
            yield reading.popleft().result()


def read_block(block: bytes, lists: pl.DataType) -> Lines:
    try:
        return _read(block, 0, lists)
    except (*MALFORMED, TypeError, OverflowError, pl.exceptions.PolarsError):
        # Rewrite the lines as Polars expects them: without spaces in lists.
        records = decode_requests(block)
        lines = b"".join(record.to_line().encode() for record in records)
        return _read(lines, block.count(b"\n") - len(records), lists)


def _read(block: bytes, malformed: int, lists: pl.DataType) -> Lines:
    lines = _decoder.decode_lines(block)
    ended = [line for line in lines if type(line) is _RawRecord]
    sent = {line.request_id: line for line in lines if type(line) is SentRecord}
    for line in ended:
        sent.pop(line.request_id, None)
    last = max([0, *(line.t_end for line in ended), *(line.t_send for line in sent.values())])
    return Lines(table_of(ended, lists), sent, last, malformed)


def _cut_off(sent: SentRecord, last: int) -> RequestRecord:
    return RequestRecord(
        request_id=sent.request_id,
        worker=sent.worker,
        scenario="",
        stage=sent.stage,
        outcome=CUT_OFF,
        detail=KILLED,
        t_sched=sent.t_sched,
        t_send=sent.t_send,
        t_end=last,
    )


def table_of(records: Sequence[RequestRecord], lists: pl.DataType) -> pl.DataFrame:
    """Return a row for each record. Raises `TypeError`, `OverflowError` or `PolarsError` if a value does not fit its
    column."""
    schema = schema_with(lists)
    if not records:
        return pl.DataFrame(schema=schema)
    columns = zip(*map(msgspec.structs.astuple, records), strict=True)
    named = zip(_HINTS, columns, strict=True)
    table = pl.DataFrame([_series(name, values, schema[name]) for name, values in named if name in schema])
    return table.with_columns(_list_of(name, schema[name]) for name in LISTS if table.schema[name] == pl.String)


def _series(name: str, values: tuple[Any, ...], kind: pl.DataType) -> pl.Series:
    """Return a column. Lists that were read as text lose their brackets; empty ones become null."""
    if name in LISTS and isinstance(values[0], msgspec.Raw):
        texts = [bytes(text) for text in values]
        if not all(text.startswith(b"[") for text in texts):
            raise TypeError(f"{name} is not a list")
        return pl.Series(name, [text[1:-1] or None for text in texts], pl.Binary).cast(pl.String)
    return pl.Series(name, values, kind)


def _list_of(name: str, kind: pl.DataType) -> pl.Expr:
    return pl.col(name).str.split(",").cast(kind).fill_null(pl.lit([], kind))
