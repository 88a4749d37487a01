"""Where TTFT went, and which part of it grew."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from analysis.compare.knee import growth_sentences, saturated_from
from analysis.data.load import load_run
from analysis.summary.run_summary import RunSummary, summarise
from analysis.summary.ttft_parts import TtftParts
from records.stage import SECOND
from records.view import Estimate, StageView
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        pytest.param([10, 20, 40], None, id="still growing"),
        pytest.param([10, 20, 21, 21], "1", id="flat from the second on"),
        pytest.param([10, 10.5, 20, 20], "2", id="flat at first is no knee"),
        pytest.param([10, 8], "0", id="falling"),
        pytest.param([10], None, id="one stage"),
    ],
)
def test_the_knee_is_where_throughput_stops_growing(rates: list[float], knee: str | None) -> None:
    assert saturated_from([(str(k), rate) for k, rate in enumerate(rates)]) == knee


def test_the_parts_add_up_to_what_the_user_waits(tmp_path: Path) -> None:
    """Sent 10 ms late, 30 ms in the queue, 50 ms of prefill: 20 ms of the 100 after sending are left."""
    late = SECOND // 100
    records = [
        record(k, k * SECOND // 20, t_send=k * SECOND // 20 + late, server_queue=0.03, server_prefill=0.05)
        for k in range(100)
    ]
    records = [msgspec.structs.replace(one, t_first=(one.t_send or 0) + SECOND // 10) for one in records]
    summary = summarise(load_run(write_run(tmp_path, meta_of(stages_of((1,), 5.0)), records)))
    parts = summary.stages[0].ttft_parts
    assert parts is not None
    assert list(parts.lengths.values()) == pytest.approx([0.01, 0.03, 0.05, 0.02])
    assert parts.total == pytest.approx(summary.stages[0].latencies["ttft_user"].mean)


def run(tmp_path: Path, rates: list[float], parts: list[TtftParts | None]) -> RunSummary:
    loads = tuple(10 * (k + 1) for k in range(len(rates)))
    records = [record(k, k * SECOND // 20, stage=k // 100) for k in range(100 * len(loads))]
    summary = summarise(load_run(write_run(tmp_path, meta_of(stages_of(loads, 5.0)), records)))
    stages = tuple(
        dataclasses.replace(stage, throughput=Estimate(rate), ttft_parts=told)
        for stage, rate, told in zip(summary.stages, rates, parts, strict=True)
    )
    return dataclasses.replace(summary, stages=stages)


LIGHT, HEAVY = TtftParts(0.0, 0.0, 0.1, 0.0, 9), TtftParts(0.0, 0.8, 0.3, 0.0, 9)


@pytest.mark.parametrize(
    ("rates", "parts", "sentence"),
    [
        pytest.param(
            [100, 200, 205],
            [TtftParts(0.0, 0.0, 0.05, 0.0, 9), LIGHT, HEAVY],
            "fake: throughput grew no further above 20 users; from 20 users to 30 users the mean TTFT went from "
            "100 ms to 1.10 s: 80 % of the growth is waiting for admission (+800 ms).",
            id="from the knee on",
        ),
        pytest.param(
            [100, 200],
            [LIGHT, HEAVY],
            "fake: from 10 users to 20 users the mean TTFT went from 100 ms to 1.10 s: 80 % of the growth is waiting "
            "for admission (+800 ms).",
            id="no knee",
        ),
        pytest.param(
            [100, 200],
            [LIGHT, LIGHT],
            "fake: from 10 users to 20 users the mean TTFT went from 100 ms to 100 ms.",
            id="nothing grew",
        ),
        pytest.param([100, 200], [None, LIGHT], None, id="a server that told it once"),
        pytest.param([100], [LIGHT], None, id="one stage"),
    ],
)
def test_what_grew_is_told(
    tmp_path: Path, rates: list[float], parts: list[TtftParts | None], sentence: str | None
) -> None:
    assert growth_sentences([run(tmp_path, rates, parts)]) == ([sentence] if sentence else [])


def test_many_engines_share_the_sentences_that_hold_for_them(tmp_path: Path) -> None:
    """Four of five wait for admission in the end, of which one serves no more than before; the fifth does not."""
    grown = run(tmp_path, [100, 200], [LIGHT, HEAVY])
    flat = dataclasses.replace(grown, label="flat", stages=(grown.stages[0], _with(grown, LIGHT)))
    full = dataclasses.replace(grown, label="full", stages=(_with(grown, LIGHT, 0, rate=200), grown.stages[1]))
    others = [dataclasses.replace(grown, label=label) for label in ("a", "b", "c")]
    assert growth_sentences([*others, full, flat]) == [
        "full: throughput grew no further above 10 users.",
        "a, b, c and full: from 10 users to 20 users the mean TTFT became 11.0× as long; most of the growth is waiting "
        "for admission.",
        "flat: from 10 users to 20 users the mean TTFT went from 100 ms to 100 ms.",
    ]


def _with(of: RunSummary, parts: TtftParts, index: int = 1, rate: float = 200) -> StageView:
    return dataclasses.replace(of.stages[index], ttft_parts=parts, throughput=Estimate(rate))
