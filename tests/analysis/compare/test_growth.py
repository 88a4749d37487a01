"""What grows with the load, and what then limits an objective."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from enginebench.analysis.compare.growth import growth_sentences, saturated_from
from enginebench.analysis.compare.limit import PARTS, limit_of, mean_parts
from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND
from enginebench.records.view import Estimate, StageView
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run

Parts = tuple[float, float, float, float]  # client, queue, prefill, delivery
LIGHT, HEAVY = (0.0, 0.0, 0.1, 0.0), (0.0, 0.8, 0.3, 0.0)


def with_quantities(stage: StageView, **values: float | None) -> StageView:
    """`None` takes a quantity away."""
    known = {name: Estimate(value) for name, value in values.items() if value is not None}
    kept = {name: estimate for name, estimate in stage.quantities.items() if name not in values}
    return dataclasses.replace(stage, quantities=kept | known)


def with_parts(stage: StageView, parts: Parts | None, rate: float) -> StageView:
    seconds = dict(zip(PARTS, parts or (None,) * 4, strict=True))
    return with_quantities(stage, throughput=rate, **seconds)


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
    parts = mean_parts(summary.stages)
    assert list(parts.values()) == pytest.approx([0.01, 0.03, 0.05, 0.02])
    assert sum(parts.values()) == pytest.approx(summary.stages[0].metrics["ttft_user"].mean)


def run(tmp_path: Path, rates: list[float], parts: list[Parts | None]) -> RunSummary:
    loads = tuple(10 * (k + 1) for k in range(len(rates)))
    records = [record(k, k * SECOND // 20, stage=k // 100) for k in range(100 * len(loads))]
    summary = summarise(load_run(write_run(tmp_path, meta_of(stages_of(loads, 5.0)), records)))
    stages = tuple(map(with_parts, summary.stages, parts, rates))
    return dataclasses.replace(summary, stages=stages)


@pytest.mark.parametrize(
    ("rates", "parts", "sentence"),
    [
        pytest.param(
            [100, 200, 205],
            [(0.0, 0.0, 0.05, 0.0), LIGHT, HEAVY],
            "fake saturates at 20 users: from 20 users to 30 users the mean TTFT went from 100 ms to 1.10 s; 80 % of "
            "the growth is waiting for admission (+800 ms).",
            id="from the knee on",
        ),
        pytest.param(
            [100, 200],
            [LIGHT, HEAVY],
            "fake: from 10 users to 20 users the mean TTFT went from 100 ms to 1.10 s; 80 % of the growth is waiting "
            "for admission (+800 ms).",
            id="no knee",
        ),
        pytest.param(
            [100, 200],
            [LIGHT, LIGHT],
            "fake: from 10 users to 20 users the mean TTFT does not grow (100 ms at 20 users).",
            id="nothing grew",
        ),
        pytest.param([100, 200], [None, LIGHT], None, id="a server that sent its parts at one stage"),
        pytest.param([100], [LIGHT], None, id="one stage"),
    ],
)
def test_what_grew(tmp_path: Path, rates: list[float], parts: list[Parts | None], sentence: str | None) -> None:
    assert growth_sentences([run(tmp_path, rates, parts)]) == ([sentence] if sentence else [])


def test_many_engines_share_the_sentences_that_hold_for_them(tmp_path: Path) -> None:
    """Four of five wait for admission in the end, of which one serves no more than before; the fifth does not."""
    grown = run(tmp_path, [100, 200], [LIGHT, HEAVY])
    light, heavy = grown.stages
    flat = dataclasses.replace(grown, label="flat", stages=(light, with_parts(heavy, LIGHT, 200)))
    full = dataclasses.replace(grown, label="full", stages=(with_parts(light, LIGHT, 200), heavy))
    others = [dataclasses.replace(grown, label=label) for label in ("a", "b", "c")]
    assert growth_sentences([*others, full, flat]) == [
        "full saturates at 10 users.",
        "a, b, c and full: from 10 users to 20 users the mean TTFT became 11.0× as long; most of the growth is waiting "
        "for admission.",
        "flat: from 10 users to 20 users the mean TTFT does not grow (100 ms at 20 users).",
    ]


@pytest.mark.parametrize(
    ("metric", "part"),
    [("ttft", "waiting for admission"), ("tpot", "decoding"), ("e2e", "waiting for admission"), ("failures", None)],
)
def test_what_limits_an_objective_is_what_grew_most(tmp_path: Path, metric: str, part: str | None) -> None:
    below, above = run(tmp_path, [100, 200], [LIGHT, HEAVY]).stages
    limit = limit_of(Objective(metric, 0.95, 0.3), [below], [above])
    assert limit.part == part
    assert limit_of(Objective(metric, 0.95, 0.3), [], [above]).part is None, "no load meets it"
