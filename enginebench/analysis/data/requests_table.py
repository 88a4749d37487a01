"""`requests.parquet`: every request of a run as a row, with its metrics as columns.

The columns are the record's fields without `text`, then the metrics of records/metrics.py. The table is derived: it is
written again if the lines, the formulas or the tokenizer have changed since. `requests.parquet.json` names its sources.
If a run's lines were removed and only the table remains, the table is read unchanged.

If a run's folder is read-only, its table is in the user's cache.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
import polars as pl
from platformdirs import user_cache_path
from polars.io.plugins import register_io_source

from enginebench.analysis.data.formulas import metric_columns
from enginebench.analysis.data.lines import SCHEMA, requests_of, schema_with
from enginebench.records.files import read_document, request_files, write_inside
from enginebench.records.load import Count
from enginebench.records.metrics import BY_NAME, OUTPUT_TOKENS, REQUEST_METRICS
from enginebench.settings.schema import UserMistake

CountTokens = Callable[[list[str]], list[int] | None]  # None: there is no tokenizer
TABLE, ORIGIN = "requests.parquet", "requests.parquet.json"
UNCOUNTED = pl.col(OUTPUT_TOKENS).is_null() & (pl.col("text").fill_null("") != "")
ROWS = 20_000  # per row group, which is in memory while it is written
LAYOUT = 3  # version of the table: raise it to have all tables written again
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
COLUMNS = {name: kind for name, kind in SCHEMA.items() if name != "text"} | dict.fromkeys(BY_NAME, pl.Float64())


class Origin(msgspec.Struct, frozen=True):
    """The sources of a table: if they are unchanged, so is the table."""

    layout: int
    lines: tuple[tuple[str, int, int], ...]  # name, size and time of each file
    fields: tuple[str, ...]
    metrics: tuple[str, ...]
    tokenizer: str | None = None
    malformed_lines: Count = 0  # skipped when the table was written


def write_table(folder: Path, count_tokens: CountTokens, tokenizer: Path | None = None) -> tuple[Path, int]:
    """Write a run's table unless it exists. Return its path, and how many malformed lines were skipped.

    `count_tokens` counts the answers of servers that send no usage, with `tokenizer` if one was named. Raises `OSError`
    on a full disk, `UserMistake` if the table is from another version and its lines are gone.
    """
    origin = _origin(folder, tokenizer)
    if not origin.lines and (folder / TABLE).is_file():
        if not has_columns(folder / TABLE):
            raise UserMistake(
                f"{folder / TABLE} is damaged or from another version, and the lines it was made from are gone."
            )
        stored = _known(folder)
        return folder / TABLE, 0 if stored is None else stored.malformed_lines
    for place in (folder, _place_in_cache(folder)):
        stored = _known(place)
        same = stored is not None and origin == msgspec.structs.replace(stored, malformed_lines=0)
        if stored is not None and same and has_columns(place / TABLE):
            return place / TABLE, stored.malformed_lines
    try:
        return _write(folder, folder, origin, count_tokens)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        place = _place_in_cache(folder)
        place.mkdir(parents=True, exist_ok=True)
        return _write(folder, place, origin, count_tokens)


def scan(table: Path) -> pl.LazyFrame:
    """Scan a run's table; its folder may have any name, with brackets too."""
    return pl.scan_parquet(table.absolute(), glob=False)


def counted_with(folder: Path) -> Path | None:
    """Return the tokenizer that was named when the table was written, so that later commands need not name it."""
    for place in (folder, _place_in_cache(folder)):
        stored = _known(place)
        if stored is not None and stored.tokenizer is not None:
            return Path(stored.tokenizer)
    return None


def _place_in_cache(folder: Path) -> Path:
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return user_cache_path("enginebench") / "tables" / name


def _origin(folder: Path, tokenizer: Path | None) -> Origin:
    files = [(path.name, path.stat()) for path in request_files(folder)]
    return Origin(
        layout=LAYOUT,
        lines=tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in files),
        fields=tuple(f"{name}: {kind}" for name, kind in SCHEMA.items()),
        metrics=tuple(f"{metric.name} = {metric.formula}" for metric in REQUEST_METRICS),
        tokenizer=None if tokenizer is None else str(tokenizer.resolve()),
    )


def _known(place: Path) -> Origin | None:
    """Return the origin of the table in a folder; `None` if it is unknown."""
    try:
        return read_document(place / ORIGIN, Origin)
    except (OSError, ValueError):
        return None


def stored_table(folder: Path) -> Path:
    """Return the run's table, which is in the user's cache if the run's folder is read-only."""
    places = (folder / TABLE, _place_in_cache(folder) / TABLE)
    return next(filter(has_columns, places), places[0])


def has_columns(table: Path) -> bool:
    """Return whether the table exists and has all columns, with their types."""
    try:
        columns = scan(table).collect_schema() if table.is_file() else {}
    except (pl.exceptions.PolarsError, OSError):
        return False
    kinds = {name: pl.List if isinstance(kind, pl.List) else kind for name, kind in COLUMNS.items()}
    return all(columns.get(name) == kind for name, kind in kinds.items())


def _write(folder: Path, place: Path, origin: Origin, count_tokens: CountTokens) -> tuple[Path, int]:
    malformed = uncounted = 0

    def tables(lists: pl.DataType) -> Iterator[pl.DataFrame]:
        nonlocal malformed, uncounted
        malformed = uncounted = 0
        for table, skipped in requests_of(folder, lists):
            counted = _counted(_believed(table), count_tokens)
            malformed += skipped
            uncounted += counted.select(UNCOUNTED.sum()).item()
            yield counted

    (place / ORIGIN).unlink(missing_ok=True)
    collecting = gc.isenabled()
    gc.disable()  # lines have no reference cycles, and searching for some takes a quarter of the time
    try:
        sink(tables, place / TABLE)
    finally:
        if collecting:
            gc.enable()
    if not uncounted:  # otherwise the table is written again next time, perhaps with a tokenizer
        made = msgspec.structs.replace(origin, malformed_lines=malformed)
        write_inside(place, ORIGIN, msgspec.json.encode(made) + b"\n")
    return place / TABLE, malformed


def sink(tables: Callable[[pl.DataType], Iterator[pl.DataFrame]], path: Path) -> None:
    """Write tables of `SCHEMA`, and their metrics, as one Parquet file. Raises `OSError`, for example on a full disk.

    `tables` takes the type of lists, and raises `pl.exceptions.InvalidOperationError` if a number does not fit it.

    Gaps between chunks take four bytes each. If one does not fit (4.3 seconds, or a clock that was set back), the file
    is written again with eight bytes each.
    """

    def source(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None) -> Any:
        for table in tables(kind):
            table = table if predicate is None else table.filter(predicate)
            yield table if columns is None else table.select(columns)

    partial = path.absolute().with_name(f".{token_hex(8)}.partial")  # another command may be making the same table
    partial.touch()  # raises Python's own error if it cannot be written
    widest = pl.Int64()
    for kind in (pl.UInt32(), widest):
        requests = register_io_source(source, schema=schema_with(kind)).drop("text")
        try:  # uncompressed: gaps in nanoseconds are nearly random, and lz4 does not shrink them
            requests.with_columns(**metric_columns()).sink_parquet(
                partial, compression="uncompressed", row_group_size=ROWS, statistics=False
            )
        except pl.exceptions.PolarsError as error:
            partial.unlink(missing_ok=True)
            if number := re.search(r"\(os error (\d+)\)", str(error)):  # a full disk, as Polars reports it
                raise OSError(int(number[1]), os.strerror(int(number[1])), str(partial)) from None
            if kind is widest or not isinstance(error, pl.exceptions.InvalidOperationError):
                raise
        else:
            try:
                partial.replace(path)
            except OSError:  # a folder has this name
                partial.unlink()
                raise
            return


def _believed(table: pl.DataFrame) -> pl.DataFrame:
    """Drop token counts below what was received. Other tools write them; our client does not."""
    output, chunks = pl.col(OUTPUT_TOKENS), pl.col("chunks")
    received = pl.max_horizontal(chunks, pl.col("answer_digest").is_not_null().cast(pl.Int32))
    unseen = pl.when(chunks <= output - pl.col("unseen_tokens")).then("unseen_tokens").otherwise(0)
    refused = (received > 0) & ((output == 0) | ((pl.col("token_source") == "usage") & (output - unseen < received)))
    reported = pl.when(refused).then(output).otherwise("reported_tokens")
    return table.with_columns(
        reported_tokens=reported,
        unseen_tokens=unseen.cast(pl.Int32),
        **{name: pl.when(~refused.fill_null(False)).then(name) for name in (OUTPUT_TOKENS, "token_source")},
    )


def _counted(table: pl.DataFrame, count_tokens: CountTokens) -> pl.DataFrame:
    """Fill in the tokens of answers that came without usage, and say that the tokenizer counted them."""
    texts = table.filter(UNCOUNTED)["text"].to_list()
    numbers = count_tokens(texts) if texts else None
    if numbers is None:
        return table
    index = table.select(pl.arg_where(UNCOUNTED)).to_series()
    counts = table[OUTPUT_TOKENS].scatter(index, numbers)
    sources = table["token_source"].scatter(index, ["tokenizer"] * len(texts))
    return table.with_columns(output_tokens=counts, token_source=sources)
