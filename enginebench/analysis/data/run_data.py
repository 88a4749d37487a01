"""A loaded run folder: its settings, one row per request, its telemetry, and its killed processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

from enginebench.analysis.arrays import Integers
from enginebench.analysis.data.formulas import metric_columns
from enginebench.analysis.data.lines import LISTS, SCHEMA
from enginebench.analysis.data.requests_table import counted_with, scan, write_table
from enginebench.analysis.data.telemetry import TelemetrySeries, read_telemetry
from enginebench.analysis.data.tokens import TokenCounter
from enginebench.records.files import META, PLANNER, REQUEST_FILES, read_document, read_meta, requests_file
from enginebench.records.formula import Longest
from enginebench.records.metrics import REQUEST_METRICS
from enginebench.records.plain_text import UNSAFE
from enginebench.records.run import RunMeta
from enginebench.records.stage import MAX_INSTANT
from enginebench.settings.schema import UserMistake

STORED = tuple(metric.name for metric in REQUEST_METRICS if isinstance(metric.formula, Longest))  # of lists, on disk
REQUIRED = {"worker", "scenario", "stage", "outcome", "t_sched", "t_end"}
IN_FILE_ONLY = {*LISTS, "text", "request_id", "session", "prompt_id", "answer_digest"}  # chunks, or differs by row


class NotARun(UserMistake):
    """A folder is not a run that can be reported on. The message is one sentence with a remedy."""


@dataclass(frozen=True, slots=True)
class RunData:
    """`requests` has one row per request in the order of `t_sched`, with every field of the record that is not
    `IN_FILE_ONLY`; `table` is the Parquet file with everything. Metrics are computed for a window at a time
    (`with_metrics`): they take more memory than the fields, and no window has all requests.

    Instants are nanoseconds since the run's start. `last` is the latest known instant. `killed` maps each process that
    did not shut down cleanly to its last recorded instant.
    """

    folder: Path
    meta: RunMeta
    table: Path
    requests: pl.DataFrame
    telemetry: TelemetrySeries
    last: int
    killed: Mapping[str, int]
    malformed_lines: int


def load_run(folder: Path, tokenizer: Path | None = None) -> RunData:
    """Read a run and write its `requests.parquet`. `tokenizer` counts the answers of servers that send no usage.

    A run that was killed loads like any other. A tokenizer that was named once is remembered. Raises `NotARun`.
    """
    if (shown := os.fsencode(folder.absolute()).decode(errors="replace")) != str(folder.absolute()):
        raise NotARun(f"the name of the folder {shown} is not UTF-8: rename it.")
    tokenizer = tokenizer or counted_with(folder)
    try:
        meta = read_meta(folder)
        table, malformed = write_table(folder, TokenCounter(meta, tokenizer), tokenizer)
    except FileNotFoundError as error:
        raise NotARun(f"{folder} is not a run: it has no {Path(error.filename or META).name}.") from None
    except ValueError as error:
        raise NotARun(str(error)) from None
    except OSError as error:
        raise NotARun(f"{folder} cannot be read or written ({error.strerror}).") from None
    try:
        requests = _in_order(table)
    except (pl.exceptions.PolarsError, _OutOfBounds):
        damaged = f"{table} is damaged: delete it if {REQUEST_FILES} are there to rebuild it from, else copy it again."
        raise NotARun(damaged) from None
    if requests.is_empty():
        if meta.imported is not None:
            raise NotARun(f"{folder} was imported as statistics: it has no requests, which this needs.")
        if meta.hosts > 1:
            files = requests_file("*")
            raise NotARun(f"{folder} lacks what its workers recorded: copy {files} of every worker into it.")
        raise NotARun(f"{folder} holds no requests: let the test run longer, and see its log for errors.")
    telemetry = read_telemetry(folder)
    ended = requests["t_end"].max()
    assert isinstance(ended, int)
    last = max(ended, telemetry.last)
    return RunData(folder, meta, table, requests, telemetry, last, _killed(requests, telemetry, last), malformed)


class _OutOfBounds(ValueError):
    """A table has values that no record can have: it was not made by `write_table`."""


def _in_order(table: Path) -> pl.DataFrame:
    """Sort by `t_sched`, one column after the other, so that only one column is in memory twice.

    A column without observations takes no memory; texts, which repeat, become categories. Raises `_OutOfBounds`.
    """
    requests = scan(table)
    scheduled = _checked(requests.select("t_sched").collect().to_series())
    order = None if scheduled.is_sorted() else scheduled.arg_sort()
    columns = pl.DataFrame(scheduled if order is None else scheduled.gather(order)).with_columns(
        pl.col("t_sched").set_sorted()
    )
    for name in [*(name for name in SCHEMA if name not in {*IN_FILE_ONLY, "t_sched"}), *STORED]:
        column = pl.col(name).cast(pl.Categorical) if SCHEMA.get(name) == pl.String else pl.col(name)
        values = _checked(requests.select(column).collect(engine="streaming").to_series())
        if values.null_count() == len(values):
            columns = columns.with_columns(pl.lit(None, values.dtype).alias(values.name))
        else:
            columns = columns.with_columns(values if order is None else values.gather(order))
    return columns


def _checked(values: pl.Series) -> pl.Series:
    """Refuse values outside the bounds of a record, and replace control characters in texts."""
    if values.name in REQUIRED and values.null_count():
        raise _OutOfBounds
    if values.dtype.is_integer():
        lowest, highest = (end if isinstance(end, int) else 0 for end in (values.min(), values.max()))
        if lowest < (-MAX_INSTANT if values.dtype == pl.Int64 else 0) or highest > MAX_INSTANT:
            raise _OutOfBounds
    if values.dtype == pl.Categorical and values.unique().cast(pl.String).str.contains(UNSAFE).any():
        return values.cast(pl.String).str.replace_all(UNSAFE, " ").cast(pl.Categorical)
    return values


def _killed(requests: pl.DataFrame, telemetry: TelemetrySeries, last: int) -> dict[str, int]:
    """Return the last recorded instant of each killed process. That of the planner ends the run."""
    traces = requests.group_by("worker").agg(pl.max_horizontal(pl.col("t_send", "t_end").max()))
    recorded: dict[str, int] = dict(traces.iter_rows())
    return {
        name: last if name == PLANNER else max(process.last, recorded.get(name, 0))
        for name, process in telemetry.killed.items()
    }


def with_metrics(requests: pl.DataFrame) -> pl.DataFrame:
    """Add every metric of enginebench/records/metrics.py as a column. Counts become 64-bit, so that their sums fit."""
    columns = {name: column for name, column in metric_columns().items() if name not in STORED}
    return requests.with_columns(pl.col(pl.Int32).cast(pl.Int64)).with_columns(**columns)


def rows_where(requests: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Return the rows that meet a condition; nothing is copied if all of them do."""
    met = requests.select(condition).to_series()
    return requests if met.all(ignore_nulls=False) else requests.filter(met)


def users_of(requests: pl.DataFrame) -> Integers | None:
    """Return the user of each request, if all are known."""
    return requests["user"].to_numpy() if requests["user"].null_count() == 0 else None


def mean_of(values: pl.Series) -> float | None:
    """Average the observed values with NumPy: the last digits of multithreaded sums vary."""
    observed = values.drop_nulls().to_numpy()
    return float(observed.mean()) if len(observed) else None


def find_run(name: str | None, runs: Path) -> Path:
    """Return the run in `runs` whose id is `name` or starts with it; without a name, the newest. Raises `NotARun`."""
    folders = sorted((meta.parent for meta in runs.glob(f"*/{META}")), key=_started)
    if name is None:
        if not folders:
            raise NotARun(f"there is no run in {runs}/ yet: `enginebench run concurrent` makes one.")
        return folders[-1]
    exact = [folder for folder in folders if folder.name == name]
    matches = exact or [folder for folder in folders if folder.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise NotARun(
            f"{len(matches)} runs begin with `{name}`: {', '.join(f.name for f in matches)}; give more of the name."
        )
    if Path(name).is_dir():
        raise NotARun(f"the folder {name} holds no run: a run that was stopped before its first request leaves none.")
    hint = f"; {runs}/ has {', '.join(f.name for f in folders[-5:])}" if folders else ""
    raise NotARun(f"there is no run `{name}`: give the folder of a run{hint}.")


def _started(folder: Path) -> tuple[str, float]:
    """Return a sort key. ISO 8601 in UTC sorts as text; a file that cannot be read counts as old."""
    path = folder / META
    try:
        return read_document(path, _Started).started_at, path.stat().st_mtime
    except (OSError, ValueError):
        return "", 0.0


class _Started(msgspec.Struct):
    started_at: str
