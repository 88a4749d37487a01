"""Locust's `--csv` output: `PREFIX_stats.csv` has aggregates of each endpoint, and no single requests.

Locust rounds response times to two digits before it takes percentiles, and stops its clock at the end of the response,
or, with `stream=True`, at the headers: the file does not say which.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

from analysis.imports.source import ANSWERED, COMMON, Aggregates, NotImportable, Percentiles, Results, Source, load_of

LACKS = (
    "single requests",
    "intervals within the run",
    "TTFT, TPOT or tokens: Locust's own statistics are of HTTP responses",
    "percentiles that are not rounded to two digits",
    *COMMON,
)
PERCENTILES = ("50%", "90%", "95%", "99%")


def is_locust(path: Path) -> bool:
    with path.open(encoding="utf-8", newline="") as lines:
        return {"Request Count", "Failure Count", "Requests/s"} <= set(next(csv.reader(lines), []))


def read(path: Path) -> Results:
    """Raises `NotImportable`, `KeyError` or `ValueError`."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["Name"] == "Aggregated"]
    if not rows:
        raise NotImportable(f"{path} has no Aggregated row: give the file that ends in _stats.csv.")
    row = rows[-1]
    count, failed, rate = int(row["Request Count"]), int(row["Failure Count"]), float(row["Requests/s"])
    users, started = _history(path)
    latency = Percentiles(
        _milliseconds(row["Average Response Time"]),
        None,
        _milliseconds(row["Min Response Time"]),
        _milliseconds(row["Max Response Time"]),
        *(_milliseconds(row.get(name)) for name in PERCENTILES),
    )
    seconds = count / rate if rate else None
    load = load_of(users, None)
    aggregates = Aggregates(load, seconds, count - failed, failed, None, {"e2e": latency}, answered_alone=not failed)
    lacks = (*LACKS, ANSWERED) if failed else LACKS
    return Results(Source("Locust", None, None, None, started, lacks), aggregates=(aggregates,))


def _history(path: Path) -> tuple[int | None, str | None]:
    """The most users and the first instant, from `PREFIX_stats_history.csv` if it is in the same folder."""
    beside = path.with_name(path.name.replace("_stats.csv", "_stats_history.csv"))
    if beside == path or not beside.exists():
        return None, None
    with beside.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    if not rows:
        return None, None
    started = datetime.fromtimestamp(int(rows[0]["Timestamp"]), UTC).isoformat()
    return max(int(row["User Count"]) for row in rows), started


def _milliseconds(text: str | None) -> float | None:
    return None if text in {None, "", "N/A"} else float(text or 0) / 1e3
