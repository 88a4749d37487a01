"""Objectives as they are typed, and one request judged by them."""

import re
from typing import Any

import pytest

from enginebench.records.metrics import QUANTITY_BY_NAME
from enginebench.records.slo import FAILURES, FAULTS, Objective, RunObjectives, parse_objectives, write_objectives
from tests.support.records import record


def test_objectives_are_read_as_they_are_written() -> None:
    text = "ttft_p99=0.5,failures=0.01,ttft_p95=2,tpot_p99.9=0.1"
    objectives = parse_objectives([text])
    assert objectives == (
        Objective("ttft", 0.99, 0.5),
        Objective(FAILURES, 0.99),
        Objective("ttft", 0.95, 2.0),
        Objective("tpot", 0.999, 0.1),
    )
    assert parse_objectives([write_objectives(objectives)]) == objectives
    assert [objective.text for objective in objectives][:2] == ["TTFT p99 ≤ 500 ms", "failures ≤ 1 %"]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("ttft_p95=500ms", 0.5),
        ("ttft_p95=0.5", 0.5),
        ("e2e_p99=2m", 120.0),
        ("e2e_p99=300s", 300.0),
        ("tpot_p50=1h", 3600),
    ],
)
def test_a_limit_has_a_unit_or_is_in_seconds(text: str, limit: float) -> None:
    (objective,) = parse_objectives([text])
    assert objective.limit == pytest.approx(limit)
    assert parse_objectives([str(objective)]) == parse_objectives([objective.typed]) == (objective,)


def test_an_objective_counts_once_and_keeps_its_digits() -> None:
    (objective,) = parse_objectives(["ttft_p99.99999=1,ttft_p99.99999=1s", "ttft_p99.99999=1000ms"])
    assert str(objective) == "ttft_p99.99999=1"


def test_a_fault_has_a_quantity_and_its_limit_keeps_its_digits() -> None:
    for fault in FAULTS.values():
        assert fault.share in QUANTITY_BY_NAME
        for text in (f"{fault.name}=0.0123456789", f"{fault.name}=1e-06"):
            (objective,) = parse_objectives([text])
            assert (objective.fault, objective.judged, str(objective)) == (fault, None, text)
            assert parse_objectives([str(objective)]) == (objective,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_p95=500", "500 s? Write ttft_p95=500ms, or 500s."),
        ("itl_p95=0.1", "itl is called tpot here: write tpot_p95=0.1, not `itl_p95=0.1`."),
        ("p95_ttft=0.5", "an objective begins with its metric: write ttft_p95=0.5, not `p95_ttft=0.5`."),
        ("ttft_p95<0.5", "an objective is a limit with `=`: write ttft_p95=0.5, not `ttft_p95<0.5`."),
        ("failures=0", "a share of failures is above 0, such as failures=0.001, not `failures=0`."),
        ("ttft_p95<=500ms", "an objective is a limit with `=`: write ttft_p95=500ms, not `ttft_p95<=500ms`."),
    ],
)
def test_a_common_mistake_is_told_the_right_way_to_write_it(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_objectives([text])


@pytest.mark.parametrize(
    "text", ["ttft=1", "ttft_p99", "foo_p99=1", "ttft_p0=1", "ttft_p100=1", "ttft_p99=-1", "ttft_p99=inf", "failures=1"]
)
def test_an_objective_that_is_none_gets_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"an objective is .*METRIC_pN=TIME"):
        parse_objectives([text])


@pytest.mark.parametrize(
    ("objective", "changes", "expected"),
    [
        pytest.param("ttft_p50=0.301", {}, (True, 0.301), id="at the limit, since it was due"),
        pytest.param("ttft_p50=0.3", {}, (False, 0.301), id="above it"),
        pytest.param("ttft_p50=1", {"outcome": "timeout"}, (False, None), id="a failure misses whatever it took"),
        pytest.param("failures=0.1", {}, (True, None), id="an answer is no failure"),
        pytest.param("failures=0.1", {"outcome": "rejected"}, (False, None), id="a refusal is one"),
        pytest.param("failures=0.1", {"outcome": "cut_off"}, (False, None), id="neither good nor bad"),
    ],
)
def test_one_request(objective: str, changes: dict[str, Any], expected: tuple[bool, float | None]) -> None:
    (judged,) = parse_objectives([objective])
    assert judged.judge(record(**changes)) == expected


def test_a_request_of_a_class_is_judged_by_the_objectives_of_its_class_too() -> None:
    objectives = RunObjectives.from_workload({"slo": "ttft_p50=1", "class_objectives": {"chat": "e2e_p50=0.5"}})
    assert objectives.met_by(record(request_class="batch"))
    assert not objectives.met_by(record(request_class="chat"))  # E2E of 501 ms
    assert objectives.met_by(record(outcome="cut_off")), "its first token had come in time"
    assert objectives.met_by(record(outcome="cut_off", t_first=None)) is None
    assert objectives.met_by(record(outcome="timeout", request_class="other")) is False
    assert RunObjectives().met_by(record()) is None, "without objectives nothing is good or bad"
    assert not RunObjectives.from_workload({})
