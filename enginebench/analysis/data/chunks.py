"""The chunks of all answers, a slice of requests at a time: a million answers may have a hundred million chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from enginebench.analysis.arrays import Flags, Floats, Integers
from enginebench.analysis.data.formulas import expression
from enginebench.analysis.data.requests_table import scan
from enginebench.records.metrics import FIRST_TOKENS, ICL, OUTPUT_TOKENS, SEEN_TOKENS
from enginebench.records.stage import SECOND

SLICE = 10_000  # requests whose chunks are in memory together: arrays of a few megabytes, whose memory malloc reuses
MAX_CHUNKS, PIECES = 1_000_000, 10  # per window
Gaps = npt.NDArray[np.uint32] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunks:
    """A slice of requests, one entry each, and the gaps of all of them end to end. Instants are nanoseconds since the
    run's start.

    A request has `later` gaps from `offset` on, one for each chunk after the first. Unknown instants and tokens are 0.
    """

    sched: Integers
    ok: Flags
    streamed: Flags  # the first chunk was seen
    answered: Flags  # a part of the answer came
    counted: Flags  # the tokens are known
    start: Integers
    last: Integers
    tokens: Floats  # in all chunks
    first_tokens: Floats  # in the first chunk
    offset: Integers
    later: Integers
    gaps: Gaps


def chunks_of(table: Path) -> Iterator[Chunks]:
    """Read all requests of a run in the table's order, so that sums are reproducible to the last bit."""
    tokens = expression(SEEN_TOKENS)
    requests = scan(table).select(
        "t_sched",
        ICL.name,
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
        columns = {name: part[name].to_numpy() for name in part.columns if name not in {"t_sched", ICL.name}}
        later, offset, gaps = _gaps_of(part)
        yield Chunks(sched=part["t_sched"].to_numpy(), offset=offset, later=later, gaps=gaps, **columns)


def _gaps_of(requests: pl.DataFrame) -> tuple[Integers, Integers, Gaps]:
    """Return each request's number of gaps and its offset in the third array: all gaps end to end."""
    gaps = requests[ICL.name].explode(empty_as_null=False).to_numpy()
    if gaps.dtype != np.uint32 and len(gaps) and gaps.min() < 0:
        gaps = np.maximum(gaps, 0)  # negative if a clock was set back
    later = requests[ICL.name].list.len().cast(pl.Int64).to_numpy()
    return later, np.cumsum(later) - later, gaps


@dataclass(frozen=True, slots=True)
class WindowChunks:
    """The chunks of a span that ends at `end`, in order, and the requests they belong to.

    Instants are seconds since the run's start. `stamp` and `request` have one element a chunk, the rest one a request.
    """

    end: float
    stamp: Floats
    request: Integers
    due: Floats
    first: Floats
    last: Floats
    prefilled: Floats  # prompt tokens that were not cached
    output: Floats  # tokens of the answer


def chunks_within(table: Path, start: int, end: int) -> Iterator[WindowChunks]:
    """Yield the chunks of [`start`, `end`), nanoseconds since the run's start. If there are more than `MAX_CHUNKS`,
    yield about that many, in `PIECES` that begin at equal distances."""
    here = scan(table).filter(pl.col("t_first").is_not_null() & (pl.col("t_sched") < end) & (pl.col("t_last") >= start))
    total = here.select(pl.col("chunks").sum()).collect().item() or 0
    pieces = PIECES if total > MAX_CHUNKS else 1
    length = (end - start) // pieces
    kept = min(length, round(length * MAX_CHUNKS / max(total, 1)))
    for piece in range(pieces):
        begin = start + piece * length
        yield _within(here, begin, begin + kept)


def _within(requests: pl.LazyFrame, start: int, end: int) -> WindowChunks:
    prefilled = pl.col("prompt_tokens").fill_null(0) - pl.col("cached_tokens").fill_null(0)
    rows = (
        requests.filter((pl.col("t_sched") < end) & (pl.col("t_last") >= start))
        .select("t_sched", "t_first", "t_last", ICL.name, OUTPUT_TOKENS, prefilled=prefilled)
        .sort("t_first")
        .collect()
    )
    first = rows["t_first"].to_numpy()
    later, offset, gaps = _gaps_of(rows)
    request = np.repeat(np.arange(len(first)), later + 1)
    position = np.arange(len(request)) - np.repeat(offset + np.arange(len(first)), later + 1)
    elapsed = np.concatenate(([0], np.cumsum(gaps, dtype=np.int64)))  # before each gap, over all answers end to end
    stamps = first[request] + elapsed[offset[request] + position] - elapsed[offset[request]]
    inside = np.flatnonzero((stamps >= start) & (stamps < end))
    order = inside[np.argsort(stamps[inside], kind="stable")]
    return WindowChunks(
        end / SECOND,
        stamps[order] / SECOND,
        request[order],
        rows["t_sched"].to_numpy() / SECOND,
        first / SECOND,
        rows["t_last"].to_numpy() / SECOND,
        rows["prefilled"].to_numpy().astype(np.float64),
        rows[OUTPUT_TOKENS].fill_null(0).to_numpy().astype(np.float64),
    )
