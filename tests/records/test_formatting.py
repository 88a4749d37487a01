"""Numbers as people read them."""

import pytest

from enginebench.records.formatting import (
    format_bytes,
    format_money,
    format_ratio,
    format_seconds,
    format_share,
    significant,
    time_unit,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(0.0123, "12.3 ms", id="a hundredth of a second is milliseconds"),
        pytest.param(1.0, "1.00 s", id="a second is seconds"),
        pytest.param(0.9996, "1.00 s", id="what rounds up to a second is seconds"),
        pytest.param(0.000045, "45.0 µs", id="microseconds below a millisecond"),
        pytest.param(75.0, "75.0 s", id="more than a minute is still seconds"),
        pytest.param(720.0, "12.0 min", id="ten minutes and more are minutes"),
        pytest.param(198_000.0, "55.0 h", id="ten hours and more are hours"),
        pytest.param(-0.0123, "-12.3 ms", id="a negative delivery keeps its sign"),
        pytest.param(0.0, "0 s", id="zero is zero"),
        pytest.param(None, "–", id="what was not observed is a dash, not 0"),
    ],
)
def test_format_seconds(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(0.04821, "0.0482", id="small"),
        pytest.param(9.996, "10.0", id="rounding up does not add a digit"),
        pytest.param(1234.5, "1,234", id="whole digits are never dropped"),
        pytest.param(0.0, "0", id="zero"),
    ],
)
def test_significant(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        pytest.param(3.14, 2.92, 3.28, "3.1× [2.9, 3.3]", id="two digits are enough when the engines are far apart"),
        pytest.param(1.021, 0.97, 1.08, "1.02× [0.970, 1.08]", id="three when they are close"),
        pytest.param(3.14, 3.132, 3.148, "3.14× [3.13, 3.15]", id="and more where the interval is narrower than that"),
        pytest.param(3.14, None, None, "3.1×", id="no interval, no brackets"),
        pytest.param(1.28, 1.02, 1.62, "1.28× [1.02, 1.62]", id="an end above 1 is not printed as 1.0"),
        pytest.param(1.1, 1.0004, 1.21, "1.1000× [1.0004, 1.2100]", id="however close to 1 it is"),
        pytest.param(0.5, 0.2, 0.996, "0.500× [0.200, 0.996]", id="and likewise an end below 1"),
        pytest.param(1.28, 1.0, 1.62, "1.3× [1.0, 1.6]", id="an end of exactly 1 is"),
        pytest.param(3.0, 3.0, 3.0, "3.0×", id="an interval without width is none"),
    ],
)
def test_format_ratio(value: float, low: float | None, high: float | None, text: str) -> None:
    assert format_ratio(value, low, high) == text


def test_shares_do_not_round_to_none_or_all() -> None:
    shares = [format_share(share) for share in (0.0, 0.0001, 0.1234, 0.9995, 0.99999, 1.0, None)]
    assert shares == ["0 %", "< 0.1 %", "12.3 %", "> 99.9 %", "> 99.9 %", "100 %", "–"]


def test_bytes_have_binary_prefixes() -> None:
    assert [format_bytes(size) for size in (512, 1023.7 * 2**20, 1536 * 2**20, None)] == [
        *("512 B", "1.00 GiB", "1.50 GiB", "–")
    ]


def test_a_column_of_durations_is_in_seconds_if_the_largest_would_be_a_thousand_milliseconds() -> None:
    assert [time_unit([value]).name for value in (0.9994, 0.9996, 0.0009994, 0.0009996)] == ["ms", "s", "µs", "ms"]


def test_money_has_its_sign_and_three_digits_or_the_decimals_asked_for() -> None:
    assert [format_money(6570), format_money(0.0842), format_money(2.5, 2)] == ["$6,570", "$0.0842", "$2.50"]
