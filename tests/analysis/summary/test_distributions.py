"""Distributions of latencies with failed and censored requests in them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from analysis.stats.intervals import DEPENDS_ON_CUT_OFF
from analysis.summary.run_summary import as_document
from records.stage import SECOND
from tests.support.analysis.one_stage import MS, stage_of, summary_of
from tests.support.analysis.synthetic import FAILED, NOTHING_CAME, record


def test_icl_is_pooled_over_chunks(tmp_path: Path) -> None:
    """Gaps of 10 ms three times and of 5 s once, in two answers: longer than 32 bits of nanoseconds hold."""
    records = [
        record(0, 3 * SECOND, icl=(10 * MS, 10 * MS, 10 * MS), chunks=4, output_tokens=4),
        record(1, 3 * SECOND, icl=(5 * SECOND,), chunks=2, output_tokens=2),
        record(2, 3 * SECOND, icl=(), chunks=1, output_tokens=1),
    ]
    icl = stage_of(tmp_path, records).latencies["icl"]
    assert (icl.n, icl.p50.value, icl.largest) == (4, 0.01, 5.0)
    assert icl.mean == pytest.approx(5.03 / 4)
    assert icl.p50.low is None


def test_failed_requests_are_infinitely_long(tmp_path: Path) -> None:
    """Six of ten requests refused: the median of all is failed, that of the answered ones stands beside it."""
    records = [record(k, 3 * SECOND + k, **(FAILED if k % 10 < 6 else {})) for k in range(1000)]
    stage = stage_of(tmp_path, records)
    ttft = stage.latencies["ttft"]
    assert (ttft.p50.value, ttft.p50.why) == (math.inf, "failed")
    assert ttft.answered == {"p50": 0.1, "p90": 0.1, "p95": 0.1, "p99": 0.1}
    assert (ttft.n, ttft.failed) == (1000, 600)
    assert ttft.mean == pytest.approx(0.1)
    assert stage.overloaded
    assert stage.failure_rate == pytest.approx(600 / 7)
    document = as_document(summary_of(tmp_path, records))
    assert document["stages"][0]["latencies"]["ttft"]["p50"]["value"] is None
    assert document["stages"][0]["latencies"]["ttft"]["p50"]["why"] == "failed"


def test_what_is_known_of_a_censored_request_counts(tmp_path: Path) -> None:
    """Ten of a hundred were cut off 50 ms after they were sent: p50 is known, p95 is not; their TTFO came at 20 ms."""
    records = [record(k, 3 * SECOND + k * MS) for k in range(90)]
    for k in range(10):
        t = 4 * SECOND + k * MS
        cut = NOTHING_CAME | {"t_end": t + 50 * MS, "t_first_out": t + 20 * MS}
        records.append(record(90 + k, t, outcome="cut_off", **cut))
    latencies = stage_of(tmp_path, records).latencies
    assert latencies["ttft"].p50.value == pytest.approx(0.1)
    assert (latencies["ttft"].p95.value, latencies["ttft"].p95.why) == (None, DEPENDS_ON_CUT_OFF)
    assert latencies["ttfo"].p90.value == pytest.approx(0.1)
    assert latencies["ttfo"].least == pytest.approx(0.02)
    assert latencies["e2e"].p95.value is None
