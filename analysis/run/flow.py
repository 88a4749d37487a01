"""What flowed when: tokens that had arrived by an instant, and requests in flight, exact at every nanosecond.

Both are kept as cumulative functions, so that any window, batch or second of the run is a difference of two of their
values and nothing is counted twice or lost at an edge. The chunk stamps are long (a million requests of a hundred
tokens have a hundred million), so they pass through a slice of requests at a time, and only the chunks of those
requests that are under way at an instant are looked at one by one.
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
Gaps = npt.NDArray[np.uint32] | npt.NDArray[np.int64]


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
    tokens, chunks, uncounted = (np.zeros(len(instants)) for _ in range(3))
    columns = {"seen_tokens": expression(SEEN_TOKENS), "first_tokens": expression(FIRST_TOKENS).fill_null(0)}
    answered = pl.scan_parquet(table).filter(pl.col("t_last").is_not_null())
    for part in _slices(answered.select("t_first", "t_last", "icl", **columns)):
        streamed = part.filter(pl.col("t_first").is_not_null())
        known, unknown = (streamed.filter(pl.col("seen_tokens").is_null() == null) for null in (False, True))
        _add_streams(known, instants, tokens, chunks)
        _add_streams(unknown.with_columns(seen_tokens=0), instants, np.zeros(len(instants)), uncounted)
        whole = part.filter(pl.col("t_first").is_null() & pl.col("seen_tokens").is_not_null())
        tokens += _by(instants, whole["t_last"].to_numpy(), whole["seen_tokens"].to_numpy())
    return Arrivals(tokens, chunks + uncounted, uncounted)


def _slices(requests: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    yield from requests.collect_batches(chunk_size=SLICE, maintain_order=False)


def _by(instants: Instants, stamps: Instants, weights: npt.NDArray[np.number]) -> Floats:
    """The weights of the stamps before each instant."""
    after = np.searchsorted(instants, stamps, side="right")
    sums = np.bincount(after, weights, minlength=len(instants) + 1)[:-1]
    return np.asarray(np.cumsum(sums), dtype=np.float64)


def _add_streams(part: pl.DataFrame, instants: Instants, tokens: Floats, chunks: Floats) -> None:
    """Add what the streamed answers of `part` had brought before each instant."""
    if part.is_empty():
        return
    start, total = part["t_first"].to_numpy(), part["seen_tokens"].to_numpy().astype(np.float64)
    gaps, later = flattened(part["icl"])
    first = np.where(later == 0, total, np.minimum(part["first_tokens"].to_numpy(), total))
    share = np.divide(total - first, later, out=np.zeros(len(total)), where=later > 0)
    elapsed = np.concatenate(
        (np.zeros(1, dtype=np.int64), np.cumsum(gaps, dtype=np.int64))
    )  # over all answers, end to end
    offset = np.cumsum(later) - later
    end = start + elapsed[offset + later] - elapsed[offset]
    tokens += _by(instants, end, total)
    chunks += _by(instants, end, 1.0 + later)
    request, instant = _under_way(instants, start, end)
    came = np.searchsorted(elapsed, instants[instant] - start[request] + elapsed[offset[request]]) - offset[request]
    # `came` counts the first chunk too: it stands at elapsed[offset].
    tokens += np.bincount(instant, first[request] + share[request] * (came - 1), minlength=len(instants))
    chunks += np.bincount(instant, came, minlength=len(instants))


def _under_way(instants: Instants, start: Instants, end: Instants) -> tuple[Instants, Instants]:
    """All pairs of an answer and an instant after its first chunk and not after its last one."""
    begun, done = (np.searchsorted(instants, stamps, side="right") for stamps in (start, end))
    pairs = np.maximum(done - begun, 0)
    request = np.repeat(np.arange(len(start)), pairs)
    within = np.arange(len(request)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    return request, begun[request] + within


def flattened(lists: pl.Series) -> tuple[Gaps, Instants]:
    """All gaps end to end, and how many belong to each request. A negative one (a clock was set back) counts as 0."""
    gaps = lists.explode(empty_as_null=False).to_numpy()
    if gaps.dtype != np.uint32 and len(gaps) and gaps.min() < 0:
        gaps = np.maximum(gaps, 0)
    return gaps, lists.list.len().cast(pl.Int64).to_numpy()


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
