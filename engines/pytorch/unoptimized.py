"""Networks without any optimisation: separate operations, the whole sequence at every token, a wait per layer.

For `pytorch-baseline`: the computation of a first version of an inference server, as the reference for caches, fusion
and batching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from engines.pytorch.network import WEIGHTS_SEED

if TYPE_CHECKING:
    from engines.static.weights import DecoderShape, DecoderWeights, LayerWeights

Network = Callable[[torch.Tensor], torch.Tensor]  # token ids of a sequence -> logits [vocabulary] after its last one


class UnoptimizedLlama:
    """A Llama-family decoder without key/value cache."""

    def __init__(self, shape: DecoderShape, weights: DecoderWeights) -> None:
        self._shape, self._weights = shape, weights

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        tokens = len(ids)
        cosines, sines = self._weights.cosines[:tokens, None], self._weights.sines[:tokens, None]
        mask = torch.full((tokens, tokens), -torch.inf, device=ids.device).triu(1)
        x = self._weights.embedding[ids]
        for layer in self._weights.layers:
            x = x + self._attention(self._normed(x, layer.attention_norm), layer, cosines, sines, mask)
            x = x + self._feed_forward(self._normed(x, layer.feed_forward_norm), layer)
            synchronize(ids.device)
        return self._normed(x, self._weights.norm)[-1] @ self._weights.head.T

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        squares = x * x
        mean = squares.mean(-1, keepdim=True)
        scale = torch.rsqrt(mean + self._shape.epsilon)
        return x * scale * weight

    def _attention(
        self, x: torch.Tensor, layer: LayerWeights, cosines: torch.Tensor, sines: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        shape, tokens = self._shape, len(x)
        widths = [shape.heads * shape.head_width, *[shape.key_heads * shape.head_width] * 2]
        biases = [None] * 3 if layer.qkv_bias is None else layer.qkv_bias.split_with_sizes(widths)
        q, k, v = (
            _product(x, weight, bias).view(tokens, -1, shape.head_width)
            for weight, bias in zip(layer.qkv.split_with_sizes(widths), biases, strict=True)
        )
        group = shape.heads // shape.key_heads
        q = _rotated(q, cosines, sines).transpose(0, 1)
        k = _rotated(k, cosines, sines).repeat_interleave(group, 1).transpose(0, 1)
        v = v.repeat_interleave(group, 1).transpose(0, 1)
        scores = q @ k.transpose(1, 2)
        scores = scores / shape.head_width**0.5
        scores = scores + mask
        mixed = torch.softmax(scores, -1) @ v
        return _product(mixed.transpose(0, 1).reshape(tokens, -1), layer.output, layer.output_bias)

    def _feed_forward(self, x: torch.Tensor, layer: LayerWeights) -> torch.Tensor:
        biases = [None] * 2 if layer.gate_and_up_bias is None else layer.gate_and_up_bias.chunk(2)
        gate, up = (_product(x, weight, bias) for weight, bias in zip(layer.gate_and_up.chunk(2), biases, strict=True))
        gate = gate * torch.sigmoid(gate)
        return _product(gate * up, layer.down, layer.down_bias)


class UnoptimizedStack:
    """An embedding, linear layers with ReLU, and an output layer, with random weights and without attention. The whole
    sequence is computed again for every token."""

    def __init__(self, config: dict[str, Any], device: torch.device) -> None:
        width, vocabulary = config["hidden_size"], config["vocab_size"]
        torch.manual_seed(WEIGHTS_SEED)
        with torch.device(device):
            self._embedding = torch.nn.Embedding(vocabulary, width)
            self._layers = [torch.nn.Linear(width, width) for _ in range(config["num_hidden_layers"])]
            self._head = torch.nn.Linear(width, vocabulary)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self._embedding(ids)
        for layer in self._layers:
            x = layer(x)
            x = torch.relu(x)
            synchronize(ids.device)
        logits: torch.Tensor = self._head(x)[-1]
        return logits


def passes(network: Network, ids: list[int], device: torch.device) -> Iterator[torch.Tensor]:
    """Yield logits after `ids`, which the caller extends by a token each time. Each pass reads all ids."""
    while True:
        with torch.inference_mode():  # not around the yield: this mode belongs to the thread, not to the generator
            logits = network(torch.tensor(ids, device=device))
        yield logits


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":  # NVIDIA's and AMD's GPUs, and Apple's
        torch.accelerator.synchronize(device)


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product = x @ weight.T
    return product if bias is None else product + bias


def _rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-right, left), dim=-1) * sines
