"""From samples to figures: medians and intervals, tables, the sentence, the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from enginebench.analysis.verdict import gate as gates
from enginebench.settings.schema import UserMistake
from engines.bench.document import BenchResult, Limit, Result, Round, Series, measure_of, read_result, to_json
from engines.bench.gate import judge
from engines.bench.tables import middle_of, notes_of, sentence_of, tables_of
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


def test_the_median_of_all_samples_with_its_deviation() -> None:
    middle = middle_of(series("decode", [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 90.0]))
    assert middle is not None
    assert (middle.median, middle.mad, middle.n) == (5.0, 2.0, 9)


def test_the_interval_covers_what_differs_between_processes() -> None:
    """Within each of three processes hardly any spread: ranks alone would give 1.0 to 1.2 and so miss most of it."""
    rounds = [[level + 1e-4 * k for k in range(30)] for level in (1.0, 1.1, 1.2)]
    middle = middle_of(series("decode", *rounds))
    assert middle is not None
    assert middle.low is not None
    assert middle.high is not None
    assert middle.low < 0.9
    assert middle.high > 1.3, "Student's t with two degrees of freedom: 1.1 ± 0.25"


def test_the_interval_holds_where_samples_are_independent() -> None:
    """In at least 93 of 100 simulated benches of one process, as for every interval of this tool."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        middle = middle_of(series("decode", rng.lognormal(0.0, 0.3, 100).tolist()))
        assert middle is not None
        assert middle.low is not None
        assert middle.high is not None
        held += middle.low <= 1.0 <= middle.high
    assert held >= 372


def test_too_few_samples_say_why_there_is_no_interval() -> None:
    middle = middle_of(series("load", [1.0], [2.0]))
    assert middle is not None
    assert middle.low is None
    assert middle.why == "2 < 3 rounds"
    alone = middle_of(series("load", [1.0]))
    assert alone is not None
    assert alone.mad is None, "one sample has no spread"


def test_who_decodes_fastest_needs_rounds() -> None:
    fast, slow = decoding("burn", 0.01), decoding("candle", 0.02, (1.0, 1.02, 0.98, 0.99, 1.01))
    assert sentence_of(bench(fast, slow)).startswith("burn decodes 2.00× [1.97, 2.03]")
    same = sentence_of(bench(fast, decoding("candle", 0.02)))
    assert same.endswith("the tokens/s of candle (no spread from run to run).")
    one = [replace(each, series=(series("decode", [0.01] * 3),)) for each in (fast, slow)]
    assert sentence_of(bench(*one, rounds=1)) == (
        "No engine is named as the fastest at decoding: burn decodes 1.00× the tokens/s of candle (1 < 3 repeats)."
    )
    assert sentence_of(bench(fast)).startswith("burn decodes a token in 10.0 ms [")
    assert sentence_of(bench(one[0])) == "burn decodes a token in 10.0 ms (no interval: 1 < 3 rounds)."
    assert sentence_of(bench(result("burn", failure="no model"))) == "Nothing was measured."


def test_tables_and_notes_say_what_there_is_and_what_is_missing() -> None:
    (table,) = tables_of(bench(decoding("burn", 0.01)))
    assert table.title == "One request"
    assert table.rows[0][:2] == ("burn", "time per decoded token")
    assert table.rows[0][2] == "10.0 ms"
    assert table.rows[0][6] == "100"
    assert table.caption == ""
    (loading,) = tables_of(bench(result("burn", series=(series("load", [1.0], [2.0]),))))
    assert loading.rows[0][4] == "–"
    assert loading.caption == "No interval: 2 < 3 rounds."
    notes = list(notes_of(bench(result("gone", series=(), info=None, failure="no program."))))
    assert notes[0] == "gone was not measured: no program."
    assert notes[1] == "cpu reads 8.00 GB/s and multiplies 40.0 GFLOP/s in float32 (test, last round)."


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
