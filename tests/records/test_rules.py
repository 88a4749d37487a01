"""The rules: of one request by hand, and of whole columns, which must say the same."""

import math
import random
from typing import Any, get_args

import polars as pl
import pytest

from enginebench.analysis.data.formulas import expression
from enginebench.analysis.data.lines import SCHEMA
from enginebench.records.formula import Formula, reader
from enginebench.records.metrics import BY_NAME, OBJECTIVES, REQUEST_METRICS, Metric
from enginebench.records.request import Outcome, RequestRecord
from enginebench.records.rules import (
    SloAnswer,
    answer_of,
    attempted,
    censored,
    is_failure,
    nearest_rank,
    overall,
    percentile,
    within,
)
from enginebench.records.slo import Objective, parse_objectives
from enginebench.records.stage import SECOND
from tests.support.records import MS, record

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@pytest.mark.parametrize(
    ("n", "q", "rank"),
    [
        pytest.param(1, 0.01, 1, id="of one value every percentile is it"),
        pytest.param(10, 0.5, 5, id="the lower one of the two in the middle"),
        pytest.param(11, 0.5, 6, id="the middle"),
        pytest.param(20, 0.95, 19, id="0.95 · 20 is a hair above 19 in binary"),
        pytest.param(100, 0.99, 99, id="one of a hundred is above p99"),
        pytest.param(101, 0.99, 100, id="rounded up"),
        pytest.param(1000, 0.999, 999, id="p99.9"),
        pytest.param(7, 1.0, 7, id="the largest"),
    ],
)
def test_the_nearest_rank(n: int, q: float, rank: int) -> None:
    assert nearest_rank(n, q) == rank


def test_a_percentile_is_the_least_value_that_a_share_does_not_exceed() -> None:
    rng = random.Random(0)
    for _ in range(200):
        values = sorted(rng.choice([0.1, 0.2, 0.3, math.inf]) for _ in range(rng.randrange(1, 60)))
        percent = rng.randrange(1, 101)
        found = percentile(values, percent / 100)
        assert 100 * sum(value <= found for value in values) >= percent * len(values)
        assert 100 * sum(value < found for value in values) < percent * len(values)


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        pytest.param(0.95, 0.99, "met", id="the whole interval keeps the limit"),
        pytest.param(0.90, 0.949, "missed", id="none of it does"),
        pytest.param(0.94, 0.96, "not confirmed", id="some of it does"),
        pytest.param(None, None, "not confirmed", id="no interval"),
    ],
)
def test_an_objective_is_answered_by_the_interval_of_a_share(
    low: float | None, high: float | None, answer: SloAnswer
) -> None:
    assert answer_of(low, high, 0.95) == answer


def test_every_outcome_but_three_is_a_failure() -> None:
    assert [outcome for outcome in OUTCOMES if not is_failure(outcome)] == ["ok", "unsent", "cut_off"]


TOO_EARLY = {"t_first": None, "t_first_out": None, "t_last": None, "output_tokens": None, "outcome": "cut_off"}
GOOD, BAD, UNKNOWN = 1, 0, None


@pytest.mark.parametrize(
    ("metric", "changes", "value", "is_bound", "judged"),
    [
        pytest.param("ttft", {}, 0.3, 0, {0.2: BAD, 0.3: GOOD}, id="an answer"),
        pytest.param("ttft", {"outcome": "timeout"}, math.inf, 0, {9: BAD}, id="a failure"),
        pytest.param("ttft", {"outcome": "cut_off"}, 0.3, 0, {0.2: BAD, 0.3: GOOD}, id="its first token had come"),
        pytest.param("ttft", TOO_EARLY, 0.501, 1, {0.5: BAD, 0.6: UNKNOWN}, id="it had not: at least until the end"),
        pytest.param("e2e", {"outcome": "cut_off"}, 0.501, 1, {0.5: BAD, 0.6: UNKNOWN}, id="more chunks could follow"),
        pytest.param("e2e_user", TOO_EARLY, 0.502, 1, {0.5: BAD, 0.6: UNKNOWN}, id="since it was due"),
        pytest.param("ttft", TOO_EARLY | {"t_send": None}, None, 1, {9: UNKNOWN}, id="it had not been sent"),
        pytest.param("tpot", {"outcome": "cut_off"}, None, 1, {9: UNKNOWN}, id="how fast it would have come"),
        pytest.param("tpot", {"outcome": "dropped"}, math.inf, 0, {9: BAD}, id="never sent"),
        pytest.param("tpot", {"chunks": 1, "t_last": 301 * MS}, None, 0, {0.01: GOOD}, id="one chunk is never slow"),
        pytest.param("tpot", {"output_tokens": None}, None, 0, {9: UNKNOWN}, id="but unknown tokens are unknown"),
        pytest.param("ntpot_user", {"output_tokens": None}, None, 0, {9: UNKNOWN}, id="of all metrics that need them"),
        pytest.param("ttft", {"t_first": None}, None, 0, {9: BAD}, id="an answer without content has none in time"),
    ],
)
def test_what_counts_of_a_request(
    metric: str, changes: dict[str, Any], value: float | None, is_bound: int, judged: dict[float, int | None]
) -> None:
    """Its value among all that were attempted, whether that is a lower bound, and whether it keeps limits."""
    declared, request = BY_NAME[metric], record(**changes)
    assert reader(attempted(declared.formula))(request) == pytest.approx(value)
    assert reader(censored(declared.formula))(request) == is_bound
    kept = {
        limit: reader(within(declared.formula, limit, declared.needs, declared.absent_is_good))(request)
        for limit in judged
    }
    assert kept == judged


def any_record(rng: random.Random) -> RequestRecord:
    """Stamps in order, any of which may be missing from some on; every outcome; whatever a server may not say."""

    def maybe(value: Any) -> Any:
        return value if rng.random() < 0.8 else None

    t_sched = rng.randrange(SECOND)
    longest = round(SECOND * 10 ** rng.uniform(-3, 0))
    stamps = [t_sched + rng.randrange(longest) for _ in range(6)]
    sent, connect, first, first_out, last, end = sorted(stamps)
    streamed = rng.random() < 0.8
    return record(
        outcome=rng.choice(OUTCOMES),
        t_sched=t_sched,
        t_connect=rng.choice([None, sent]),
        t_send=maybe(connect),
        t_first=maybe(first) if streamed else None,
        t_first_out=maybe(first_out) if streamed else None,
        read_first=maybe(first + rng.randrange(MS)),
        t_last=maybe(last),
        t_end=end,
        stamps=rng.choice(["kernel", "user"]),
        icl=tuple(rng.randrange(SECOND) for _ in range(rng.randrange(3))),
        chunks=rng.randrange(4),
        first_chunk_tokens=maybe(rng.randrange(3)),
        output_tokens=maybe(rng.randrange(20)),
        unseen_tokens=rng.choice([0, 0, 3]),
        server_queue=maybe(rng.random()),
        server_prefill=maybe(rng.random()),
        streamed=streamed,
    )


RNG = random.Random(1)
RECORDS = [any_record(RNG) for _ in range(500)]
COLUMNS = pl.DataFrame({name: [getattr(one, name) for one in RECORDS] for name in SCHEMA}, schema=SCHEMA)


def same_on_columns(formula: Formula) -> list[float | None]:
    """The values, after both readings gave the same."""
    of_columns = COLUMNS.select(value=expression(formula))["value"].to_list()
    of_records = [reader(formula)(one) for one in RECORDS]
    assert of_columns == pytest.approx(of_records)
    return of_columns


@pytest.mark.parametrize("metric", REQUEST_METRICS, ids=lambda metric: metric.name)
def test_columns_are_counted_as_single_requests_are(metric: Metric) -> None:
    plain = same_on_columns(metric.formula)
    counted = same_on_columns(attempted(metric.formula))
    bounds = same_on_columns(censored(metric.formula))
    for one, value, among_all, is_bound in zip(RECORDS, plain, counted, bounds, strict=True):
        if one.outcome == "ok":
            assert (among_all, is_bound) == (value, 0)
        elif is_failure(one.outcome):
            assert (among_all, is_bound) == (math.inf, 0)


@pytest.mark.parametrize(
    "objective",
    [
        *(Objective(name, 0.9, limit) for name in OBJECTIVES for limit in (0.003, 0.05)),
        *parse_objectives(["failures=0.1"]),
    ],
    ids=str,
)
def test_columns_are_judged_as_single_requests_are(objective: Objective) -> None:
    judged = same_on_columns(objective.within)
    assert set(judged) == {1, 0, None}
    for one, good in zip(RECORDS, judged, strict=True):
        assert (good == 1) == objective.judge(one)[0]
        if one.outcome == "ok":
            counted = objective.metric not in {"tpot", "ntpot"} or one.output_tokens is not None
            assert (good is not None) == counted
        if is_failure(one.outcome):
            assert good == 0
    if objective.judged is None:
        return
    values, bounds = (same_on_columns(rule(objective.judged.formula)) for rule in (attempted, censored))
    for value, is_bound, good in zip(values, bounds, judged, strict=True):
        if value is not None:
            expected = 0 if value > objective.limit else UNKNOWN if is_bound else 1
            assert good == expected, "what is judged is what is counted"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param(["met", "met"], "met", id="all are met"),
        pytest.param(["met", "not confirmed"], "not confirmed", id="one may be missed"),
        pytest.param(["not confirmed", "missed", "met"], "missed", id="one is missed"),
        pytest.param([], "not confirmed", id="nothing was judged"),
    ],
)
def test_objectives_together(answers: list[SloAnswer], expected: SloAnswer) -> None:
    assert overall(answers) == expected
