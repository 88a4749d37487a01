"""Bytes and operations of a model's steps, on the shapes of the default model and of presets."""

import pytest

from bench.roofline.model_cost import cost_of
from engines.models.fetch import fetch_model

PARAMETERS = 134_515_008  # SmolLM2-135M, whose embedding is also its head
HEAD = 49_152 * 576
NORMS = 61 * 576  # of them, two per layer and one at the end


@pytest.mark.parametrize(
    ("weights", "bits"), [("float32", 32), ("q8_0", 8 + 16 / 32), ("q4_0", 4 + 16 / 32)], ids=lambda value: str(value)
)
def test_a_token_reads_every_matrix_once(weights: str, bits: float) -> None:
    cost = cost_of(fetch_model())
    assert cost is not None
    assert cost.bytes_per_step(weights) == (PARAMETERS - NORMS) * bits / 8 + NORMS * 4


def test_multiplications_of_a_prompt() -> None:
    """Two for each weight and token, the head once; attention of 30 layers, 576 wide, over half of 100 × 100."""
    cost = cost_of(fetch_model())
    assert cost is not None
    assert cost.decode_flops == 2 * (PARAMETERS - NORMS)
    attention = 2 * 2 * 30 * 576 * 100 * 100 / 2
    assert cost.prefill_flops(100) == 2 * 100 * (PARAMETERS - NORMS - HEAD) + 2 * HEAD + attention


def test_random_weights_cost_what_the_preset_says() -> None:
    cost = cost_of(fetch_model("random:llama-3.2-tiny"))
    assert cost is not None
    assert cost.matrices == 33_948_928, "its embedding is its head"
    assert cost.bytes_per_step("bfloat16") == 2 * 33_948_928
    assert cost.bytes_per_step("wibble") is None
