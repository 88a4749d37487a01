"""The arithmetic of the engines' comparison, on made-up answers and on the shapes of the default model."""

import pytest

from benchmarks.engines.engines_side_by_side import Row, Turn, decode_rate, ratios, table
from benchmarks.engines.memory_bandwidth import bytes_per_token
from engines.models.fetch import fetch_model

PARAMETERS = 134_515_008  # SmolLM2-135M, whose embedding is also its head
NORMS = 61 * 576  # of them, two per layer and one at the end


@pytest.mark.parametrize(
    ("arrivals", "rate"),
    [
        pytest.param([[(1.0, 1), (1.5, 1), (2.0, 1)]], 2.0, id="the first token is not decoded"),
        pytest.param([[(1.0, 1), (3.0, 4)]], 2.0, id="a chunk counts its tokens"),
        pytest.param(
            [[(1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1)], [(2.0, 1), (3.0, 1), (4.0, 1), (5.0, 1)]],
            2.0,
            id="only while all are being answered",
        ),
        pytest.param([[(1.0, 1), (2.0, 1)], [(3.0, 1), (4.0, 1)]], None, id="never while all are being answered"),
    ],
)
def test_decode_counts_what_comes_while_all_are_answered(
    arrivals: list[list[tuple[float, int]]], rate: float | None
) -> None:
    assert decode_rate(arrivals) == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(
    ("weights", "bits"), [("float32", 32), ("q8_0", 8 + 16 / 32), ("q4_0", 4 + 16 / 32)], ids=lambda value: str(value)
)
def test_a_token_reads_every_matrix_once(weights: str, bits: float) -> None:
    expected = (PARAMETERS - NORMS) * bits / 8 + NORMS * 4
    assert bytes_per_token(fetch_model().folder, weights) == expected


def row(entrant: str, users: int, *decodes: float | None) -> Row:
    turns = [Turn(decode, (decode or 0) / 2, 0.25, 1.5, 0.0, bandwidth=50e9) for decode in decodes]
    return Row(entrant, users, bytes_per_token=0.5e9, turns=turns)


def test_ratios_are_taken_round_by_round() -> None:
    slow, fast = row("transformers", 1, 20.0, 40.0), row("burn", 1, 40.0, 60.0)
    assert ratios(fast, slow) == [2.0, 1.5]
    assert ratios(slow, slow) == ratios(slow, None) == []
    assert fast.of_limit() == [0.4, 0.6], "50 GB/s are 100 tokens/s of half a gigabyte each"


def test_a_row_without_a_common_decode_has_no_ratio() -> None:
    alone, many = row("burn", 1, 40.0, 60.0), row("burn", 32, 900.0, None)
    assert many.decodes() == many.of_limit() == ratios(many, alone) == []


def test_the_table_has_units_and_spreads() -> None:
    rows = {
        ("transformers", 1, False): row("transformers", 1, 20.0, 25.0, 30.0),
        ("burn", 1, False): row("burn", 1, 40.0, 50.0, 60.0),
        ("burn", 8, False): row("burn", 8, 160.0, 150.0, 240.0),
    }
    head, base, alone, eight = (" ".join(line.split()) for line in table(rows))
    assert head == "engine users tokens/s with prompts TTFT ms × transformers × limit × its 1 user"
    assert base == "transformers 1 25.0 [20.0, 30.0] 12.5 250 0.25 [0.20, 0.30]"
    assert alone == "burn 1 50.0 [40.0, 60.0] 25.0 250 2.00 [2.00, 2.00] 0.50 [0.40, 0.60]"
    assert eight == "burn 8 160.0 [150.0, 240.0] 80.0 250 8.00 [6.00, 8.00] 4.00 [3.00, 4.00]"
