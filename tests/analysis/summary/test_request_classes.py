"""Classes of requests in the summary of a stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from records.stage import SECOND
from tests.support.analysis.one_stage import MS, stage_of
from tests.support.analysis.synthetic import record


def test_classes_are_summarised_and_judged_by_their_own_objectives(tmp_path: Path) -> None:
    """Every other request is slow: 100 ms against a limit of 0.2 s, 900 ms against one of 0.5 s."""
    slow = {"t_first": 900 * MS, "t_first_out": 900 * MS, "t_last": 940 * MS, "t_end": 941 * MS, "read_first": 900 * MS}
    records = []
    for k in range(700):
        at = 2 * SECOND + k * 10 * MS
        late = {name: at + value for name, value in slow.items()} if k % 2 else {}
        records.append(record(k, at, request_class="batch" if k % 2 else "chat", user=k % 20, **late))
    workload = {"class_objectives": {"chat": "ttft_p95=0.2,e2e_p95=1", "batch": "ttft_p95=0.5"}}
    stage = stage_of(tmp_path, records, workload=workload)
    batch, chat = stage.classes
    assert [(one.name, one.requests, one.failed) for one in stage.classes] == [("batch", 350, 0), ("chat", 350, 0)]
    assert chat.latencies["ttft"].p95.value == pytest.approx(0.1)
    assert batch.latencies["ttft"].p95.value == pytest.approx(0.9)
    assert chat.attainment is not None
    assert batch.attainment is not None
    assert (chat.attainment.answer, batch.attainment.answer) == ("met", "missed")
    assert [verdict.share.value for verdict in chat.attainment.verdicts] == [1.0, 1.0]


def test_requests_without_a_class_have_no_classes(tmp_path: Path) -> None:
    assert stage_of(tmp_path, [record(0, 3 * SECOND)]).classes == ()
