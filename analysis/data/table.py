"""`requests.parquet`: every request of a run as a row, with its metrics as columns.

The columns are the record's fields without `text`, then the metrics of records/metrics.py. The table is derived: it is
written anew whenever the lines, the formulas or the tokenizer are not those it was made from. `requests.parquet.json`
says what it was made from. Where only the table is left of a run, because its lines were put away, it is read as it is.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from analysis.data.formulas import metric_columns
from analysis.data.lines import LISTS, SCHEMA, TEXT_SCHEMA, blocks_of, list_of, requests_of
from analysis.data.processes import read_blocks
from records.files import write_atomically
from records.metrics import BY_NAME, REQUEST_METRICS
from settings.schema import UserMistake

CountTokens = Callable[[list[str]], list[int] | None]  # None: there is no tokenizer
TABLE, ORIGIN = "requests.parquet", "requests.parquet.json"
UNCOUNTED = pl.col("output_tokens").is_null() & (pl.col("text").fill_null("") != "")
ROWS = 50_000  # of a row group
LAYOUT = 1  # of the table: another number has all tables written anew


def write_table(folder: Path, count_tokens: CountTokens, tokenizer: Path | None = None) -> int:
    """Write `requests.parquet` where it is not there already; how many malformed lines were skipped.

    `count_tokens` counts the answers of servers that send no usage, with `tokenizer` if one was named. Raises `OSError`
    on a full disk, `ValueError` where the table is another version's and its lines are gone.
    """
    origin = _origin(folder, tokenizer)
    known = _known(folder)
    if not origin["lines"] and (folder / TABLE).exists():
        _check_columns(folder / TABLE)
        return int(known.get("malformed_lines", 0))
    if (folder / TABLE).exists() and origin.items() <= known.items():
        return int(known["malformed_lines"])
    (folder / ORIGIN).unlink(missing_ok=True)
    malformed, uncounted = _write(folder, count_tokens)
    if not uncounted:  # otherwise a tokenizer may be found the next time
        write_atomically(folder / ORIGIN, json.dumps(origin | {"malformed_lines": malformed}) + "\n")
    return malformed


def _origin(folder: Path, tokenizer: Path | None) -> dict[str, Any]:
    """What a table is made from: when it is the same, so is the table."""
    files = [(path.name, path.stat()) for path in sorted(folder.glob("requests*.jsonl"))]
    return {
        "layout": LAYOUT,
        "lines": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files],
        "fields": [f"{name}: {kind}" for name, kind in SCHEMA.items()],
        "metrics": [f"{metric.name} = {metric.formula}" for metric in REQUEST_METRICS],
        "tokenizer": None if tokenizer is None else str(tokenizer.resolve()),
    }


def _known(folder: Path) -> dict[str, Any]:
    """What the table that is there was made from; empty where that is not known."""
    try:
        document = json.loads((folder / ORIGIN).read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _check_columns(table: Path) -> None:
    missing = {*SCHEMA, *BY_NAME} - {"text"} - set(pl.read_parquet_schema(table))
    if missing:
        raise UserMistake(f"{table} is from another version, and the lines it was made from are gone.")


def _write(folder: Path, count_tokens: CountTokens) -> tuple[int, int]:
    """How many malformed lines were skipped, and of how many answers with a text the tokens are not known."""
    malformed = uncounted = 0

    def tables() -> Iterator[pl.DataFrame]:
        nonlocal malformed, uncounted
        malformed = uncounted = 0
        blocks = [block for path in sorted(folder.glob("requests*.jsonl")) for block in blocks_of(path)]
        for table, skipped in requests_of(blocks, read_blocks(blocks)):
            counted = _counted(table, count_tokens)
            malformed += skipped
            uncounted += counted.select(UNCOUNTED.sum()).item()
            yield counted

    with _no_collections():
        sink(tables, TEXT_SCHEMA, folder / TABLE)
    return malformed, uncounted


@contextmanager
def _no_collections() -> Iterator[None]:
    """Lines make no cycles of references; looking for some in millions of them takes a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def sink(tables: Callable[[], Iterator[pl.DataFrame]], schema: pl.Schema, path: Path) -> None:
    """Write tables of `SCHEMA` or `TEXT_SCHEMA`, and their metrics, as one Parquet file.

    Gaps between chunks take four bytes each; where one is longer than four seconds, all is written again with eight.
    Raises `OSError` on a full disk, `ValueError` for a list of something other than whole numbers.
    """
    partial = path.with_name(f"{path.name}.partial")

    def source(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None) -> Any:
        for table in tables():
            table = table if predicate is None else table.filter(predicate)
            yield table if columns is None else table.select(columns)

    for kind in (pl.UInt32(), pl.Int64()):
        lists = [
            list_of(name, kind) if schema[name] == pl.String else pl.col(name).cast(pl.List(kind)) for name in LISTS
        ]
        requests = (
            register_io_source(source, schema=schema).with_columns(*lists).with_columns(**metric_columns()).drop("text")
        )
        try:  # uncompressed: gaps in nanoseconds are nearly random, and take the same room with lz4
            requests.sink_parquet(partial, compression="uncompressed", row_group_size=ROWS, statistics=False)
        except pl.exceptions.PolarsError as error:
            partial.unlink(missing_ok=True)
            if number := re.search(r"\(os error (\d+)\)", str(error)):  # a full disk, as Polars tells it
                raise OSError(int(number[1]), os.strerror(int(number[1])), str(partial)) from None
            if "conversion from" not in str(error):
                raise
        else:
            partial.replace(path)
            return
    raise UserMistake(f"{path.parent} has records whose lists hold something other than whole numbers.")


def _counted(table: pl.DataFrame, count_tokens: CountTokens) -> pl.DataFrame:
    """Fill in the tokens of answers that came without usage, and say that the tokenizer counted them."""
    texts = table.filter(UNCOUNTED)["text"].to_list()
    numbers = count_tokens(texts) if texts else None
    if numbers is None:
        return table
    index = table.select(pl.arg_where(UNCOUNTED)).to_series()
    counts = table["output_tokens"].scatter(index, numbers)
    sources = table["token_source"].scatter(index, ["tokenizer"] * len(texts))
    return table.with_columns(output_tokens=counts, token_source=sources)
