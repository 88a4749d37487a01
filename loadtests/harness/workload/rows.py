"""Files of rows that people give: JSONL, Parquet, or CSV with a header; text may be compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from enginebench.settings.schema import UserMistake

GZIP, PARQUET = b"\x1f\x8b", b"PAR1"  # first bytes
Row = Mapping[str, Any]


def rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Of a file of any name, each with the number of its line. Raises `OSError` and `UserMistake`."""
    with path.open("rb") as file:
        if file.read(len(PARQUET)) == PARQUET:
            yield from _parquet(path)
            return
    with opened(path) as text:
        first = text.readline()
        lines = chain([first], text)
        if first[:1] not in {"{", "["}:
            table = csv.DictReader(lines)
            yield from ((table.line_num, row) for row in table)
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise UserMistake(f"line {number} of {path} is not JSON ({error.msg}).") from None
                if not isinstance(row, dict):
                    raise UserMistake(f"line {number} of {path} is not a JSON object.")
                yield number, row


def opened(path: Path, errors: str = "strict") -> TextIO:
    """As text, unpacked where it is compressed. Raises `OSError`."""
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    unpack = gzip.open if packed else open
    return unpack(path, "rt", encoding="utf-8-sig", errors=errors, newline="")


def _parquet(path: Path) -> Iterator[tuple[int, Row]]:
    import polars

    try:
        table = polars.read_parquet(path)
    except polars.exceptions.PolarsError as error:
        raise OSError(f"it is not Parquet ({error})") from None
    yield from enumerate(table.iter_rows(named=True), 1)
