"""Tokens that had arrived by an instant of a run, and requests in flight, exact at every nanosecond.

Both are cumulative functions. Any window, batch or second of the run is a difference of two values, so nothing is
counted twice or lost at an edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from enginebench.analysis.arrays import Flags, Floats, Instants, Integers
from enginebench.analysis.data.chunks import Chunks, chunks_of
from enginebench.analysis.data.gaps import GapCounter
from enginebench.analysis.data.run_data import RunData
from enginebench.analysis.data.telemetry import Increase
from enginebench.analysis.data.windows import Window


class Arrivals:
    """Tokens, chunks, and chunks with unknown tokens that had arrived before each of some ascending instants.

    A stream's first chunk has its own token count and the later chunks share the rest evenly; an answer that was not
    streamed has all tokens at its end. Tokens that no chunk showed (hidden reasoning) have no instant. Failed and
    cut-off requests count, because their tokens were delivered.
    """

    def __init__(self, instants: Instants) -> None:
        self.instants = instants
        self.tokens, self.chunks, self.uncounted = (np.zeros(len(instants)) for _ in range(3))

    def add(self, part: Chunks) -> None:
        elapsed = np.empty(len(part.gaps) + 1, dtype=np.int64)
        elapsed[0] = 0
        np.cumsum(part.gaps, dtype=np.int64, out=elapsed[1:])
        streamed = part.streamed & part.answered
        tokens, chunks = self._streams(part, elapsed, streamed & part.counted)
        self.tokens += tokens
        self.chunks += chunks
        _, chunks = self._streams(part, elapsed, streamed & ~part.counted)
        self.chunks += chunks
        self.uncounted += chunks
        whole = part.answered & part.counted & ~part.streamed
        self.tokens += self._by(part.last[whole], part.tokens[whole])

    def _by(self, stamps: Instants, weights: npt.NDArray[np.number]) -> Floats:
        """Sum the weights of the stamps before each instant."""
        after = np.searchsorted(self.instants, stamps, side="right")
        sums = np.bincount(after, weights, minlength=len(self.instants) + 1)[:-1]
        return np.asarray(np.cumsum(sums), dtype=np.float64)

    def _streams(self, part: Chunks, elapsed: Integers, rows: Flags) -> tuple[Floats, Floats]:
        """Return the tokens and chunks that had arrived before each instant, of the streamed answers in `rows`.

        `elapsed` is the sum of all gaps before each chunk, over all answers end to end.
        """
        start, later, offset = (values[rows] for values in (part.start, part.later, part.offset))
        total = part.tokens[rows]
        first = np.where(later == 0, total, np.minimum(part.first_tokens[rows], total))
        share = np.divide(total - first, later, out=np.zeros(len(total)), where=later > 0)
        end = start + elapsed[offset + later] - elapsed[offset]
        request, instant = self._under_way(start, end)
        before = np.searchsorted(elapsed, self.instants[instant] - start[request] + elapsed[offset[request]])
        came = before - offset[request]  # including the first chunk, at elapsed[offset]
        n = len(self.instants)
        tokens = self._by(end, total) + np.bincount(instant, first[request] + share[request] * (came - 1), n)
        return tokens, self._by(end, 1.0 + later) + np.bincount(instant, came, n)

    def _under_way(self, start: Instants, end: Instants) -> tuple[Integers, Integers]:
        """Return all pairs of an answer and an instant after its first chunk and not after its last one."""
        begun, done = (np.searchsorted(self.instants, stamps, side="right") for stamps in (start, end))
        pairs = np.maximum(done - begun, 0)
        request = np.repeat(np.arange(len(start)), pairs)
        within = np.arange(len(request)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        return request, begun[request] + within


class InFlight:
    """The number of requests between sending their first byte and the end of their stream, from all stamps of a run."""

    def __init__(self, sent: Instants, ended: Instants) -> None:
        self._sent, self._ended = np.sort(sent), np.sort(ended)
        self._sent_sum = np.concatenate(([0], np.cumsum(self._sent)))
        self._ended_sum = np.concatenate(([0], np.cumsum(self._ended)))

    def averages(self, instants: Instants) -> Floats:
        """Return the time average of the requests in flight between successive instants."""
        sent, ended = np.searchsorted(self._sent, instants), np.searchsorted(self._ended, instants)
        # ∫ requests in flight dt from the run's start to each instant t: a request sent before t adds t − t_send; if it
        # ended before t, t − t_end is subtracted.
        area = (sent - ended) * instants - (self._sent_sum[sent] - self._ended_sum[ended])
        return np.asarray(np.diff(area) / np.diff(instants), dtype=np.float64)


class Flows:
    """Tokens and requests in flight of a whole run at the given `instants`, and the gaps between chunks by window
    index."""

    def __init__(self, run: RunData, windows: Sequence[Window], instants: Instants) -> None:
        self._instants = np.unique(np.concatenate([instants, *(window.instants for window in windows)]))
        self._arrived = Arrivals(self._instants)
        longest = run.requests.select((pl.col("t_end") - pl.col("t_first")).max()).item() or 0
        spans = [(window.start, window.end) for window in windows]
        gaps = GapCounter(spans, longest)
        for part in chunks_of(run.table):
            self._arrived.add(part)
            gaps.count(part)
        if not gaps.settled():
            for part in chunks_of(run.table):
                gaps.locate(part)
        self.gaps = {window.key.index: pooled for window, pooled in zip(windows, gaps.pooled, strict=True)}
        sent = run.requests.select("t_send", "t_end").drop_nulls()
        self.in_flight = InFlight(sent["t_send"].to_numpy(), sent["t_end"].to_numpy())

    def tokens(self, instants: Instants) -> Floats:
        """Return the tokens that arrived between successive instants."""
        return np.diff(self._arrived.tokens[np.searchsorted(self._instants, instants)])

    def chunks(self, instants: Instants) -> Floats:
        """Return the streamed chunks that arrived between successive instants."""
        return np.diff(self._arrived.chunks[np.searchsorted(self._instants, instants)])

    def tokens_of(self, span: Increase) -> float:
        """Return the tokens that arrived while a counter of the server was observed."""
        return float(self.tokens(np.array([span.start, span.end], dtype=np.int64))[0])

    def uncounted(self, start: int, end: int) -> int:
        """Return the chunks that arrived with an unknown number of tokens."""
        before, after = self._arrived.uncounted[np.searchsorted(self._instants, [start, end])]
        return round(float(after - before))
