"""From rows to figures: the frame, tables, the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enginebench.analysis.answer import BenchAnswer, NoAnswer
from enginebench.analysis.document import Table, Word
from enginebench.records.view import Missing
from engines.bench.report import answer, bench_document, frame, series_of
from engines.bench.result import (
    BANDWIDTH,
    EVERYTHING,
    MEDIAN,
    BenchEngine,
    BenchResult,
    LeftOut,
    Row,
    read_result,
    to_json,
)
from engines.contract.base import EngineInfo

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)
INFO = EngineInfo("x", "1", "python", "m", "float32", "cpu", "continuous", 8, 2048)
MACHINE = {"cpu": "c", "usable_cores": 2, "memory": 1}


def row(repeat: int, value: float | None, n: int = 3, engine: str = "burn", **changes: Any) -> Row:
    return Row(
        **{"metric": "decode", "statistic": MEDIAN, "unit": "s"} | changes,
        value=value,
        repeat=repeat,
        engine=engine,
        n=n,
    )


def decoding(engine: str, seconds: float, spread: Sequence[float] = STEADY) -> tuple[Row, ...]:
    return tuple(row(repeat, seconds * factor, engine=engine) for repeat, factor in enumerate(spread))


def bench(*rows: Row, left_out: tuple[LeftOut, ...] = ()) -> BenchResult:
    labels = dict.fromkeys(row.engine for row in rows if row.engine is not None)
    engines = tuple(BenchEngine(label, label, "m", {}, INFO) for label in labels)
    return BenchResult("2026-11-22T00:00:00+00:00", host=MACHINE, engines=engines, rows=rows, left_out=left_out)


def test_every_round_and_the_mean_over_rounds_are_rows_of_the_frame() -> None:
    table = frame([row(0, 2.0, 3, study="kernels"), row(2, 5.0, 1, study="kernels"), row(3, 8.0, 2, study="kernels")])
    assert table.select("repeat", "value", "n").rows() == [(0, 2.0, 3), (2, 5.0, 1), (3, 8.0, 2), (None, 5.0, 3)]
    over = table.row(-1, named=True)
    assert (over["study"], over["engine"], over["metric"], over["statistic"], over["unit"]) == (
        *("kernels", "burn", "decode", "median", "s"),
    )
    half = 4.3027 * 3 / 3**0.5  # Student's t with two degrees of freedom; the medians' deviation is 3
    assert over["high"] == pytest.approx(5 + half, rel=1e-4)
    assert over["low"] == 0.0, "a duration is not negative"


def test_two_rounds_have_no_interval() -> None:
    over = frame([row(repeat, value, metric="load") for repeat, value in enumerate((1.0, 2.0))]).row(-1, named=True)
    assert (over["value"], over["low"], over["missing"]) == (1.5, None, Missing.FEW_REPEATS.value)


def test_a_share_needs_every_round() -> None:
    """A limit that one round exceeds is no limit of the others."""
    shares = [row(repeat, value, statistic=BANDWIDTH, unit="share") for repeat, value in enumerate((0.5, None, 0.7))]
    (series,) = series_of([row(0, 1.0), row(1, 0.4), row(2, 1.0), *shares])
    assert series.estimate(BANDWIDTH).missing is Missing.NOT_OBSERVED
    assert series.estimate().value == pytest.approx(0.8)
    (series,) = series_of([row(0, 1.0), row(2, 1.0), shares[0], shares[2]])
    assert series.estimate(BANDWIDTH).value == pytest.approx(0.6)


FAST, SLOW = decoding("burn", 0.01), decoding("candle", 0.02, (1.0, 1.02, 0.98, 0.99, 1.01))


@pytest.mark.parametrize(
    ("rows", "ratio", "significant"),
    [
        pytest.param(FAST + SLOW, 2.0, True, id="twice as fast"),
        pytest.param(FAST + decoding("candle", 0.0101, (1.0, 1.05, 0.96, 1.02, 0.98)), 1.01, False, id="chance"),
        pytest.param(FAST[:1] + SLOW[:1], 2.0, None, id="one round"),
    ],
)
def test_who_decodes_fastest_needs_rounds(rows: tuple[Row, ...], ratio: float, significant: bool | None) -> None:
    best = answer(series_of(rows))
    assert isinstance(best, BenchAnswer)
    assert (best.decode.best, best.decode.next, best.decode.significant) == ("burn", "candle", significant)
    assert best.decode.ratio.value == pytest.approx(ratio, rel=0.02)
    assert best.prefill is None


def test_without_a_second_engine_there_is_no_ratio() -> None:
    alone = answer(series_of(FAST))
    assert isinstance(alone, BenchAnswer)
    assert (alone.decode.best, alone.decode.next, alone.decode.ratio.value) == ("burn", None, None)
    assert alone.decode.speed.value == pytest.approx(100.0, rel=0.01)
    assert answer([]) is NoAnswer.NOTHING_MEASURED


def test_prompts_are_compared_at_the_longest_that_all_engines_read_in_every_round() -> None:
    lengths = {"burn": {32: 0.5, 128: 2.0, 512: 9.0}, "candle": {32: 0.1, 128: 0.25, 1024: 2.0}}
    prefills = [
        row(repeat, seconds * factor, engine=engine, metric="prefill", load=length)
        for engine, times in lengths.items()
        for length, seconds in times.items()
        for repeat, factor in enumerate(STEADY)
    ]
    some = [row(0, 4.0, engine="candle", metric="prefill", load=512)]
    result = bench(*FAST, *SLOW, *prefills, *some)
    best = answer(series_of(result.rows))
    assert isinstance(best, BenchAnswer)
    assert best.prefill is not None
    assert (best.decode.best, best.prefill.best, best.prompt) == ("burn", "candle", 128)
    assert best.prefill.speed.value == pytest.approx(128 / 0.25, rel=0.01)
    assert best.prefill.ratio.value == pytest.approx(8.0, rel=0.01)
    document = bench_document(result)
    assert document.candidates is not None
    assert document.candidates.columns[3].heading == "prefill tokens/s, 128 tokens"
    assert document.figure is not None
    assert {line.name: [point.x for point in line.points] for line in document.figure.series} == {
        "burn": [32.0, 128.0, 512.0],
        "candle": [32.0, 128.0, 512.0, 1024.0],
    }


def test_the_document_has_what_was_measured_and_what_was_not() -> None:
    limits = Row("memory bandwidth", "largest", "B/s", 8e9, 0, stage="cpu, float32")
    document = bench_document(bench(*FAST, limits, left_out=(LeftOut("gone", EVERYTHING, "no program."),)))
    assert (document.tested.engines, document.tested.repeats) == (("burn",), (5, 5))
    measured, missing = document.sections
    (table,) = measured.blocks
    assert isinstance(table, Table)
    assert table.title == "Measures"
    assert [row[:2] for row in table.rows] == [(Word("burn"), Word("time per decoded token"))]
    (left_out,) = missing.blocks
    assert isinstance(left_out, Table)
    assert left_out.rows == ((Word("gone"), Word("all"), Word("no program.")),)
    assert "memory bandwidth" in document.frame["metric"].to_list()


def test_a_result_is_read_as_it_was_written(tmp_path: Any) -> None:
    result = bench(*decoding("burn", 0.01))
    (tmp_path / "a.json").write_text(to_json(result))
    assert read_result(tmp_path / "a.json") == result
    (tmp_path / "a.json").write_text(to_json(bench(*result.rows, row(0, 1.0, metric="of another version"))))
    assert read_result(tmp_path / "a.json") == result
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(ValueError, match=r"b\.json is not a result of `enginebench bench`"):
        read_result(tmp_path / "b.json")
