"""Objectives: attainment, goodput and their three answers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from records.slo import parse_objectives
from records.stage import SECOND
from tests.support.analysis.one_stage import MS, stage_of
from tests.support.analysis.synthetic import FAILED, NOTHING_CAME, record


def test_goodput_and_attainment_count_failures_as_bad(tmp_path: Path) -> None:
    """TTFT (user) of 100 ms 80 times, of 300 ms 18 times, two failures: 80 of a hundred are good."""
    records = []
    for k, place in enumerate(random.Random(1).sample(range(100), 100)):
        t = 3 * SECOND + place * 10 * MS
        slow = {"t_send": t + 200 * MS, "t_first": t + 300 * MS, "t_last": t + SECOND}
        records.append(record(k, t, **(slow if k < 18 else FAILED if k < 20 else {})))
    slo = ["ttft_p50=0.2", "ttft_p80=0.2", "tpot_p99=1", "ttft_p95=0.2"]
    attainment = stage_of(tmp_path, records, slo=slo).attainment
    assert attainment is not None
    assert attainment.share.value == pytest.approx(0.8)
    assert attainment.goodput.value == pytest.approx(80 / 7)
    answers = [(verdict.objective.name, verdict.answer) for verdict in attainment.verdicts]
    assert answers == [
        ("ttft_p50", "met"),
        ("ttft_p80", "not enough evidence"),
        ("tpot_p99", "not enough evidence"),
        ("ttft_p95", "missed"),
    ]
    assert [verdict.share.value for verdict in attainment.verdicts] == pytest.approx([0.8, 0.8, 0.98, 0.8])
    assert attainment.answer == "missed"


def test_twenty_requests_cannot_meet_a_p99(tmp_path: Path) -> None:
    attainment = stage_of(tmp_path, [record(k, 3 * SECOND + k * MS) for k in range(20)], slo=["ttft_p99=10"]).attainment
    assert attainment is not None
    assert attainment.answer == "not enough evidence"


@pytest.mark.parametrize(
    ("cut", "answer"),
    [
        pytest.param({"t_end": 8 * SECOND}, "missed", id="half of them had waited for longer than the limit"),
        pytest.param({"t_end": 3 * SECOND + 100 * MS}, "not enough evidence", id="half of them were cut off before it"),
        pytest.param({"t_first": 3 * SECOND + 50 * MS, "t_end": 8 * SECOND}, "met", id="their first token had come"),
    ],
)
def test_a_request_that_was_cut_off_is_judged_by_what_is_known_of_it(
    tmp_path: Path, cut: dict[str, Any], answer: str
) -> None:
    records = []
    for k, place in enumerate(random.Random(1).sample(range(200), 200)):
        changes = {"outcome": "cut_off"} | NOTHING_CAME | cut if k < 100 else {}
        records.append(record(k, 3 * SECOND + place, **changes))
    attainment = stage_of(tmp_path, records, slo=["ttft_p90=0.2"]).attainment
    assert attainment is not None
    assert attainment.answer == answer


def test_correlated_latencies_are_less_evidence_than_independent_ones(tmp_path: Path) -> None:
    """300 requests, all within the limit: enough for a p95 if they are independent, not if a quarter of the window
    is as slow as its neighbours."""
    independent = [random.Random(k).uniform(50, 150) for k in range(300)]
    for order, answer in ((independent, "met"), (sorted(independent), "not enough evidence")):
        records = []
        for k, ttft in enumerate(order):
            t = 2 * SECOND + k * 25 * MS
            records.append(record(k, t, t_send=t, t_first=t + round(ttft) * MS, t_last=t + SECOND))
        attainment = stage_of(tmp_path, records, slo=["ttft_p95=0.2"]).attainment
        assert attainment is not None
        assert attainment.verdicts[0].answer == answer


def test_attainment_is_withheld_where_many_requests_failed(tmp_path: Path) -> None:
    records = [record(k, 3 * SECOND + k, **(FAILED if k % 5 == 0 else {})) for k in range(100)]
    attainment = stage_of(tmp_path, records, slo=["ttft_p50=1"]).attainment
    assert attainment is not None
    assert (attainment.share.value, attainment.share.why) == (None, "20 of 100 failed")


def test_an_objective_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    whole = record(0, 3 * SECOND, streamed=False, t_first=None, t_first_out=None, icl=(), chunks=0)
    with pytest.raises(ValueError, match="no request has a ttft"):
        stage_of(tmp_path, [whole], slo=["ttft_p99=1"])


@pytest.mark.parametrize("text", ["ttft=1", "ttft_p99", "foo_p99=1", "ttft_p0=1", "ttft_p100=1", "ttft_p99=-1"])
def test_an_objective_that_is_none_gets_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="an objective is METRIC_pN=SECONDS"):
        parse_objectives([text])
