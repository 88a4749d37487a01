"""Gaps and arrivals of many requests against NumPy on all of them at once."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from enginebench.analysis.data import chunks as slices
from enginebench.analysis.data import gaps as gap_module
from enginebench.analysis.data import requests_table as writer
from enginebench.analysis.data.chunks import chunks_of, chunks_within
from enginebench.analysis.data.gaps import GapCounter
from enginebench.analysis.data.lines import SCHEMA
from enginebench.analysis.data.requests_table import TABLE, sink
from enginebench.records.metrics import PERCENTILES
from enginebench.records.stage import SECOND
from enginebench.records.view import EMPTY, Distribution
from tests.support.analysis.synthetic import record


def table(tmp_path: Path, gaps: list[list[int]]) -> Path:
    """Answers 10 ms apart, a first chunk after 100 ms and one token a chunk."""
    requests = []
    for k, own in enumerate(gaps):
        one = record(k, k * SECOND // 100, icl=tuple(own), chunks=len(own) + 1, output_tokens=len(own) + 1)
        last = (one.t_first or 0) + sum(own)
        requests.append({name: getattr(one, name) for name in SCHEMA} | {"t_last": last, "t_end": last})
    frame = pl.DataFrame([row | {"icl": list(row["icl"])} for row in requests], schema=SCHEMA)
    sink(lambda gaps: iter([frame.cast({"icl": pl.List(gaps)})]), tmp_path / TABLE)
    return tmp_path / TABLE


def pooled(path: Path, windows: list[tuple[int, int]], longest: int) -> list[Distribution]:
    counter = GapCounter(windows, longest)
    for part in chunks_of(path):
        counter.count(part)
    if not counter.settled():
        for part in chunks_of(path):
            counter.locate(part)
    return counter.pooled


@pytest.mark.parametrize(
    ("draw", "longest"),
    [
        pytest.param(lambda rng, n: rng.integers(15_000_000, 25_000_000, n), 3 * SECOND, id="spread over 10 ms"),
        pytest.param(lambda rng, n: rng.integers(20_000_000, 20_000_009, n), 3 * SECOND, id="a few ns apart"),
        pytest.param(lambda rng, n: np.full(n, 20_000_000), 3 * SECOND, id="all alike"),
        pytest.param(lambda rng, n: rng.integers(0, 9 * SECOND, n), 60 * SECOND, id="longer than 32 bits hold"),
        pytest.param(lambda rng, n: rng.integers(0, 9_000_000, n), 1000, id="longer than they were said to be"),
        pytest.param(lambda rng, n: rng.integers(0, 3, n), 0, id="almost none"),
    ],
)
def test_pooled_percentiles_are_those_of_all_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw: object, longest: int
) -> None:
    monkeypatch.setattr(slices, "SLICE", 7)
    rng = np.random.default_rng(3)
    gaps = [draw(rng, n).tolist() for n in rng.integers(0, 40, 60)]  # type: ignore[operator]
    path = table(tmp_path, gaps)
    bounds = [(0, SECOND // 4), (SECOND // 4, 10 * SECOND), (20 * SECOND, 30 * SECOND)]
    found = pooled(path, bounds, longest)
    for one, members in zip(found[:2], (gaps[:25], gaps[25:]), strict=True):
        values = np.array([gap for own in members for gap in own])
        assert one.n == len(values)
        expected = np.quantile(values, list(PERCENTILES.values()), method="inverted_cdf") / SECOND
        assert [each.value for each in one.percentiles.values()] == expected.tolist(), "exact to the nanosecond"
        assert one.mean == pytest.approx(values.mean() / SECOND, rel=1e-12)
        assert one.deviation == pytest.approx(values.std(ddof=1) / SECOND, rel=1e-9, abs=1e-15)
        assert (one.least, one.largest) == (values.min() / SECOND, values.max() / SECOND)
    assert found[2] == EMPTY


@pytest.mark.parametrize(
    ("drift", "kept", "settled"),
    [
        pytest.param(0, gap_module.KEPT, True, id="the percentiles stay where the first gaps have them"),
        pytest.param(1_000_000, gap_module.KEPT, False, id="they move away"),
        pytest.param(0, 100, False, id="the gaps near them are too many to be kept"),
    ],
)
def test_chunks_are_read_again_only_where_too_few_gaps_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drift: int, kept: int, settled: bool
) -> None:
    monkeypatch.setattr(slices, "SLICE", 50)
    monkeypatch.setattr(gap_module, "KEPT", kept)
    monkeypatch.setattr(gap_module, "FIRST", 5_000)
    rng = np.random.default_rng(11)
    gaps = [rng.integers(15_000_000, 25_000_000, 60) + drift * (k // 50) for k in range(200)]
    counter = GapCounter([(0, 10 * SECOND)], SECOND)
    path = table(tmp_path, [own.tolist() for own in gaps])
    for part in chunks_of(path):
        counter.count(part)
    assert counter.settled() is settled
    if not settled:
        for part in chunks_of(path):
            counter.locate(part)
    (found,) = counter.pooled
    expected = np.quantile(np.concatenate(gaps), list(PERCENTILES.values()), method="inverted_cdf") / SECOND
    assert [each.value for each in found.percentiles.values()] == expected.tolist()


def test_chunks_come_in_the_order_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty row groups, which several threads read, five times: a summary must not depend on which was first."""
    monkeypatch.setattr(writer, "ROWS", 100)
    monkeypatch.setattr(slices, "SLICE", 7)
    path = table(tmp_path, [[k] * (k % 50) for k in range(3000)])
    expected = pl.read_parquet(path)["t_sched"].to_list()
    for _ in range(5):
        assert [scheduled for part in chunks_of(path) for scheduled in part.sched.tolist()] == expected


def test_a_gap_that_goes_backwards_counts_as_none(tmp_path: Path) -> None:
    (found,) = pooled(table(tmp_path, [[5, -3, 7]]), [(0, SECOND)], 10)
    assert (found.least, found.largest) == (0, 7 / SECOND)


def test_chunks_of_a_window_are_those_of_every_answer_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    gaps = [rng.integers(0, 80_000_000, n).tolist() for n in rng.integers(0, 60, 50)]
    path = table(tmp_path, gaps)
    stamped = sorted(
        (k * SECOND // 100 + SECOND // 10 + stamp, k, place)
        for k, own in enumerate(gaps)
        for place, stamp in enumerate(np.cumsum([0, *own]).tolist())
    )
    start, end = SECOND // 2, 2 * SECOND
    expected = [stamp / SECOND for stamp, *_ in stamped if start <= stamp < end]
    (window,) = chunks_within(path, start, end)
    assert window.stamp.tolist() == expected
    assert (window.due[window.request] <= window.stamp).all()
    assert (window.first[window.request] <= window.stamp).all()
    monkeypatch.setattr(slices, "MAX_CHUNKS", len(expected) // 2)
    pieces = list(chunks_within(path, start, end))
    assert len(pieces) == slices.PIECES
    assert sum(len(piece.stamp) for piece in pieces) == pytest.approx(len(expected) / 2, rel=0.3)
