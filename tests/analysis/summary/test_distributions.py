"""Distributions of latencies with failed and censored requests in them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from enginebench.analysis.summary.run_summary import write_summary
from enginebench.records.stage import SECOND
from enginebench.records.view import EMPTY, Missing
from tests.support.analysis.one_stage import MS, stage_of, summary_of
from tests.support.analysis.synthetic import FAILED, NOTHING_CAME, record


def test_failed_requests_are_infinitely_long(tmp_path: Path) -> None:
    """Six of ten requests refused: the median of all is failed, that of the answered ones stands beside it."""
    records = [record(k, 3 * SECOND + k, **(FAILED if k % 10 < 6 else {})) for k in range(1000)]
    stage = stage_of(tmp_path, records)
    ttft = stage.metrics["ttft"]
    assert (ttft.percentiles["p50"].value, ttft.percentiles["p50"].missing) == (math.inf, Missing.FAILED)
    assert ttft.answered == {"p50": 0.1, "p90": 0.1, "p95": 0.1, "p99": 0.1}
    assert (ttft.n, ttft.failed) == (1000, 600)
    assert ttft.mean == pytest.approx(0.1)
    assert stage.value("failure_rate") == pytest.approx(600 / 7)
    document = json.loads(write_summary(summary_of(tmp_path, records)).read_text())
    median = document["stages"][0]["metrics"]["ttft"]["percentiles"]["p50"]
    assert (median["value"], median["missing"]) == (None, "failed")


def test_what_is_known_of_a_censored_request_counts(tmp_path: Path) -> None:
    """Ten of a hundred were cut off 50 ms after they were sent: p50 is known, p95 is not; their TTFO came at 20 ms."""
    records = [record(k, 3 * SECOND + k * MS) for k in range(90)]
    for k in range(10):
        t = 4 * SECOND + k * MS
        cut = NOTHING_CAME | {"t_end": t + 50 * MS, "t_first_out": t + 20 * MS}
        records.append(record(90 + k, t, outcome="cut_off", **cut))
    stage = stage_of(tmp_path, records)
    assert stage.value("ttft", "p50") == pytest.approx(0.1)
    assert (stage.value("ttft", "p95"), stage.estimate("ttft", "p95").missing) == (None, Missing.CUT_OFF)
    assert stage.value("ttfo", "p90") == pytest.approx(0.1)
    assert stage.metrics["ttfo"].least == pytest.approx(0.02)
    assert stage.value("e2e", "p95") is None


def test_a_metric_that_nothing_has_is_empty(tmp_path: Path) -> None:
    whole = record(0, 3 * SECOND, streamed=False, t_first=None, t_first_out=None, icl=(), chunks=0)
    stage = stage_of(tmp_path, [whole])
    assert (stage.metrics["ttft"], stage.metrics["stall"], stage.metrics["icl"].n) == (EMPTY, EMPTY, 0)
    assert stage.estimate("ttft", "p99").missing is Missing.NOT_OBSERVED
