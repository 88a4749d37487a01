"""Which tool a file is from, by what is in it, and the reader for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.imports import aiperf, guidellm, k6, locust_csv, vllm_bench
from analysis.imports.source import NotImportable, Results

KNOWN = (
    "guidellm's benchmarks.json, aiperf's profile_export.jsonl or profile_export_aiperf.json, the JSON of vllm bench "
    "serve, Locust's PREFIX_stats.csv, k6's --out json= or --summary-export"
)


def read(path: Path) -> Results:
    """Raises `NotImportable`, and `OSError` where the file cannot be read."""
    try:
        return _read(path)
    except UnicodeDecodeError:  # its repr() would be the whole file
        raise NotImportable(f"{path} is not text in UTF-8: convert it first.") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise NotImportable(f"{path} looks like a known format but cannot be read ({error!r}).") from None


def _read(path: Path) -> Results:
    if path.suffix == ".csv":
        if not locust_csv.is_locust(path):
            raise NotImportable(f"{path} is not Locust's PREFIX_stats.csv; known are {KNOWN}.")
        return locust_csv.read(path)
    first = _first(path)
    if aiperf.is_aiperf_record(first):
        return aiperf.read_records(path)
    if k6.is_k6_point(first):
        return k6.read_points(path)
    for fits, reader in (
        (guidellm.is_guidellm, guidellm.read),
        (vllm_bench.is_vllm, vllm_bench.read),
        (k6.is_k6, k6.read_summary),
        (aiperf.is_aiperf, aiperf.read_aggregates),
    ):
        if fits(first):
            return reader(path)
    raise NotImportable(f"{path} has an unknown format; known are {KNOWN}.")


def _first(path: Path) -> dict[str, Any]:
    """The whole document, or the first line of JSON Lines."""
    with path.open(encoding="utf-8", errors="replace") as file:
        line = file.readline()
        try:
            document = json.loads(line)
        except ValueError:
            try:
                document = json.loads(line + file.read())
            except ValueError as error:
                raise NotImportable(f"{path} is not JSON ({error}); known are {KNOWN}.") from None
    return document if isinstance(document, dict) else {}
