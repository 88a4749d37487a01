"""Rows of a user's files: JSONL, JSON, Parquet, or CSV with a header; text may be compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

from enginebench.settings.schema import UserMistake

GZIP, PARQUET = b"\x1f\x8b", b"PAR1"  # first bytes
MAX_CELL = 2**31 - 1  # characters of CSV
Rows = Iterator[tuple[str, Any]]


def rows(path: Path) -> Rows:
    """Yield each row preceded by its place, such as `row 3`: the line of JSONL, the element of a JSON array. The places
    of CSV are lines. Raises `OSError` and `UserMistake`."""
    with path.open("rb") as file:
        is_parquet = file.read(len(PARQUET)) == PARQUET
    if is_parquet:
        yield from _parquet(path)
        return
    with opened(path) as text:
        blank = sum(1 for _ in takewhile(lambda line: not line.strip(), text))
        text.seek(0)
        begin = [text.readline() for _ in range(blank + 1)][-1].lstrip()
        if begin[:1] in {"{", "["}:
            yield from _json(path, begin, text, blank + 1)
            return
        text.seek(0)
        yield from _csv(path, text)


def lines(path: Path) -> Rows:
    """Yield the lines of a text that are not blank. Raises `OSError`."""
    with opened(path) as text:
        for number, line in enumerate(text, 1):
            if line.strip():
                yield f"row {number}", line.rstrip("\r\n")


def opened(path: Path) -> TextIO:
    """Open text whose lines end only at a line feed. Raises `OSError`."""
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    unpack = gzip.open if packed else open
    return unpack(path, "rt", encoding="utf-8-sig", newline="\n")


def _json(path: Path, begin: str, rest: TextIO, number: int) -> Rows:
    """`begin` is line `number`: all of a row, or the beginning of a document of several lines."""
    try:
        first = _decoded(begin, strict=False)
    except (ValueError, RecursionError):
        begin += rest.read()
        first = _located(path, begin, number, strict=True)
    more = next((line for line in rest if line.strip()), None) if isinstance(first, list) else None
    if isinstance(first, list) and more is None:
        yield from ((f"row {index}", value) for index, value in enumerate(first, 1))
        return
    if more is not None:
        raise UserMistake(f"line {number} of {path} is a JSON array, and others follow: write an object in each line.")
    yield f"row {number}", first
    for after, line in enumerate(rest, number + 1):
        if line.strip():
            yield f"row {after}", _located(path, line, after, strict=False)


def _decoded(text: str, strict: bool) -> Any:
    """Decode JSON; unless `strict`, texts may have control characters. Raises `ValueError` and `RecursionError`."""
    return json.loads(text, object_pairs_hook=_object, strict=strict)


def _located(path: Path, text: str, number: int, strict: bool) -> Any:
    """Raise `UserMistake` with the line: `text` begins in line `number`."""
    try:
        return _decoded(text, strict)
    except json.JSONDecodeError as error:
        raise UserMistake(f"line {number + error.lineno - 1} of {path} is not JSON ({error.msg}).") from None
    except RecursionError:
        raise UserMistake(f"line {number} of {path} has JSON that is nested too deeply.") from None
    except ValueError as error:
        raise UserMistake(f"line {number} of {path} cannot be read: {error}.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raise `ValueError` if a name occurs twice, because one of its values would be lost."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has `{next(name for name in names if names.count(name) > 1)}` twice")
    return values


def _csv(path: Path, text: TextIO) -> Rows:
    csv.field_size_limit(MAX_CELL)
    table = csv.reader(text, strict=True)
    header: list[str] = []
    try:
        for cells in table:
            place = f"line {table.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                if len(set(header)) < len(header):
                    raise UserMistake(f"{place} of {path} names a column twice.")
            elif len(cells) == len(header):
                yield place, dict(zip(header, cells, strict=True))
            else:
                raise UserMistake(
                    f"{place} of {path} has {len(cells)} values for {len(header)} columns; a text file with a prompt "
                    "in each line is called *.txt."
                )
    except csv.Error as error:
        raise UserMistake(f"line {table.line_num} of {path} is not CSV ({error}).") from None


def _parquet(path: Path) -> Rows:
    import polars

    try:
        table = polars.read_parquet(path)
    except polars.exceptions.PolarsError as error:
        raise OSError(f"it is not Parquet ({error})") from None
    for number, row in enumerate(table.iter_rows(named=True), 1):
        yield f"row {number}", {name: _without_nulls(value) for name, value in row.items()}


def _without_nulls(value: Any) -> Any:
    """Leave out null values inside a column: in Parquet, all objects of a column have the same fields."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
