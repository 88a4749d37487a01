"""Replicas and costs of candidates: from the measured capacity, by the simulation, in order."""

from dataclasses import replace
from pathlib import Path

import pytest

from enginebench.analysis.answer import Replicas
from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.frame import Frame, frame_of
from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.plan.replicas import (
    measured_replicas,
    plans_of,
    replicas_answer,
    replicas_of,
    separated,
    token_cost,
)
from enginebench.analysis.settings import PlanSettings, parse_peak, parse_prices
from enginebench.analysis.summary.run_summary import summarise
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.records.load import Load, Rate, Users
from enginebench.records.metrics import THROUGHPUT
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Estimate, Missing
from enginebench.settings.schema import UserMistake
from tests.support.present import present
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

SLO = parse_objectives(["ttft_p95=0.3", "tpot_p95=0.1"])
SERVER = BatchingServer(jitter=0.02)  # 16 slots


def capacity(load: float | None, beyond: float | None, unit: str = "users") -> Capacity:
    return Capacity("x", unit, SLO, (), load, beyond, confirmed=True)


@pytest.mark.parametrize(
    ("measured", "peak", "answer"),
    [
        (capacity(10, 12), Users(120), 12),
        (capacity(24, 28), Users(120), 5),
        (capacity(25, None), Users(120), 5),
        (capacity(16, 20), Users(1), 1),
        (capacity(0.3, 0.4, "req/s"), Rate(0.9), 3),  # 0.9 ÷ 0.3 is a little more than 3 in floating point
        (capacity(2.5, 3, "req/s"), Rate(40.0), 16),
        (capacity(10, 12), Rate(40.0), NotPlanned.OTHER_UNIT),
        (capacity(2.5, 3, "req/s"), Users(120), NotPlanned.OTHER_UNIT),
        (capacity(None, 1), Users(120), NotPlanned.MISSED),
        (capacity(None, None), Users(120), NotPlanned.NOT_MEASURED),
        (None, Users(120), NotPlanned.NOT_MEASURED),
    ],
)
def test_replicas_are_the_peak_over_the_measured_capacity(
    measured: Capacity | None, peak: Load, answer: int | NotPlanned
) -> None:
    assert measured_replicas(measured, peak) == answer


def candidate(name: str, count: int | None, month: float | None, simulated: int | None = None) -> Replicas:
    missing = None if count is not None else NotPlanned.MISSED
    return Replicas(name, None, count, simulated, month, missing)


@pytest.mark.parametrize(
    ("candidates", "order"),
    [
        pytest.param([candidate("a", 12, 15768.0), candidate("b", 5, 6570.0)], "ba", id="cheapest"),
        pytest.param([candidate("a", 12, 100.0), candidate("b", 5, 200.0)], "ab", id="not fewest"),
        pytest.param([candidate("a", 12, 100.0), candidate("b", 50, 0.0)], "ba", id="free"),
        pytest.param([candidate("a", 12, 100.0), candidate("b", 5, None)], "ba", id="a price is missing"),
        pytest.param([candidate("a", None, None), candidate("b", 5, 6570.0)], "ba", id="one is not planned"),
        pytest.param([candidate("a", None, 100.0, 2), candidate("b", 5, 200.0)], "ab", id="one is simulated alone"),
        pytest.param([candidate("a", None, None), candidate("b", None, None)], "ab", id="none"),
    ],
)
def test_the_cheapest_comes_first(candidates: list[Replicas], order: str) -> None:
    answer = replicas_answer(Users(120), tuple(candidates))
    assert "".join(each.name for each in answer.candidates) == order


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Frame:
    run = write_run(tmp_path_factory.mktemp("runs") / "run", SERVER, users(4, 12, 16, 24), Asked(), window=30.0)
    return frame_of([summarise(load_run(run), SLO)])


def planned(frame: Frame, **settings: object) -> Replicas:
    given = PlanSettings(slo=SLO, peak_seconds=30.0, price=(("", 1.8),), **settings)  # type: ignore[arg-type]
    (replicas,) = replicas_of(frame, given)
    return replicas


def test_measured_and_simulated_stand_next_to_each_other(frame: Frame) -> None:
    replicas = planned(frame, peak=Users(80))
    assert (replicas.count, replicas.simulated, replicas.missing, replicas.not_simulated) == (5, 5, None, None)
    assert replicas.month == 5 * 1.8 * 730
    tokens = frame.engine("scripted").estimate("16 users", THROUGHPUT)
    assert replicas.per_million.value == pytest.approx(1e6 * 1.8 / 3600 / present(tokens.value))
    assert replicas.per_million.low == pytest.approx(1e6 * 1.8 / 3600 / present(tokens.high))


def test_headroom_and_spares_are_added_to_both(frame: Frame) -> None:
    replicas = planned(frame, peak=Users(80), headroom=0.2, spares=1)
    assert (replicas.count, replicas.simulated) == (6 + 1, 6 + 1)  # 96 users
    assert replicas.month == 7 * 1.8 * 730


def test_a_rate_is_answered_by_the_simulation_alone_if_users_were_measured(frame: Frame) -> None:
    replicas = planned(frame, peak=Rate(20.0))
    assert (replicas.count, replicas.missing) == (None, NotPlanned.OTHER_UNIT)
    assert replicas.number == present(replicas.simulated)
    assert replicas.month == present(replicas.simulated) * 1.8 * 730


def test_costs_of_tokens_need_no_peak_and_nothing_asked_is_nothing(frame: Frame) -> None:
    replicas = planned(frame)
    assert (replicas.count, replicas.simulated, replicas.month, replicas.missing) == (None, None, None, None)
    assert replicas.per_million == planned(frame, peak=Users(16)).per_million
    assert replicas_of(frame, PlanSettings(slo=SLO)) == ()


@pytest.mark.parametrize(
    ("server", "loads", "slo", "reason"),
    [
        pytest.param(SERVER, (8,), "ttft_p95=0.3", NotPlanned.ONE_LOAD, id="no other load to predict"),
        pytest.param(SERVER, (8, 8), "ttft_p95=0.3", NotPlanned.ONE_LOAD, id="one load, measured twice"),
        pytest.param(SERVER, (4, 8), "ttft_p95=0.001", NotPlanned.OUT_OF_REACH, id="too slow"),
        pytest.param(SERVER, (4, 8), "failures=0.01", NotPlanned.OBJECTIVE, id="failures alone"),
        pytest.param(
            BatchingServer(slowdown=lambda now: 6.0 if 12 < now < 26 else 1.0),
            (4, 8, 20),
            "ttft_p95=3",
            NotPlanned.POOR_FIT,
            id="a machine that was busy for one of three loads",
        ),
    ],
)
def test_a_simulation_that_is_not_used_has_a_reason_and_no_number(
    tmp_path: Path, server: BatchingServer, loads: tuple[int, ...], slo: str, reason: NotPlanned
) -> None:
    run = write_run(tmp_path / "run", server, users(*loads), Asked(), window=12.0)
    objectives = parse_objectives([slo])
    (plan,) = plans_of(
        frame_of([summarise(load_run(run), objectives)]),
        PlanSettings(peak=Users(30), slo=objectives, peak_seconds=20.0),
    )
    assert (plan.replicas.simulated, plan.replicas.not_simulated) == (None, reason)
    if reason is not NotPlanned.OUT_OF_REACH and len(set(loads)) == len(loads):
        assert plan.replicas.count == -(-30 // max(loads)), "planned from what was measured"


def test_runs_of_one_label_with_other_settings_are_planned_separately(frame: Frame) -> None:
    (run,) = frame.runs
    sizes = ((8, 100_000), (8, 101_000), (64, 100_000))  # the cache is what was free in memory
    runs = [
        replace(run, engine={"name": "vllm", "options": {"max_num_seqs": slots, "kv_tokens": cache}})
        for slots, cache in sizes
    ]
    names = [each.label for each in separated(runs)]
    assert names == ["scripted (max_num_seqs=8)"] * 2 + ["scripted (max_num_seqs=64)"]


def test_the_cost_of_tokens_by_hand() -> None:
    """At 1,000 tokens/s a replica of $6 an hour makes 3.6 million tokens an hour."""
    cost = token_cost(6.0, Estimate(1000.0, 800.0, 1250.0, n=3))
    assert (cost.value, cost.low, cost.high) == pytest.approx((6 / 3.6, 6 / 4.5, 6 / 2.88))
    unbounded = token_cost(6.0, Estimate(1000.0, -10.0, 2010.0, n=3))
    assert unbounded.value == pytest.approx(6 / 3.6)
    assert (unbounded.low, unbounded.missing) == (None, Missing.FEW_REPEATS)
    assert token_cost(None, Estimate(1000.0)).value is None
    assert token_cost(6.0, Estimate(None, missing=Missing.FAILED)).missing is Missing.FAILED


@pytest.mark.parametrize(
    ("text", "peak"),
    [("120", Users(120)), ("1users", Users(1)), ("10/s", Rate(10.0)), ("2.5req/s", Rate(2.5)), (".5rps", Rate(0.5))],
)
def test_a_peak_is_a_number_of_users_or_a_rate(text: str, peak: Load) -> None:
    assert parse_peak(text) == peak


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "10/min", "many", ""])
def test_what_is_no_peak_is_refused(text: str) -> None:
    with pytest.raises(UserMistake, match="--peak is a"):
        parse_peak(text)


def test_prices_are_those_of_labels_or_of_all_engines() -> None:
    settings = PlanSettings(price=parse_prices("1.8\nvllm=2\nvllm (slots=8)=3"))
    names = ("vllm (slots=8)", "vllm (slots=16)", "vllm", "sglang")
    assert [settings.price_of(name) for name in names] == [3.0, 2.0, 2.0, 1.8]
    settings.check_labels(["vllm (slots=8)", "sglang"])
    with pytest.raises(UserMistake, match="--price vllm=…: there is no run of `vllm`; choose from sglang"):
        settings.check_labels(["sglang"])
    with pytest.raises(UserMistake, match="--price is a number, or LABEL=NUMBER, not `vllm=two`"):
        parse_prices("vllm=two")
