"""Quantised weights by the libraries themselves, where they are installed: close to floats, and smaller."""

from typing import Any

import pytest

from engines.pytorch.network import loading_settings, quantised_after, read_network
from tests.support.engines.tiny_models import write_tiny
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")


@pytest.mark.parametrize(
    ("library", "quantised", "error"),
    [
        ("torchao", "torchao-int8", 0.06),
        ("neural_compressor", "inc-int8", 0.06),
        ("neural_compressor", "inc-int4", 0.8),  # of a tenth in each of the random weights
    ],
)
def test_quantised_weights_answer_nearly_as_floats(library: str, quantised: Any, error: float, tmp_path: Any) -> None:
    pytest.importorskip(library)
    model, _ = write_tiny(tmp_path, "llama")
    cpu, ids = torch.device("cpu"), torch.arange(3, 40)[None]
    settings = loading_settings(quantised, model, cpu, torch.float32)
    with torch.inference_mode():
        floats = read_network(model, cpu, torch.float32)
        expected = floats(ids).logits
        net = quantised_after(read_network(model, cpu, torch.float32, **settings), quantised)
        found = net(ids).logits
    assert float((found - expected).norm() / expected.norm()) < error
