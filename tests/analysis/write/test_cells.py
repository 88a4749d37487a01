import math

import pytest

from enginebench.analysis.document import Cell, Column, Number, Table, Tone, Word
from enginebench.analysis.write.cells import change_text, glued, show, signs_of
from enginebench.records.view import Estimate, Missing
from tests.support.analysis import documents
from tests.support.analysis.documents import LADDER, UNKNOWN, capacity, verdict


def number(value: float | None, low: float | None = None, high: float | None = None, **more: object) -> Number:
    n = more.pop("n", 0)
    missing = more.pop("missing", None)
    return Number(Estimate(value, low, high, n=n, missing=missing), **more)  # type: ignore[arg-type]


def test_the_durations_of_a_column_share_a_unit() -> None:
    cells = (number(0.478, 0.414, 0.552, unit="s"), number(13.3, unit="s"), number(None, unit="s"), Word("x"))
    table = Table("t", "", (Column("TTFT"),), tuple((cell,) for cell in cells)).with_shared_units()
    assert [show(row[0]).line for row in table.rows] == ["0.478 s [0.414, 0.552]", "13.3 s", "–", "x"]
    short = Table("t", "", (Column("TTFT"),), ((number(0.002, unit="s"),), (number(13.3, unit="s"),)))
    assert [show(row[0]).line for row in short.with_shared_units().rows] == ["2.00 ms", "13.3 s"]


NUMBERS: list[tuple[Number, str]] = [
    (number(0.048, unit="s"), "48.0 ms"),
    (number(12.0, style="count", simulated=11), "12 (simulated: 11)"),
    (number(2.1, 1.7, 2.4, style="ratio", significant=True, over="burn"), "2.1× burn [1.7, 2.4]"),
    (number(1.5, unit="s"), "1.50 s"),
    (number(0.98, 0.91, 1.2, unit="s"), "980 ms [910, 1200]"),
    (number(0.98, 0.91, math.inf, unit="s"), "980 ms"),
    (number(0.0, unit="s"), "0 s"),
    (number(139.2, 120.1, 158.4, unit="tokens/s"), "139 [120, 158]"),
    (number(139.2, 139.2, 139.2, unit="tokens/s"), "139"),
    (number(1235.4, unit="tokens/s"), "1,235"),
    (number(0.967, 0.941, 0.982, unit="share"), "96.7 % [94.1, 98.2]"),
    (number(1610612736, unit="B"), "1.50 GiB"),
    (number(1.0, n=403, style="part"), "403 of 403"),
    (number(3 / 52, n=52, style="part"), "3 of 52"),
    (number(0.967, n=3596, style="part", approximate=True), "3,477 of 3,596*"),
    (number(1.02, 0.95, 1.1, style="ratio", significant=False), "1.02× not significant"),
    (number(2.1, style="ratio", missing=Missing.FEW_REPEATS), "2.1×ᵇ"),
    (number(math.inf, style="ratio"), "∞×"),
    (number(0.72, 0.69, 0.75, style="change"), "28 % lower [25, 31]"),
    (number(1.21, 1.15, 1.28, style="change"), "21 % higher [15, 28]"),
    (number(0.95, 0.85, 1.06, style="change"), "5.0 % lower [−15, +6.0]"),
    (number(0.95, 0.85, 1.06, style="change", significant=False), "5.0 % lower not significant"),
    (number(1.0, style="change"), "unchanged"),
    (number(math.inf, style="change"), "failed"),
    (number(0.021, 0.012, 0.03, unit="share", style="change"), "2.1 points higher [1.2, 3.0]"),
    (number(6570, style="money"), "$6,570"),
    (number(0.0842, 0.08, 0.09, style="money"), "$0.0842 [0.0800, 0.0900]"),
    (number(12, style="count"), "12"),
    (number(0.0004, style="p"), "< 0.001"),
    (number(math.inf, unit="s"), "failed"),
    (number(math.inf, unit="s", answered=1.2), "failed answered 1.20 s"),
    (number(None), "–"),
    (number(None, missing=Missing.FEW_REQUESTS), "–ᵃ"),
    (number(None, missing=Missing.CUT_OFF), "–ᶜ"),
    (number(None, missing=Missing.FAILED), "failed"),
]


@pytest.mark.parametrize(("cell", "text"), NUMBERS)
def test_numbers(cell: Number, text: str) -> None:
    assert show(cell).line == text


CELLS: list[tuple[Cell, str, Tone]] = [
    (None, "", Tone.PLAIN),
    (Missing.CYCLIC, "–ᵈ", Tone.DIM),
    (Word("vllm [fp8]"), "vllm [fp8]", Tone.PLAIN),
    (Word("a\x1b[31m\nb\u202e"), "a[31m b", Tone.PLAIN),
    (capacity({8.0: verdict(9, 9)}, 8.0, None), "≥ 8", Tone.PLAIN),
    (capacity({8.0: verdict(9, 9, confirmed=False)}, 8.0, None), "≥ 8*", Tone.PLAIN),
    (capacity({24.0: verdict(9, 9), 28.0: verdict(0, 9, False)}, 24.0, 28.0), "24 (missed at 28)", Tone.PLAIN),
    (capacity(LADDER, 8.0, 16.0), "8* (missed at 16)", Tone.PLAIN),
    (capacity({8.0: verdict(9, 9), 9.0: verdict(8, 9, False, False)}, 8.0, 9.0), "8 (missed at 9*)", Tone.PLAIN),
    (capacity({1.0: verdict(0, 9, False)}, None, 1.0), "< 1", Tone.BAD),
    (capacity({0.5: verdict(0, 9, False, confirmed=False)}, None, 0.5, unit="req/s"), "< 0.5*", Tone.BAD),
    (capacity({1.0: UNKNOWN}, None, None), "–", Tone.DIM),
    (verdict(9, 9), "met", Tone.GOOD),
    (verdict(9, 9, confirmed=False), "met*", Tone.GOOD),
    (verdict(0, 9, False), "missed", Tone.BAD),
    (UNKNOWN, "not measured", Tone.DIM),
]


@pytest.mark.parametrize(("cell", "text", "tone"), CELLS)
def test_other_cells(cell: Cell, text: str, tone: Tone) -> None:
    assert (show(cell).line, show(cell).tone) == (text, tone)


def test_signs_are_those_of_tables() -> None:
    quick, contenders = documents.quick(), documents.contenders()
    assert signs_of(filter(None, [quick.candidates, quick.figure])) == {"*"}
    assert signs_of(filter(None, [contenders.candidates, contenders.figure])) == {"*", "[ ]", "simulated"}


def test_lines_are_not_broken_within_numbers() -> None:
    shown = glued("at 8 users 2.1× [1.7, 2.4] llama, ≤ 10 %").replace("\u00a0", "_")
    assert shown == "at 8_users 2.1×_[1.7,_2.4] llama, ≤_10_%"


def test_an_interval_that_ends_at_no_change_has_one_direction() -> None:
    assert change_text(Estimate(0.9, 0.8, 1.0)) == ("10 % lower", "[0, 20]")
