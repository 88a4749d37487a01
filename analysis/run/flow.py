"""What flowed when: tokens that had arrived by an instant, and requests in flight, exact at every nanosecond.

Both are kept as cumulative functions, so that any window, batch or second of the run is a difference of two of their
values and nothing is counted twice or lost at an edge. The chunk stamps are long (a million requests have sixty
million), so they are laid out a slice of requests at a time and never all together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.run.formulas import expression
from records.metrics import FIRST_TOKENS, SEEN_TOKENS

SLICE = 50_000  # requests whose chunk stamps are in memory together
Instants = npt.NDArray[np.int64]  # nanoseconds since the run's start
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrived before each of some ascending instants: tokens, chunks, and chunks whose tokens are unknown."""

    tokens: Floats
    chunks: Floats
    uncounted: Floats


def arrivals_by(table: Path, instants: Instants) -> Arrivals:
    """Output tokens, and the chunks they came in, that had arrived before each of the ascending `instants`.

    A stream's first chunk brings its own tokens and the later ones share the rest evenly; an answer that was not
    streamed brings all of them at its end. Tokens that no chunk showed (hidden reasoning) have no instant. Failed and
    cut-off requests count: what they brought had been delivered.
    """
    tokens, counted, uncounted = (np.zeros(len(instants) + 1) for _ in range(3))
    for part in _slices(pl.scan_parquet(table).filter(pl.col("t_last").is_not_null())):
        known = part.filter(pl.col("seen_tokens").is_not_null())
        stamps, weights = _streamed(known)
        bins = _bins(instants, stamps)
        tokens += _sums(instants, bins, weights)
        counted += _sums(instants, bins)
        stamps, weights = _whole(known)
        tokens += _sums(instants, _bins(instants, stamps), weights)
        unknown = part.filter(pl.col("seen_tokens").is_null())
        stamps, _ = _streamed(unknown.with_columns(seen_tokens=0, first_tokens=0.0))
        uncounted += _sums(instants, _bins(instants, stamps))
    return Arrivals(*(np.cumsum(each)[:-1] for each in (tokens, counted + uncounted, uncounted)))


def _slices(requests: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    tokens = {"seen_tokens": expression(SEEN_TOKENS), "first_tokens": expression(FIRST_TOKENS).fill_null(0)}
    yield from requests.select("t_first", "t_last", "icl", **tokens).collect_batches(chunk_size=SLICE)


def _bins(instants: Instants, stamps: Instants) -> Instants:
    """0 before the first instant, then 1 for each one passed."""
    return np.searchsorted(instants, stamps, side="right")


def _sums(instants: Instants, bins: Instants, weights: Floats | None = None) -> Floats:
    """Weight, or without weights how many, before the first instant, between each two, and from the last one on."""
    return np.bincount(bins, weights=weights, minlength=len(instants) + 1).astype(np.float64)


def _streamed(part: pl.DataFrame) -> tuple[Instants, Floats]:
    """The stamp and the tokens of every chunk of the streamed answers."""
    part = part.filter(pl.col("t_first").is_not_null())
    start, total = part["t_first"].to_numpy(), part["seen_tokens"].to_numpy().astype(np.float64)
    gaps, later = _flattened(part["icl"])
    first = np.where(later == 0, total, np.minimum(part["first_tokens"].to_numpy(), total))
    offsets = np.cumsum(later) - later
    elapsed = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(gaps)))
    begins = np.repeat(start - elapsed[offsets], later)
    share = np.divide(total - first, later, out=np.zeros(len(total)), where=later > 0)
    return np.concatenate((start, begins + elapsed[1:])), np.concatenate((first, np.repeat(share, later)))


def _whole(part: pl.DataFrame) -> tuple[Instants, Floats]:
    part = part.filter(pl.col("t_first").is_null())
    return part["t_last"].to_numpy(), part["seen_tokens"].to_numpy().astype(np.float64)


def _flattened(lists: pl.Series) -> tuple[Instants, Instants]:
    """All gaps end to end, and how many belong to each request."""
    return lists.explode(empty_as_null=False).to_numpy(), lists.list.len().cast(pl.Int64).to_numpy()


def chunk_gaps(table: Path, start: int, end: int) -> npt.NDArray[np.uint32] | Instants:
    """Nanoseconds between successive chunks, pooled over the answers scheduled in [start, end), in no order.

    Four bytes a gap, unless one is longer than four seconds.
    """
    inside = (pl.col("outcome") == "ok") & pl.col("t_sched").is_between(start, end, closed="left")
    parts = []
    for part in _slices(pl.scan_parquet(table).filter(inside)):
        gaps = part["icl"].explode(empty_as_null=False).to_numpy()
        parts.append(gaps.astype(np.uint32) if not len(gaps) or 0 <= gaps.min() <= gaps.max() < 2**32 else gaps)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


class InFlight:
    """How many requests were between their first byte sent and their stream's end, from all of a run's stamps."""

    def __init__(self, sent: Instants, ended: Instants) -> None:
        self._sent, self._ended = np.sort(sent), np.sort(ended)
        self._sent_sum = np.concatenate(([0], np.cumsum(self._sent)))
        self._ended_sum = np.concatenate(([0], np.cumsum(self._ended)))

    def request_time(self, instants: Instants) -> Floats:
        """∫ requests in flight dt from the run's start to each instant, in request-nanoseconds."""
        sent, ended = np.searchsorted(self._sent, instants), np.searchsorted(self._ended, instants)
        # Every request sent before t adds t − t_send, every one ended before t takes t − t_end away again.
        area = (sent - ended) * instants - (self._sent_sum[sent] - self._ended_sum[ended])
        return np.asarray(area, dtype=np.float64)

    def averages(self, instants: Instants) -> Floats:
        """Time-average of the requests in flight between each two successive instants."""
        return np.asarray(np.diff(self.request_time(instants)) / np.diff(instants), dtype=np.float64)
