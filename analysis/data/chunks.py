"""The chunks of all answers, a slice of requests at a time: a million of a hundred tokens have a hundred million.

Only those of the answers under way at an instant are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.data.formulas import expression
from records.metrics import FIRST_TOKENS, SEEN_TOKENS

SLICE = 20_000  # requests whose chunks are in memory together: arrays of less than 32 MB, whose memory malloc reuses
KEPT = 640 * 1024 * 1024  # bytes of chunks that stay in memory between two passes; a million answers of 100 tokens fit
Ints = npt.NDArray[np.int64]  # of stamps: nanoseconds since the run's start
Floats = npt.NDArray[np.float64]
Gaps = npt.NDArray[np.uint32] | npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chunks:
    """Of a slice of requests, an entry for each; and the gaps of all of them end to end.

    A request's gaps begin at `offset`, and there are `later` of them, one for each chunk after the first. `start` and
    `last` are 0, and the tokens 0, where they are not known.
    """

    sched: Ints
    ok: Mask
    streamed: Mask  # its first chunk was seen
    answered: Mask  # something came of its answer
    counted: Mask  # its tokens are known
    start: Ints
    last: Ints
    tokens: Floats  # that came in chunks
    first_tokens: Floats  # of them in the first one
    offset: Ints
    later: Ints
    gaps: Gaps

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))


class RunChunks:
    """All chunks of a run, for several passes. Reading them takes longer than counting them, so they stay in memory
    after the first pass if they have room in `KEPT`."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._requests = int(pl.scan_parquet(table).select(pl.len()).collect().item())
        self._kept: list[Chunks] | None = None

    def __iter__(self) -> Iterator[Chunks]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Chunks] = []
        size = read = 0
        fit = True
        for part in chunks_of(self._table):
            size, read = size + part.size, read + len(part.ok)
            fit = fit and size * self._requests <= KEPT * read  # if the rest is like what has been read
            if fit:
                kept.append(part)
            else:
                kept.clear()
            yield part
        if fit:
            self._kept = kept


def chunks_of(table: Path) -> Iterator[Chunks]:
    """All requests of a run in the table's order, so that sums over them are the same to the last bit each time."""
    tokens = expression(SEEN_TOKENS)
    requests = pl.scan_parquet(table).select(
        "t_sched",
        "icl",
        ok=pl.col("outcome") == "ok",
        streamed=pl.col("t_first").is_not_null(),
        answered=pl.col("t_last").is_not_null(),
        counted=tokens.is_not_null(),
        start=pl.col("t_first").fill_null(0),
        last=pl.col("t_last").fill_null(0),
        tokens=tokens.fill_null(0).cast(pl.Float64),
        first_tokens=expression(FIRST_TOKENS).fill_null(0).cast(pl.Float64),
    )
    for part in requests.collect_batches(chunk_size=SLICE, maintain_order=True):
        gaps = part["icl"].explode(empty_as_null=False).to_numpy()
        if gaps.dtype != np.uint32 and len(gaps) and gaps.min() < 0:
            gaps = np.maximum(gaps, 0)  # a clock was set back
        later = part["icl"].list.len().cast(pl.Int64).to_numpy()
        columns = {name: part[name].to_numpy() for name in requests.collect_schema() if name not in {"t_sched", "icl"}}
        yield Chunks(
            sched=part["t_sched"].to_numpy(), offset=np.cumsum(later) - later, later=later, gaps=gaps, **columns
        )
