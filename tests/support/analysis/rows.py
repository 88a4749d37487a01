"""The rows of the frame, as `enginebench report --json` prints them."""

import json

import polars as pl


def rows_of(printed: str) -> pl.DataFrame:
    """Return the rows of single runs, without those over all repeats of an engine."""
    return pl.DataFrame(json.loads(printed)["rows"], infer_schema_length=None).drop_nulls("repeat")


def number(rows: pl.DataFrame, metric: str, statistic: str, stage: str | None = None, column: str = "value") -> float:
    """Return the single value of a metric; `stage` is not needed if there is only one."""
    found = rows.filter(metric=metric, statistic=statistic, **({} if stage is None else {"stage": stage}))
    assert found.height == 1, found
    return float(found[column][0])
