"""Percentiles over the requests of several runs: exact, and on the same side of a limit as the verdict."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.intervals import percentile_intervals
from enginebench.analysis.stats.pooled_percentile import packed, pooled_answered, pooled_percentile
from enginebench.records.metrics import PERCENTILES
from enginebench.records.rules import nearest_rank
from enginebench.records.view import EMPTY, Distribution, Estimate, Missing
from tests.support.present import present


def run_of(
    values: Floats, failed: int = 0, limits: Sequence[float] = (), cut_off: Sequence[float] = ()
) -> Distribution:
    """Answered requests in time order, after them those that failed."""
    attempted = np.concatenate([values, np.full(failed, math.inf)])
    estimates = dict(zip(PERCENTILES, percentile_intervals(attempted, tuple(PERCENTILES.values())), strict=True))
    bounds = packed(np.sort(cut_off)) if len(cut_off) else None
    n = len(attempted) + len(cut_off)
    return Distribution(n, failed, None, None, None, None, estimates, None, packed(np.sort(values), limits), bounds)


def drawn(seed: int, n: int, factor: float = 1.0) -> Floats:
    return factor * np.random.default_rng(seed).lognormal(math.log(0.2), 0.5, n)


@pytest.mark.parametrize(("percentile", "rank"), [("p50", 450), ("p90", 810), ("p95", 855), ("p99", 891)])
def test_a_percentile_is_the_nearest_rank_of_all_requests(percentile: str, rank: int) -> None:
    """Of 900 requests of three runs of 600, 200 and 100. The mean of the runs' own percentiles is another number."""
    parts = [drawn(1, 600), drawn(2, 200, 1.5), drawn(3, 100, 0.5)]
    found = pooled_percentile([run_of(part) for part in parts], percentile)
    assert (found.value, found.n) == (np.sort(np.concatenate(parts))[rank - 1], 900)
    mean = float(np.mean([np.quantile(part, PERCENTILES[percentile], method="inverted_cdf") for part in parts]))
    assert found.value != pytest.approx(mean, rel=0.01)


def test_a_single_run_has_its_own_percentile_and_two_have_no_interval() -> None:
    one = run_of(drawn(1, 600))
    assert pooled_percentile([one], "p90") is one.percentiles["p90"]
    two = pooled_percentile([one, run_of(drawn(2, 600))], "p90")
    assert (two.low, two.high, two.missing) == (None, None, Missing.FEW_REPEATS)


@pytest.mark.parametrize("percentile", PERCENTILES)
def test_many_values_are_thinned_and_a_limit_still_decides_as_the_count_does(percentile: str) -> None:
    """Ranks are exact to 0.1 % of the requests, and in the tail to 1/256 of those beyond them."""
    q = PERCENTILES[percentile]
    parts = [drawn(seed, 100_000, 1 + 0.1 * seed) for seed in range(3)]
    whole = np.sort(np.concatenate(parts))
    rank = nearest_rank(len(whole), q)
    found = present(pooled_percentile([run_of(part) for part in parts], percentile).value)
    error = np.searchsorted(whole, found, side="right") - rank
    assert 0 <= error <= 1 + min(len(whole) / 1000, (len(whole) - rank) / 200)
    assert len(packed(np.sort(parts[0])).weights) < 4 * 3000
    for offset in (-40, -1, 0, 1, 40):  # requests more or fewer within the limit than its percentile asks for
        limit = float(whole[rank - 1 + offset])
        value = present(pooled_percentile([run_of(part, limits=[limit]) for part in parts], percentile).value)
        assert (value <= limit) == (offset >= 0)


def test_failed_requests_are_infinite_in_a_percentile_and_left_out_of_that_of_the_answered() -> None:
    """30 of 300 failed, all in one run: p90 is the largest value, p95 among them; of the answered p95 is the 257th."""
    parts = [drawn(1, 100), drawn(2, 100), drawn(3, 70)]
    runs = [run_of(part, failed) for part, failed in zip(parts, (0, 0, 30), strict=True)]
    whole = np.sort(np.concatenate(parts))
    assert pooled_percentile(runs, "p90").value == whole[-1]
    p95 = pooled_percentile(runs, "p95")
    assert (p95.value, p95.missing, p95.n) == (math.inf, Missing.FAILED, 300)
    assert pooled_answered(runs, "p95") == whole[256]
    assert pooled_answered([run_of(part) for part in parts], "p95") is None


def test_a_percentile_that_depends_on_cut_off_requests_is_withheld() -> None:
    """Of 210 requests, 10 were cut off after 0.1 s: p50 depends on them, unless they are the slowest."""
    values = np.sort(drawn(1, 100))
    early = [run_of(values, cut_off=[0.01] * 10), run_of(values)]
    assert pooled_percentile(early, "p50") == Estimate(None, n=210, missing=Missing.CUT_OFF)
    late = [run_of(values, cut_off=[60.0] * 10), run_of(values)]
    assert pooled_percentile(late, "p50").value == values[52]


@pytest.mark.parametrize(
    ("runs", "missing"),
    [
        pytest.param([EMPTY, EMPTY], Missing.NOT_OBSERVED, id="no request"),
        pytest.param([run_of(np.ones(20)), EMPTY], Missing.NOT_OBSERVED, id="none of one run"),
        pytest.param([Distribution(9, 0, None, None, None, None, {})] * 2, Missing.NOT_OBSERVED, id="values not kept"),
    ],
)
def test_without_values_there_is_no_percentile(runs: list[Distribution], missing: Missing) -> None:
    found = pooled_percentile(runs, "p50")
    assert (found.value, found.missing) == (None, missing)


def test_the_interval_is_of_students_t_on_the_logarithm_with_the_runs_as_clusters() -> None:
    """Of two runs of a speed and one that is 1 % slower the jackknife has no larger error than the runs themselves:
    4.303 · 0.00995 / 3."""
    runs = [run_of(np.linspace(factor, 2 * factor, 31)) for factor in (1.0, 1.0, 1.01)]
    runs = [replace(run, percentiles={"p50": replace(run.percentile("p50"), low=None, high=None)}) for run in runs]
    found = pooled_percentile(runs, "p50")
    half = 4.3027 * math.log(1.01) / 3
    assert found.low == pytest.approx(present(found.value) * math.exp(-half), rel=1e-5)
    assert found.high == pytest.approx(present(found.value) * math.exp(half), rel=1e-5)


def test_the_error_inside_the_runs_is_the_least() -> None:
    """Equal runs, each of 400 requests, have the interval of 1.96 / √3 of their half-width."""
    run = run_of(drawn(1, 400))
    found, own = pooled_percentile([run] * 3, "p50"), run.percentile("p50")
    assert math.log(present(found.high) / present(found.value)) == pytest.approx(
        (present(own.high) - present(own.low)) / 2 / math.sqrt(3) / present(found.value)
    )


def test_few_requests_and_equal_values_have_no_interval() -> None:
    few = pooled_percentile([run_of(drawn(seed, 11)) for seed in range(3)], "p90")
    assert (few.n, few.low, few.missing) == (33, None, Missing.FEW_REQUESTS)
    equal = pooled_percentile([run_of(np.full(50, 0.2))] * 3, "p50")
    assert (equal.value, equal.low, equal.missing) == (0.2, None, Missing.FEW_REPEATS)


@pytest.mark.parametrize(("spread", "runs"), [(0.0, 3), (0.05, 3), (0.05, 5), (0.3, 5)])
def test_an_interval_holds_the_percentile_of_many_runs(spread: float, runs: int) -> None:
    """p90 of lognormal values of runs whose speed differs by a lognormal factor."""
    rng: Any = np.random.default_rng(5)
    truth = math.exp(math.hypot(0.5, spread) * 1.2815515655)
    held = shown = 0
    for _ in range(200):
        parts = [np.exp(0.5 * rng.standard_normal(200) + spread * rng.standard_normal()) for _ in range(runs)]
        found = pooled_percentile([run_of(part) for part in parts], "p90")
        if found.low is not None and found.high is not None:
            shown, held = shown + 1, held + (found.low <= truth <= found.high)
    assert shown == 200
    assert 0.9 <= held / shown <= 1
