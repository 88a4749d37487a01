"""The arithmetic of the engines' comparison, on made-up turns."""

from benchmarks.engines.engines_side_by_side import Row, Turn, ratios, table


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
