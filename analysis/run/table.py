"""The lines of a run as a table: read `requests*.jsonl` in blocks, derive each request's metrics, write
`requests.parquet`.

Blocks keep memory bounded: a million records of a gigabyte pass through 16 MB at a time. A line that a crash cut
short is skipped; a malformed line in the middle of a file is skipped and counted. Unknown fields are ignored, and
missing optional ones have their defaults. A request that was sent and has no final line was in flight when its process
was killed: it is cut off.
"""

from __future__ import annotations

import dataclasses
import io
import os
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from analysis.run.formulas import metric_columns
from records.request import SENT, RequestRecord

BLOCK_BYTES = 16 * 1024 * 1024
KILLED = "its client process ended before the answer"  # detail of a request without a final line
CountTokens = Callable[[list[str]], list[int] | None]  # None: there is no tokenizer

_POLARS: dict[Any, pl.DataType] = {int: pl.Int64(), float: pl.Float64(), bool: pl.Boolean(), str: pl.String()}


def _column_type(hint: Any) -> pl.DataType:
    """A field of the record as Polars has it: optional ones are nullable anyway, literals are text, tuples lists."""
    if hint in _POLARS:
        return _POLARS[hint]
    arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    if typing.get_origin(hint) is tuple:
        return pl.List(_column_type(arms[0]))
    return _column_type(arms[0] if arms[0] in _POLARS else str)


SCHEMA = pl.Schema({name: _column_type(hint) for name, hint in typing.get_type_hints(RequestRecord).items()})
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RequestRecord)}
REQUIRED = [name for name, default in _DEFAULTS.items() if default is dataclasses.MISSING]
FILLED = [
    pl.col(name).fill_null(pl.lit(list(default) if isinstance(default, tuple) else default, SCHEMA[name]))
    for name, default in _DEFAULTS.items()
    if name not in REQUIRED and default is not None
]


def write_table(folder: Path, count_tokens: CountTokens) -> int:
    """Write `requests.parquet` from every worker's file; how many malformed lines were skipped.

    The columns are the record's fields without `text`, then the metrics of records/metrics.py. `count_tokens` counts
    the answers of servers that send no usage. Raises `OSError` on a full disk.
    """
    malformed = 0

    def tables() -> Iterator[pl.DataFrame]:
        nonlocal malformed
        for path in sorted(folder.glob("requests*.jsonl")):
            for table, skipped in _records(path):
                malformed += skipped
                yield _counted(table.with_columns(FILLED), count_tokens)

    def source(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None) -> Any:
        for table in tables():
            table = table if predicate is None else table.filter(predicate)
            yield table if columns is None else table.select(columns)

    partial = folder / "requests.parquet.partial"
    try:
        register_io_source(source, schema=SCHEMA).with_columns(**metric_columns()).drop("text").sink_parquet(partial)
    except pl.exceptions.ComputeError as error:
        partial.unlink(missing_ok=True)
        if number := re.search(r"\(os error (\d+)\)", str(error)):  # a full disk, as Polars tells it
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(partial)) from None
        raise
    partial.replace(folder / "requests.parquet")
    return malformed


def _records(path: Path) -> Iterator[tuple[pl.DataFrame, int]]:
    """The requests of one worker's file with the number of malformed lines; at last those that never ended."""
    sent, last = SCHEMA.to_frame(), 0
    for block in _whole_lines(path):
        table, malformed = _parse(block)
        ended = table.filter(pl.col("outcome") != SENT)
        sent = pl.concat([sent, table.filter(pl.col("outcome") == SENT)]).join(ended, on="request_id", how="anti")
        last = max(last, table.select(pl.max_horizontal(pl.col("t_send", "t_end").max())).item() or 0)
        yield ended, malformed
    cut_off = {"outcome": pl.lit("cut_off"), "detail": pl.lit(KILLED), "t_end": pl.lit(last, pl.Int64)}
    yield sent.with_columns(**cut_off), 0


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Blocks that end with a line. What follows the last newline was never finished: its writer was killed."""
    with path.open("rb") as file:
        rest = b""
        while block := file.read(BLOCK_BYTES):
            lines, newline, tail = block.rpartition(b"\n")
            if newline:
                yield rest + lines + newline
                rest = tail
            else:
                rest += tail


def _parse(block: bytes) -> tuple[pl.DataFrame, int]:
    """The block's records, and how many of its lines are none."""
    try:
        table = pl.read_ndjson(io.BytesIO(block), schema=SCHEMA)
        ended = pl.all_horizontal(pl.col(REQUIRED).is_not_null())
        sent = (pl.col("outcome") == SENT) & pl.all_horizontal(pl.col("request_id", "t_sched", "t_send").is_not_null())
        records = table.filter(ended | sent)
        return records, len(table) - len(records)
    except pl.exceptions.PolarsError:
        lines = block.splitlines(keepends=True)
    if len(lines) == 1:
        return SCHEMA.to_frame(), 1
    half = len(lines) // 2
    (first, skipped_first), (second, skipped_second) = _parse(b"".join(lines[:half])), _parse(b"".join(lines[half:]))
    return pl.concat([first, second]), skipped_first + skipped_second


def _counted(table: pl.DataFrame, count_tokens: CountTokens) -> pl.DataFrame:
    """Fill in the tokens of answers that came without usage, and say that the tokenizer counted them."""
    uncounted = pl.col("output_tokens").is_null() & (pl.col("text").fill_null("") != "")
    texts = table.filter(uncounted)["text"].to_list()
    numbers = count_tokens(texts) if texts else None
    if numbers is None:
        return table
    index = table.select(pl.arg_where(uncounted)).to_series()
    counts = table["output_tokens"].scatter(index, numbers)
    sources = table["token_source"].scatter(index, ["tokenizer"] * len(texts))
    return table.with_columns(output_tokens=counts, token_source=sources)
