"""One step of a Llama-family decoder with fixed shapes: token ids in, logits out, keys and values written in place.

The cache is not part of the module. Keys and values are inputs, one tensor per layer. In a module they would become
constants of the compiled or traced step, and the second request would read the first one's cache. One large
tensor for all layers would be copied by the compiler at each layer. Weights are inputs of a layer too, so that one
compiled layer serves all layers.

Nothing here allocates a constant or asks for a number on the host, so that it can be captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

if TYPE_CHECKING:
    from engines.static.weights import DecoderShape, DecoderWeights, LayerWeights


class Place(NamedTuple):
    """The places of the step's tokens, which are the same for all layers."""

    rows: torch.Tensor  # [batch, 1]: of the cache
    positions: torch.Tensor  # [batch, tokens]: in their sequences
    cosines: torch.Tensor  # [batch, tokens, 1, head width]
    sines: torch.Tensor
    mask: torch.Tensor  # [batch, 1, group × tokens, length]: added to the scores of attention


RunLayer = Callable[[torch.Tensor, Place, torch.Tensor, torch.Tensor, "LayerWeights"], torch.Tensor]
RunHead = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply like `linear`.

    A single row on a CPU is multiplied as a vector, for which Inductor generates a loop that reads the weights as fast
    as the memory allows; the libraries' matrix product takes up to twice as long.
    """
    if x.device.type != "cpu" or x.shape[:-1].numel() > 1:
        return linear(x, weight, bias)
    y = torch.mv(weight, x.flatten())
    return (y if bias is None else y + bias).view(*x.shape[:-1], -1)


class Layer(torch.nn.Module):
    """Attention and feed-forward of one layer, on `x` `[batch, tokens, width]`, with its weights as an input."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.heads, self.key_heads, self.width = shape.heads, shape.key_heads, shape.head_width
        self.epsilon = shape.epsilon

    def forward(
        self, x: torch.Tensor, place: Place, keys: torch.Tensor, values: torch.Tensor, weights: LayerWeights
    ) -> torch.Tensor:
        """`keys` and `values` are `[batch, length, key heads, head width]`; the new ones are written into them."""
        normed = rms_norm(x, x.shape[-1:], weights.attention_norm, self.epsilon)
        mixed = self._attention(product(normed, weights.qkv, weights.qkv_bias), place, keys, values)
        x = x + product(mixed, weights.output, weights.output_bias)
        normed = rms_norm(x, x.shape[-1:], weights.feed_forward_norm, self.epsilon)
        gate, up = product(normed, weights.gate_and_up, weights.gate_and_up_bias).chunk(2, dim=-1)
        return x + product(silu(gate) * up, weights.down, weights.down_bias)

    def _attention(self, qkv: torch.Tensor, place: Place, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        heads, key_heads, width = self.heads, self.key_heads, self.width
        batch, tokens = qkv.shape[0], qkv.shape[1]
        q, k, v = qkv.split_with_sizes([heads * width, key_heads * width, key_heads * width], dim=-1)
        at = place.rows, place.positions
        q = _rotated(q.view(batch, tokens, heads, width), place)
        keys.index_put_(at, _rotated(k.view(batch, tokens, key_heads, width), place))
        values.index_put_(at, v.view(batch, tokens, key_heads, width))
        # The heads that share a key head become its rows, so that keys and values are read once and never copied.
        group = heads // key_heads
        q = q.view(batch, tokens, key_heads, group, width).permute(0, 2, 3, 1, 4)
        q = q.reshape(batch, key_heads, group * tokens, width)
        mixed = scaled_dot_product_attention(q, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=place.mask)
        mixed = mixed.view(batch, key_heads, group, tokens, width).permute(0, 3, 1, 2, 4)
        return mixed.reshape(batch, tokens, heads * width)


class Head(torch.nn.Module):
    """Return the logits `[batch, vocabulary]` of `x` `[batch, width]`, the output of the last layer."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.epsilon = shape.epsilon

    def forward(self, x: torch.Tensor, norm: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return product(rms_norm(x, x.shape[-1:], norm, self.epsilon), weight)


class Step(torch.nn.Module):
    """All layers and the head. The shapes of its inputs are fixed when it is traced, compiled or captured."""

    def __init__(
        self,
        shape: DecoderShape,
        weights: DecoderWeights,
        run_layer: RunLayer | None = None,
        run_head: RunHead | None = None,
    ) -> None:
        """`run_layer` and `run_head` are compiled; without them `Layer` and `Head` run as they are."""
        super().__init__()
        self.shape, self.weights = shape, weights
        self.run_layer = Layer(shape) if run_layer is None else run_layer
        self.run_head = Head(shape) if run_head is None else run_head
        device, dtype = weights.norm.device, weights.norm.dtype
        self.counted = torch.arange(len(weights.cosines), device=device)
        self.hidden = torch.full((), -torch.inf, dtype=dtype, device=device)
        self.visible = torch.zeros((), dtype=dtype, device=device)

    def forward(
        self, ids: torch.Tensor, starts: torch.Tensor, last: torch.Tensor, *cache: torch.Tensor
    ) -> torch.Tensor:
        """Return logits `[batch, vocabulary]` after token `last` of each row.

        `ids` is `[batch, tokens]`; row b continues a sequence of `starts[b]` tokens, whose keys and values are in the
        cache: for each layer a tensor of keys and one of values, `[batch, length, key heads, head width]`.
        """
        place = self._place(ids, starts, cache[0].shape[1])
        x = embedding(ids, self.weights.embedding)
        for index, weights in enumerate(self.weights.layers):
            x = self.run_layer(x, place, cache[2 * index], cache[2 * index + 1], weights)
        return self.run_head(x[place.rows[:, 0], last], self.weights.norm, self.weights.head)

    def _place(self, ids: torch.Tensor, starts: torch.Tensor, length: int) -> Place:
        """Locate these tokens for attention over `length` of the cache."""
        batch, tokens = ids.shape
        at = starts[:, None] + self.counted[:tokens]
        seen = self.counted[:length] <= at[:, :, None]
        group = self.shape.heads // self.shape.key_heads
        mask = torch.where(seen, self.visible, self.hidden).repeat(1, group, 1)[:, None]
        cosines, sines = self.weights.cosines[at][:, :, None], self.weights.sines[at][:, :, None]
        return Place(self.counted[:batch, None], at, cosines, sines, mask)


def _rotated(x: torch.Tensor, place: Place) -> torch.Tensor:
    """Apply the rotary embedding (Su et al. 2021), halves against each other."""
    left, right = x.chunk(2, dim=-1)
    return x * place.cosines + torch.cat((-right, left), dim=-1) * place.sines
