"""The lines of a run as a table: read `requests*.jsonl` in blocks, derive each request's metrics, write
`requests.parquet`.

Blocks keep memory bounded: a million records of a gigabyte pass through 16 MB at a time. A line that a crash cut
short is skipped; a line spoilt in the middle of a file is skipped and counted. The metrics are those of
docs/metrics.md.
"""

from __future__ import annotations

import io
import os
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from records.record import SCHEMA_VERSION, RequestRecord

BLOCK_BYTES = 16 * 1024 * 1024
SECOND = 1_000_000_000  # nanoseconds
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


def seconds_between(start: str, end: str) -> pl.Expr:
    return (pl.col(end) - pl.col(start)) / SECOND


def derived() -> dict[str, pl.Expr]:
    """Metric name → its formula in seconds; null where a stamp is missing."""
    tokens = pl.col("output_tokens")
    # Where the server does not count along, the first chunk is taken to hold as many tokens as the mean chunk does.
    first_tokens = pl.coalesce(
        pl.col("first_chunk_tokens"), pl.when(pl.col("chunks") > 0).then(tokens / pl.col("chunks"))
    )
    ttft, e2e = seconds_between("t_send", "t_first"), seconds_between("t_send", "t_last")
    return {
        "ttft": ttft,
        "ttft_user": seconds_between("t_sched", "t_first"),
        "ttfo": seconds_between("t_send", "t_first_out"),
        "send_lag": seconds_between("t_sched", "t_send"),
        # User-space stamps are the reads themselves: how late those were, nobody saw.
        "client_lag": pl.when(pl.col("stamps") == "kernel").then(seconds_between("t_first", "read_first")),
        "tpot": pl.when(tokens > first_tokens).then(seconds_between("t_first", "t_last") / (tokens - first_tokens)),
        "ntpot": pl.when(tokens > 0).then(e2e / tokens),
        "e2e": e2e,
        "e2e_user": seconds_between("t_sched", "t_last"),
        "delivery": ttft - pl.col("server_queue") - pl.col("server_prefill"),
    }


def write_table(folder: Path, count_tokens: CountTokens) -> int:
    """Write `requests.parquet` from every worker's file; how many spoilt lines were skipped.

    The columns are the record's fields without `text`, then the derived metrics in seconds. `count_tokens` counts the
    answers of servers that send no usage. Raises `ValueError` for records of another schema, `OSError` on a full disk.
    """
    spoilt = 0

    def tables() -> Iterator[pl.DataFrame]:
        nonlocal spoilt
        for path in sorted(folder.glob("requests*.jsonl")):
            for block in _whole_lines(path):
                table, skipped = _parse(block)
                spoilt += skipped
                yield _counted(_checked(table, path), count_tokens)

    def source(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None) -> Any:
        for table in tables():
            table = table if predicate is None else table.filter(predicate)
            yield table if columns is None else table.select(columns)

    partial = folder / "requests.parquet.partial"
    try:
        register_io_source(source, schema=SCHEMA).with_columns(**derived()).drop("text").sink_parquet(partial)
    except pl.exceptions.ComputeError as error:
        partial.unlink(missing_ok=True)
        if number := re.search(r"\(os error (\d+)\)", str(error)):  # a full disk, as Polars tells it
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(partial)) from None
        raise
    partial.replace(folder / "requests.parquet")
    return spoilt


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
        records = table.filter(pl.col("t_sched").is_not_null())
        return records, len(table) - len(records)
    except pl.exceptions.PolarsError:
        lines = block.splitlines(keepends=True)
    if len(lines) == 1:
        return SCHEMA.to_frame(), 1
    half = len(lines) // 2
    (first, skipped_first), (second, skipped_second) = _parse(b"".join(lines[:half])), _parse(b"".join(lines[half:]))
    return pl.concat([first, second]), skipped_first + skipped_second


def _checked(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    others = table.filter(pl.col("schema") != SCHEMA_VERSION)
    if len(others):
        version = others["schema"][0]
        raise ValueError(f"{path} has records of schema {version}; this version reads {SCHEMA_VERSION}.")
    return table


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
