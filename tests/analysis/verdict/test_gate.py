"""What became worse than a baseline, what is missing, and the exit code."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from enginebench.analysis.engine_runs import EngineRuns, engine_runs_of
from enginebench.analysis.stats.samples import Sample
from enginebench.analysis.verdict.gate import Check, Gate, Result, check, decided, judge
from enginebench.records.metrics import THROUGHPUT, TTFT, columns
from enginebench.records.view import Estimate
from tests.support.analysis.compared import run, view
from tests.support.present import present

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)
COLUMNS = {column.key: column for column in columns("compared")}
P50, P95, FAILURES = f"{TTFT} p50", f"{TTFT} p95", "failure_share"
LIMIT = 0.2


def times(factor: float, values: Sequence[float] = STEADY) -> tuple[float, ...]:
    return tuple(factor * value for value in reversed(values))


def unjudged(before: Sequence[float], now: Sequence[float], key: str = P50, n: int = 10_000) -> Check:
    baseline, current = (Sample(tuple(Estimate(value, n=n) for value in values)) for values in (before, now))
    return check("vllm", "8 users", COLUMNS[key], baseline, current)


def result_of(before: Sequence[float], now: Sequence[float], key: str = P50, n: int = 10_000) -> Check:
    (found,) = decided([unjudged(before, now, key, n)], LIMIT)
    return found


@pytest.mark.parametrize(
    ("key", "factor", "result", "worse"),
    [
        pytest.param(P50, 1.25, Result.REGRESSION, 0.25, id="25 % longer"),
        pytest.param(P50, 1.15, Result.WARNING, 0.15, id="15 % longer"),
        pytest.param(P50, 1.08, Result.OK, 0.08, id="8 % longer"),
        pytest.param(P50, 0.7, Result.OK, -0.3, id="shorter"),
        pytest.param(THROUGHPUT, 0.75, Result.REGRESSION, 0.25, id="25 % less"),
        pytest.param(THROUGHPUT, 0.85, Result.WARNING, 0.15, id="15 % less"),
        pytest.param(THROUGHPUT, 1.3, Result.OK, -0.3, id="more"),
    ],
)
def test_results_by_how_much_worse_it_is(key: str, factor: float, result: Result, worse: float) -> None:
    found = result_of(STEADY, times(factor), key)
    assert found.result is result
    assert found.worse == pytest.approx(worse)
    assert found.change.value == pytest.approx(factor)
    assert present(found.change.low) < factor < present(found.change.high)


def test_p_values_are_those_of_all_checks_together() -> None:
    """The same 15 % are beyond chance in one check, and not among three hundred."""
    noisy = unjudged((1.0, 1.05, 0.95, 1.04, 0.96), (1.15, 1.2, 1.1, 1.19, 1.11))
    assert decided([noisy], LIMIT)[0].result is Result.WARNING
    many = decided([noisy, *(unjudged(STEADY, times(1 + k / 1e6)) for k in range(300))], LIMIT)
    assert [each.result for each in many[:2]] == [Result.UNCLEAR, Result.OK]


def failing_in(count: int) -> tuple[float, ...]:
    return (*(math.inf,) * count, *STEADY[count:])


NONE, SOME = (0.0,) * 5, (0.05,) * 5


@pytest.mark.parametrize(
    ("before", "now", "key", "result"),
    [
        pytest.param((1.0, 0.6, 1.5, 0.8, 1.2), (1.3, 0.8, 1.9, 1.0, 1.6), P50, Result.UNCLEAR, id="perhaps chance"),
        pytest.param(STEADY[:1], times(1.3)[:1], P50, Result.MISSING, id="one run"),
        pytest.param(STEADY[:2], times(1.3)[:2], P50, Result.MISSING, id="two runs"),
        pytest.param((100.0,) * 5, (50.0,) * 5, THROUGHPUT, Result.REGRESSION, id="halved in every run"),
        pytest.param((100.0,) * 5, (85.0,) * 5, THROUGHPUT, Result.WARNING, id="15 % less in every run"),
        pytest.param(STEADY, NONE, THROUGHPUT, Result.REGRESSION, id="nothing is served"),
        pytest.param((0.03,) * 3, (0.04,) * 3, P50, Result.UNCLEAR, id="one step of a coarse clock"),
        pytest.param((0.03, 0.03, 0.04), (0.06, 0.06, 0.07), P50, Result.REGRESSION, id="three steps"),
        pytest.param(NONE, times(0.03), FAILURES, Result.REGRESSION, id="3 points more failures"),
        pytest.param(NONE, times(0.015), FAILURES, Result.WARNING, id="1.5 points"),
        pytest.param(NONE, times(0.005), FAILURES, Result.OK, id="half a point"),
        pytest.param(failing_in(0), failing_in(5), P95, Result.REGRESSION, id="all among failures, and none before"),
        pytest.param(failing_in(1), failing_in(5), P95, Result.MISSING, id="all, and one before: no test"),
        pytest.param(failing_in(0), failing_in(4), P95, Result.MISSING, id="most: no test"),
        pytest.param(failing_in(0), failing_in(1), P95, Result.OK, id="one: the median run is as it was"),
        pytest.param(failing_in(1), failing_in(0), P95, Result.OK, id="fewer"),
        pytest.param(failing_in(5), failing_in(5), P95, Result.OK, id="as before"),
    ],
)
def test_results_of_runs(before: Sequence[float], now: Sequence[float], key: str, result: Result) -> None:
    found = result_of(before, now, key)
    assert found.result is result
    assert key != FAILURES or found.worse == pytest.approx(10 * sum(now) / 5)


@pytest.mark.parametrize(("requests", "result"), [(20, Result.UNCLEAR), (1000, Result.REGRESSION)])
def test_the_same_few_failures_in_every_run_may_be_chance(requests: int, result: Result) -> None:
    """5 % in each of five runs is one failure of 20, or 50 of 1,000."""
    assert result_of(NONE, SOME, FAILURES, requests).result is result


def version(
    factor: float = 1.0, loads: Sequence[float] = (4, 8), label: str = "vllm", runs: int = 5, without: str = ""
) -> tuple[EngineRuns, ...]:
    """Runs with a TTFT and a throughput at each load; `without` names what the last of them lacks."""
    summaries = []
    for k in range(runs):
        numbers = {P50: 0.1 * factor * STEADY[k % 5], THROUGHPUT: 100 / factor * STEADY[-1 - k % 5]}
        kept = {key: value for key, value in numbers.items() if k < runs - 1 or key != without}
        summaries.append(run(label, [view(load, kept) for load in loads], k))
    return engine_runs_of(summaries)


def gate(baseline: Sequence[EngineRuns], current: Sequence[EngineRuns], **changes: Any) -> Gate:
    return judge(baseline, current, tuple(COLUMNS.values()), changes.pop("limit", LIMIT), **changes)


@pytest.mark.parametrize(
    ("factor", "limit", "code", "regressions"),
    [
        pytest.param(1.0, 0.2, 0, 0, id="equal"),
        pytest.param(0.5, 0.2, 0, 0, id="better"),
        pytest.param(1.3, 0.2, 1, 4, id="TTFT and throughput at both loads"),
        pytest.param(1.15, 0.2, 0, 0, id="warnings pass"),
        pytest.param(1.15, 0.1, 1, 4, id="with a lower limit they fail"),
    ],
)
def test_the_exit_code_of_a_gate(factor: float, limit: float, code: int, regressions: int) -> None:
    found = gate(version(), version(factor), limit=limit)
    assert (found.exit_code, len(found.regressions), found.runs) == (code, regressions, (5, 5))
    assert [each.result for each in found.checks] == sorted(
        (each.result for each in found.checks), key=list(Result).index
    )


Lacking = tuple[str, str, str | None, int, int]


@pytest.mark.parametrize(
    ("baseline", "current", "lacking"),
    [
        pytest.param(version(), version(loads=(4,)), ("vllm", "8 users", None, 5, 0), id="stage"),
        pytest.param(version(loads=(4,)), version(), ("vllm", "8 users", None, 0, 5), id="a stage that is new"),
        pytest.param(
            (*version(), *version(label="other")), version(), ("other", "", None, 5, 0), id="an engine that never ran"
        ),
        pytest.param(version(runs=6), version(), ("vllm", "", None, 6, 5), id="a repeat"),
        pytest.param(version(), version(without=P50), ("vllm", "4 users", P50, 5, 4), id="a value"),
        pytest.param(
            version(without=THROUGHPUT), version(), ("vllm", "4 users", THROUGHPUT, 4, 5), id="a value of the baseline"
        ),
    ],
)
def test_what_one_side_lacks_is_no_pass(
    baseline: Sequence[EngineRuns], current: Sequence[EngineRuns], lacking: Lacking
) -> None:
    found = gate(baseline, current)
    first = found.checks[0]
    key = None if first.column is None else first.column.key
    assert (first.engine, first.stage, key, first.baseline.n, first.now.n) == lacking
    assert (first.result, found.exit_code) == (Result.MISSING, 3)
    assert gate(baseline, current, allow_missing=True).exit_code == 0


def test_a_regression_outweighs_what_is_missing() -> None:
    assert gate(version(), version(1.3, loads=(4,))).exit_code == 1
