"""Pairs by time stamps, the order of candidates, Holm's correction and the practical margin."""

import math
from collections.abc import Mapping, Sequence

import pytest
import scipy.stats

from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.comparison import (
    Comparison,
    baseline_of,
    common_stage,
    compare,
    interleaved,
    paired,
    ranking,
)
from enginebench.analysis.verdict.differences import RUN_TO_RUN
from enginebench.records.metrics import THROUGHPUT, TTFT
from enginebench.records.view import Estimate
from tests.support.analysis.compared import engine_of, run, view

STAGE = "8 users"
FAST, SLOW = (200.0, 202.0, 198.0, 201.0, 199.0), (100.0, 101.0, 99.0, 100.5, 99.5)


def at_times(label: str, times: Sequence[str], prompts: Sequence[str | None] | None = None) -> EngineRuns:
    """Runs that began at those times of one day, in UTC unless a time has its zone."""
    asked = prompts or [f"set {k}" for k in range(len(times))]
    instants = [f"2026-11-21T{time}{'' if time[5:] else 'Z'}" for time in times]
    runs = [
        run(label, [view(8, {THROUGHPUT: 100.0 + k})], k, started_at=instant, workload={"prompt_set": each})
        for k, (instant, each) in enumerate(zip(instants, asked, strict=True))
    ]
    return EngineRuns(label, tuple(runs))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param((("10:00", "12:00"), ("11:00", "13:00")), True, id="one after the other"),
        pytest.param((("10:00", "12:00"), ("11:00", "11:30")), True, id="the second round in the other order"),
        pytest.param((("10:00", "12:00"), ("09:00", "09:30")), False, id="one began twice before the other"),
        pytest.param((("10:00", "11:00"), ("20:00", "21:00")), False, id="ten hours later"),
        pytest.param((("12:00", "10:00"), ("13:00", "11:00")), True, id="in time, whatever their numbers"),
        pytest.param((("10:00", "12:00"), ("11:00", "13:00", "14:00")), False, id="another number of runs"),
        pytest.param((("10:00",), ("11:00",)), False, id="one run each"),
        pytest.param((("10:00+02:00", "12:00+02:00"), ("09:00Z", "11:00Z")), True, id="time zones"),
        pytest.param((("10:00", "12:00"), ("11:00", "13:00"), ("12:30", "14:00")), False, id="a third one is late"),
    ],
)
def test_interleaved_is_decided_from_time_stamps(times: Sequence[Sequence[str]], expected: bool) -> None:
    assert interleaved([at_times(f"engine {k}", each) for k, each in enumerate(times)]) is expected


def test_pairs_are_interleaved_runs_with_the_same_prompts() -> None:
    ours = at_times("a", ("10:00", "12:00"))
    assert paired(ours, at_times("b", ("11:00", "13:00")))
    assert not paired(ours, at_times("b", ("20:00", "21:00")))
    assert not paired(ours, at_times("b", ("11:00", "13:00"), ("other 0", "other 1")))


def test_the_common_stage_is_the_highest_load_of_all_engines_that_one_of_them_sustains() -> None:
    ours, theirs = (EngineRuns(name, (run(name, [view(n, {}) for n in (8, 16, 32)]),)) for name in "ab")
    assert common_stage([ours, theirs], {}) == "32 users"
    assert common_stage([ours, theirs], {"a": of_load("a", 16), "b": of_load("b", 8)}) == "16 users"
    assert common_stage([ours, theirs], {"a": of_load("a", None), "b": of_load("b", None)}) == "32 users"
    assert common_stage([ours, EngineRuns("b", (run("b", [view(16, {})]),))], {"a": of_load("a", 8)}) == "16 users"
    assert common_stage([ours, EngineRuns("b", (run("b", [view(64, {})]),))], {}) is None


def of_load(engine: str, load: float | None) -> Capacity:
    return Capacity(engine, "users", (), (), load, None, confirmed=False)


@pytest.mark.parametrize(
    ("capacities", "order"),
    [
        pytest.param({}, ["fast", "slow"], id="without an SLO by tokens/s"),
        pytest.param({"fast": 8, "slow": 16}, ["slow", "fast"], id="by capacity, confirmed or not"),
        pytest.param({"fast": 8, "slow": 8}, ["fast", "slow"], id="of equal capacity by tokens/s"),
        pytest.param({"fast": None, "slow": 1}, ["slow", "fast"], id="one that meets the SLO nowhere is last"),
    ],
)
def test_candidates_are_ordered_as_measured(capacities: Mapping[str, float | None], order: list[str]) -> None:
    engines = [engine_of("slow", throughput=SLOW[:1]), engine_of("fast", throughput=FAST[:1])]
    ranked = ranking(engines, STAGE, {name: of_load(name, load) for name, load in capacities.items()})
    assert [engine.label for engine in ranked] == order


def test_the_baseline_is_the_one_asked_for_or_a_known_one() -> None:
    engines = [engine_of(name, throughput=(1.0,)) for name in ("vllm", "pytorch-baseline", "transformers")]
    assert baseline_of(engines) == "transformers"
    assert baseline_of(engines, "vllm") == "vllm"
    assert baseline_of(engines[:1]) is None


def compared(*engines: EngineRuns, key: str = THROUGHPUT, baseline: str | None = None) -> list[Comparison]:
    return [each for each in compare(engines, STAGE, baseline) if each.column.key == key]


def test_the_ratio_is_welchs_on_logarithms_if_runs_are_not_interleaved() -> None:
    (found,) = compared(engine_of("fast", throughput=FAST), engine_of("slow", throughput=SLOW))
    assert (found.engine, found.over, found.better, found.significant) == ("fast", "slow", True, True)
    assert found.ratio.value == pytest.approx(2.0, rel=1e-3)
    welch = scipy.stats.ttest_ind([*map(math.log, FAST)], [*map(math.log, SLOW)], equal_var=False)
    assert found.p == pytest.approx(welch.pvalue)


RATES = {"a": 4.0, "b": 2.0, "c": 1.0}


def test_each_engine_is_compared_with_the_next_and_with_the_baseline() -> None:
    engines = [engine_of(name, throughput=(rate, rate * 1.01, rate * 0.99)) for name, rate in RATES.items()]
    pairs = [(each.engine, each.over) for each in compared(*engines, baseline="c")]
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c")]


def test_holm_corrects_the_comparisons_of_the_best_among_themselves() -> None:
    """Two of the best engine, the smaller p of which counts twice, and one of the others."""
    engines = [engine_of(name, throughput=(rate, rate * 1.05, rate * 0.96)) for name, rate in RATES.items()]
    alone = {each.engine: each.p for each in compared(*engines)}
    over_c = compared(engines[0], engines[2])[0].p
    together = {(each.engine, each.over): each.p for each in compared(*engines, baseline="c")}
    assert over_c is not None
    assert together["a", "c"] == pytest.approx(2 * over_c)
    assert together["b", "c"] == alone["b"]


@pytest.mark.parametrize(
    ("ours", "theirs", "significant"),
    [
        pytest.param((1.04, 1.0401, 1.0399), (1.0, 1.0001, 0.9999), False, id="4 % is below the practical margin"),
        pytest.param((1.06, 1.0601, 1.0599), (1.0, 1.0001, 0.9999), True, id="6 % is beyond it"),
        pytest.param((0.94, 0.9401, 0.9399), (1.0, 1.0001, 0.9999), True, id="and so is 6 % less"),
        pytest.param((2.0, 1.0, 0.6), (1.0, 0.5, 1.5), False, id="chance"),
        pytest.param((2.0, 2.01), (1.0, 1.01), None, id="two repeats: no test"),
        pytest.param((2.0,), (1.0,), None, id="one run"),
        pytest.param((2.0, 2.0, 2.0), (1.0, 1.0, 1.0), True, id="no spread: the error of one request"),
    ],
)
def test_significant_is_beyond_chance_and_beyond_the_margin(
    ours: Sequence[float], theirs: Sequence[float], significant: bool | None
) -> None:
    (found,) = compared(engine_of("a", throughput=ours), engine_of("b", throughput=theirs))
    assert found.significant is significant
    assert (found.ratio.low is None) is (significant is None)


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio", "better", "significant"),
    [
        pytest.param((0.1, 0.11, 0.09), (0.2, 0.21, 0.19), 0.5, True, True, id="half"),
        pytest.param((math.inf,) * 3, (0.1, 0.11, 0.09), math.inf, False, True, id="all failed, none of the other"),
        pytest.param((0.1, 0.11, 0.09), (math.inf,) * 3, 0.0, True, True, id="the reverse"),
        pytest.param((math.inf,), (0.1,), math.inf, False, None, id="one run each: no test"),
        pytest.param((math.inf, 0.1, 0.1), (0.1, 0.11, 0.09), None, None, None, id="some failed"),
    ],
)
def test_latencies_are_ours_over_theirs(
    ours: Sequence[float], theirs: Sequence[float], ratio: float | None, better: bool | None, significant: bool | None
) -> None:
    (found,) = compared(engine_of("a", ttft_p95=ours), engine_of("b", ttft_p95=theirs), key=f"{TTFT} p95")
    assert found.ratio.value == pytest.approx(ratio, rel=0.01)
    assert (found.better, found.significant) == (better, significant)


def test_a_metric_that_one_run_lacks_is_not_compared() -> None:
    assert not compared(engine_of("a", throughput=(1.0, None)), engine_of("b", throughput=(1.0, 2.0)))


@pytest.mark.parametrize(
    ("ours", "theirs", "difference", "better", "significant"),
    [
        pytest.param((0.0, 0.0, 0.0), (0.1, 0.12, 0.11), -0.11, True, True, id="fewer failures"),
        pytest.param((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0, None, False, id="no failures at all"),
        pytest.param((0.1, 0.12, 0.11), (0.1, 0.12, 0.11), 0.0, None, False, id="equal shares"),
    ],
)
def test_shares_are_compared_by_their_difference(
    ours: Sequence[float], theirs: Sequence[float], difference: float, better: bool | None, significant: bool
) -> None:
    engines = []
    for label, shares in (("a", ours), ("b", theirs)):
        views = [view(8, {THROUGHPUT: 1.0, "failure_share": Estimate(share, n=1000)}) for share in shares]
        engines.append(EngineRuns(label, tuple(run(label, [stage], k) for k, stage in enumerate(views))))
    (found,) = compared(*engines, key="failure_share")
    assert found.ratio.value == pytest.approx(difference)
    assert (found.better, found.significant) == (better, significant)


def test_the_ratio_agrees_with_the_means_next_to_it_to_the_digits_that_are_shown() -> None:
    """It is of geometric means, the columns are arithmetic means: up to the spread that a warning names, both write the
    same three digits."""
    spread = (1 - RUN_TO_RUN, 1.0, 1 + RUN_TO_RUN)
    fast, slow = (
        engine_of(name, throughput=[rate * share for share in shares])
        for name, rate, shares in (("fast", 200.0, spread), ("slow", 100.0, (1.0, 1.0, 1.0)))
    )
    (found,) = compared(fast, slow)
    means = [engine.value(STAGE, THROUGHPUT) or 0.0 for engine in (fast, slow)]
    assert found.ratio.value == pytest.approx(means[0] / means[1], rel=1e-3)


@pytest.mark.parametrize("lacking", [(("a", 2),), (("a", 1), ("b", 2))], ids=["one run", "different repeats"])
def test_runs_are_no_pairs_if_one_lacks_the_load(lacking: tuple[tuple[str, int], ...]) -> None:
    """As after Ctrl-C in the last of the interleaved repeats."""
    engines = [
        EngineRuns(
            name,
            tuple(
                run(
                    name,
                    [view(load, {THROUGHPUT: speed + k}) for load in (8, 16) if load == 8 or (name, k) not in lacking],
                    k,
                    started_at=f"2026-11-21T1{k}:{minute:02d}Z",
                )
                for k in range(3)
            ),
        )
        for name, speed, minute in (("a", 200.0, 0), ("b", 100.0, 30))
    ]
    at_8, at_16 = ([c for c in compare(engines, stage) if c.column.name == THROUGHPUT] for stage in (STAGE, "16 users"))
    assert [round(comparison.ratio.value or 0, 1) for comparison in (*at_8, *at_16)] == [2.0, 2.0]
    assert at_8[0].ratio.n == 3
    assert at_16[0].ratio.n == 2
