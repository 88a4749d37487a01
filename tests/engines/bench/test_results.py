"""From samples to figures: medians and intervals, tables, the sentence, the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from enginebench.analysis.answer import BenchAnswer, NoAnswer
from enginebench.analysis.document import Table, Word
from enginebench.analysis.verdict import gate as gates
from enginebench.records.view import Missing
from enginebench.settings.schema import UserMistake
from engines.bench.document import BenchResult, Limit, Result, Round, Series, measure_of, read_result, to_json
from engines.bench.gate import judge
from engines.bench.tables import answer_of, median_of, sections_of
from engines.contract.base import EngineInfo

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)
LIMIT = Limit("cpu", "float32", bandwidth=8e9, flops=40e9, by="test")
INFO = EngineInfo("x", "1", "python", "m", "float32", "cpu", "continuous", 8, 2048)


def series(name: str, *rounds: Sequence[float]) -> Series:
    return Series(measure_of(name), tuple(map(tuple, rounds)))


def result(label: str, *found: Series, **changes: Any) -> Result:
    return replace(Result(label, label, "m", {}, INFO, tuple(found)), **changes)


def bench(*results: Result, rounds: int = 5, **host: Any) -> BenchResult:
    each = Round(tuple(one.label for one in results), 0.1, (LIMIT,))
    facts = {"cpu": "c", "usable_cores": 2, "memory": 1} | host
    return BenchResult("2026-11-22T00:00:00+00:00", ("bench",), facts, {}, {}, (each,) * rounds, results)


def decoding(label: str, seconds: float, spread: Sequence[float] = STEADY) -> Result:
    return result(label, series("decode", *([seconds * factor] * 3 for factor in spread)))


def test_the_median_is_of_all_samples() -> None:
    median = median_of(series("decode", [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 90.0]))
    assert (median.value, median.n) == (5.0, 9)


def test_the_interval_covers_what_differs_between_processes() -> None:
    """Within each of three processes hardly any spread: ranks alone would give 1.0 to 1.2 and so miss most of it."""
    median = median_of(series("decode", *([level + 1e-4 * k for k in range(30)] for level in (1.0, 1.1, 1.2))))
    assert median.low is not None
    assert median.high is not None
    assert median.low < 0.9
    assert median.high > 1.3, "Student's t with two degrees of freedom: 1.1 ± 0.25"


def test_the_interval_holds_if_samples_are_independent() -> None:
    """In at least 93 of 100 simulated benches, as for every interval of this tool."""
    rng = np.random.default_rng(1)
    medians = [median_of(series("decode", *rng.lognormal(0.0, 0.3, (3, 33)).tolist())) for _ in range(400)]
    assert sum((median.low or 9) <= 1.0 <= (median.high or 0) for median in medians) >= 372


@pytest.mark.parametrize(
    ("rounds", "missing"),
    [
        pytest.param([], Missing.NOT_OBSERVED, id="nothing"),
        pytest.param([[1.0]], Missing.FEW_REPEATS, id="one sample"),
        pytest.param([[1.0], [2.0]], Missing.FEW_REPEATS, id="two rounds"),
        pytest.param([[1.0], [2.0], [3.0]], None, id="three rounds"),
    ],
)
def test_too_few_rounds_have_no_interval(rounds: list[list[float]], missing: Missing | None) -> None:
    median = median_of(series("load", *rounds))
    assert (median.missing, median.low is None) == (missing, missing is not None)


FAST, SLOW = decoding("burn", 0.01), decoding("candle", 0.02, (1.0, 1.02, 0.98, 0.99, 1.01))


@pytest.mark.parametrize(
    ("results", "ratio", "significant"),
    [
        pytest.param((FAST, SLOW), 2.0, True, id="twice as fast"),
        pytest.param((FAST, decoding("candle", 0.0101, (1.0, 1.05, 0.96, 1.02, 0.98))), 1.01, False, id="chance"),
        pytest.param(
            tuple(replace(each, series=(series("decode", [0.01] * 3),)) for each in (FAST, SLOW)),
            1.0,
            None,
            id="one round",
        ),
    ],
)
def test_who_decodes_fastest_needs_rounds(results: tuple[Result, ...], ratio: float, significant: bool | None) -> None:
    answer = answer_of(bench(*results))
    assert isinstance(answer, BenchAnswer)
    assert (answer.best, answer.next, answer.significant) == ("burn", "candle", significant)
    assert answer.ratio is not None
    assert answer.ratio.value == pytest.approx(ratio, rel=0.02)


def test_without_a_second_engine_there_is_no_ratio() -> None:
    alone = answer_of(bench(FAST))
    assert isinstance(alone, BenchAnswer)
    assert (alone.best, alone.next, alone.ratio) == ("burn", None, None)
    assert alone.value.value == pytest.approx(100.0, rel=0.01)
    assert answer_of(bench(result("burn", failure="no model"))) is NoAnswer.NOTHING_MEASURED


def test_sections_have_what_was_measured_and_what_was_not() -> None:
    measured, missing = sections_of(bench(FAST, result("gone", info=None, failure="no program.")))
    (table,) = measured.blocks
    assert isinstance(table, Table)
    assert table.title == "One request"
    assert table.rows[0][:2] == (Word("burn"), Word("time per decoded token"))
    (left_out,) = missing.blocks
    assert isinstance(left_out, Table)
    assert left_out.rows == ((Word("gone"), Word("all"), Word("no program.")),)


def test_the_document_is_read_as_it_was_written(tmp_path: Any) -> None:
    found = bench(decoding("burn", 0.01))
    (tmp_path / "a.json").write_text(to_json(found))
    assert read_result(tmp_path / "a.json").results == found.results
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(ValueError, match=r"b\.json is not a result of `enginebench bench`"):
        read_result(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("factor", "result", "code"),
    [
        (1.0, gates.Result.OK, 0),
        (1.15, gates.Result.WARNING, 0),
        (1.3, gates.Result.REGRESSION, 1),
        (0.5, gates.Result.OK, 0),
    ],
)
def test_the_gate_has_the_rules_of_the_gate(factor: float, result: gates.Result, code: int) -> None:
    gate = judge(bench(decoding("burn", 0.01)), bench(decoding("burn", 0.01 * factor)))
    (check,) = gate.checks
    assert (check.result, gate.exit_code) == (result, code)
    assert check.column is not None
    assert check.column.title == "time per decoded token"


def test_less_throughput_is_worse() -> None:
    def batch(rate: float) -> BenchResult:
        return bench(result("burn", series("batch 8", *([rate * factor] for factor in STEADY))))

    gate = judge(batch(100.0), batch(70.0))
    assert (gate.exit_code, gate.checks[0].stage) == (1, "8 requests")
    assert judge(batch(100.0), batch(130.0)).exit_code == 0


def test_rounds_are_runs_of_which_a_gate_needs_five() -> None:
    two = bench(decoding("burn", 0.01, (1.0, 1.0)), rounds=2)
    assert judge(bench(decoding("burn", 0.01)), two).exit_code == 3


@pytest.mark.parametrize(
    ("current", "said"),
    [
        pytest.param(bench(decoding("candle", 0.01)), "no figures of candle; it has burn", id="another engine"),
        pytest.param(bench(decoding("burn", 0.01), cpu="d"), "another machine: cpu was c and is d", id="machine"),
        pytest.param(
            bench(replace(decoding("burn", 0.01), info=replace(INFO, dtype="q8_0"))),
            "burn: number format was float32 and is q8_0",
            id="number format",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(current: BenchResult, said: str) -> None:
    with pytest.raises(UserMistake, match=said):
        judge(bench(decoding("burn", 0.01)), current)
