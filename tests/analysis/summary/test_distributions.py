"""Distributions of latencies with failed and censored requests in them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from enginebench.analysis.summary.run_summary import write_summary
from enginebench.records.stage import SECOND
from enginebench.records.view import EMPTY, Missing
from tests.support.analysis.one_stage import stage_of, summary_of
from tests.support.analysis.synthetic import FAILED, record


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


def test_a_metric_that_nothing_has_is_empty(tmp_path: Path) -> None:
    whole = record(0, 3 * SECOND, streamed=False, t_first=None, t_first_out=None, icl=(), chunks=0)
    stage = stage_of(tmp_path, [whole])
    assert (stage.metrics["ttft"], stage.metrics["stall"], stage.metrics["icl"].n) == (EMPTY, EMPTY, 0)
    assert stage.estimate("ttft", "p99").missing is Missing.NOT_OBSERVED
