"""From samples to figures: rows of the frame, tables, the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from enginebench.analysis.answer import BenchAnswer, NoAnswer
from enginebench.analysis.document import Table, Word
from enginebench.records.view import Missing
from engines.bench.document import answer_of, rows_of, sections_of
from engines.bench.result import BenchResult, Limit, Result, Round, Series, measure_of, read_result, to_json
from engines.contract.base import EngineInfo

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)
LIMIT = Limit("cpu", "float32", bandwidth=8e9, flops=40e9, by="test")
INFO = EngineInfo("x", "1", "python", "m", "float32", "cpu", "continuous", 8, 2048)


def series(name: str, *rounds: Sequence[float]) -> Series:
    return Series(measure_of(name), tuple(map(tuple, rounds)))


def result(label: str, *found: Series, **changes: Any) -> Result:
    return replace(Result(label, label, "m", {}, INFO, tuple(found)), **changes)


def bench(*results: Result, rounds: int = 5) -> BenchResult:
    each = Round(tuple(one.label for one in results), (LIMIT,))
    facts = {"cpu": "c", "usable_cores": 2, "memory": 1}
    return BenchResult("2026-11-22T00:00:00+00:00", ("bench",), facts, {}, {}, (each,) * rounds, results)


def decoding(label: str, seconds: float, spread: Sequence[float] = STEADY) -> Result:
    return result(label, series("decode", *([seconds * factor] * 3 for factor in spread)))


def test_every_round_and_the_mean_over_rounds_are_rows_of_the_frame() -> None:
    burn = result("burn", series("decode", [1.0, 2.0, 3.0], [], [5.0], [9.0, 7.0]))
    rows = list(rows_of(bench(burn, rounds=4), study="kernels"))
    shown = [(row.get("repeat"), row["value"], row["n"]) for row in rows]
    assert shown == [(0, 2.0, 3), (2, 5.0, 1), (3, 8.0, 2), (None, 5.0, 3)]
    over = rows[-1]
    assert (over["study"], over["engine"], over["metric"], over["statistic"], over["unit"]) == (
        *("kernels", "burn", "decode", "median", "s"),
    )
    half = 4.3027 * 3 / 3**0.5  # Student's t with two degrees of freedom; the medians' deviation is 3
    assert over["high"] == pytest.approx(5 + half, rel=1e-4)
    assert over["low"] == 0.0, "a duration is not negative"


def test_two_rounds_have_no_interval() -> None:
    over = list(rows_of(bench(result("burn", series("load", [1.0], [2.0])))))[-1]
    assert (over["value"], over["low"], over["missing"]) == (1.5, None, Missing.FEW_REPEATS.value)


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
    assert table.title == "Measures"
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
