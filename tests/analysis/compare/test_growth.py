"""What grows with the load and with the context."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from analysis.compare.engine_runs import engine_runs_of
from analysis.compare.growth import PARTS, growth_sentences, limit_of, line_through, mean_parts, saturated_from
from analysis.data.load import load_run
from analysis.summary.run_summary import RunSummary, summarise
from records.slo import Objective
from records.stage import SECOND
from records.view import Estimate, StageView
from tests.support.analysis.synthetic import Engine, meta_of, record, simulate, stages_of, write_run

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
    (engine,) = engine_runs_of([summary])
    parts = mean_parts(engine, summary.stages[0].label)
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
            "fake: from 10 users to 20 users the mean TTFT went from 100 ms to 100 ms.",
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
        "flat: from 10 users to 20 users the mean TTFT went from 100 ms to 100 ms.",
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


PROMPTS = (10, 100, 200, 400)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    names = tuple(f"{prompt} prompt tokens" for prompt in PROMPTS)
    folder = tmp_path_factory.mktemp("context") / "run"
    return summarise(load_run(simulate(folder, Engine("engine"), (1, 1, 1, 1), 5.0, names=names)))


def measured(simulated: RunSummary, prefill: tuple[float, float], token: tuple[float, float]) -> RunSummary:
    """With (base, per token of context) of prefill and of further tokens, and answers of 20 tokens."""
    stages = []
    for stage, prompt in zip(simulated.stages, PROMPTS, strict=True):
        tpot = dataclasses.replace(stage.metrics["tpot"], mean=token[0] + token[1] * (prompt + 10))
        lengths = {"prompt_tokens": float(prompt), "output_tokens": 20.0}
        changed = with_quantities(stage, ttft_prefill=prefill[0] + prefill[1] * prompt, **lengths)
        stages.append(dataclasses.replace(changed, metrics={**stage.metrics, "tpot": tpot}))
    return dataclasses.replace(simulated, stages=tuple(stages))


def test_an_engine_without_a_cache_is_known_by_its_tokens(simulated: RunSummary) -> None:
    (sentence,) = growth_sentences([measured(simulated, (0.004, 0.0005), (0.005, 0.0005))])
    assert sentence == (
        "engine, one request alone: prefill takes 4.00 ms + 500 µs per token of context (R² 1.00); each further token "
        "takes 5.00 ms + 500 µs per token of context (R² 1.00); a token takes as long as the prefill of all before it: "
        "the engine keeps no key/value cache."
    )


def test_with_a_cache_a_token_takes_as_long_whatever_the_context(simulated: RunSummary) -> None:
    (sentence,) = growth_sentences([measured(simulated, (0.004, 0.0005), (0.02, 1e-6))])
    assert sentence.endswith("(R² 1.00); each further token takes 20.4 ms at every context length.")


def test_several_users_or_lengths_close_together_say_nothing(simulated: RunSummary) -> None:
    two = measured(simulated, (0.004, 0.0005), (0.005, 0.0005))
    crowded = dataclasses.replace(two, stages=tuple(dataclasses.replace(stage, load=2.0) for stage in two.stages))
    assert growth_sentences([crowded]) == []
    assert line_through([(100.0, 1.0), (110.0, 1.1), (120.0, 1.2)]) is None
    assert line_through([(100.0, 1.0), (100.0, 1.1), (400.0, 1.2)]) is None
    assert line_through([]) is None


def test_what_is_no_straight_line_is_not_described() -> None:
    line = line_through([(10.0, 1.0), (100.0, 3.0), (200.0, 0.5), (400.0, 2.5)])
    assert line is not None
    assert line.explained < 0.5
