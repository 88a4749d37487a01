"""What one step of a model must read and multiply, in any engine: from its weights' shapes or its preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from engines.contract.base import Model
from engines.models.formats import BITS
from engines.models.presets import PRESETS, RANDOM
from engines.models.stored import config_of, tensors_of

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Numbers of weights: `matrices` that a decoded token multiplies, with the output head, `head` of them the head's;
    `vectors` are norms and biases. `attention`: layers × width of the queries."""

    matrices: int
    head: int
    vectors: int
    attention: int

    def bytes_per_step(self, dtype: str) -> float | None:
        """Of weights that one step reads, once for the whole batch. `None` for a format that is not known here."""
        bits = BITS.get(dtype)
        return None if bits is None else self.matrices * bits / 8 + self.vectors * 4

    @property
    def decode_flops(self) -> float:
        """Per token: a multiplication and an addition for each weight (Kaplan et al. 2020)."""
        return 2.0 * self.matrices

    def prefill_flops(self, tokens: int) -> float:
        """Of one prompt. The head is needed for the last token alone; causal attention multiplies half a square for
        the scores and half for the values."""
        return 2.0 * tokens * (self.matrices - self.head) + 2.0 * self.head + 2.0 * self.attention * tokens**2


def cost_of(model: Model) -> ModelCost | None:
    """`None` where neither the weights nor a preset say."""
    config = config_of(model.folder)
    head = int(config.get("vocab_size", 0)) * int(config.get("hidden_size") or config.get("n_embd") or 0)
    tied = bool(config.get("tie_word_embeddings", True))
    shapes = {name: tensor.shape for name, tensor in tensors_of(model.folder).items()}
    if shapes:
        if HEAD in shapes and not tied:
            shapes.pop(EMBEDDING, None)  # a token reads one row of it
        elif EMBEDDING in shapes:
            shapes.pop(HEAD, None)  # the same weights again
        matrices = sum(prod(shape) for shape in shapes.values() if len(shape) > 1)
        vectors = sum(prod(shape) for shape in shapes.values() if len(shape) < 2)
        return ModelCost(matrices, head, vectors, _attention(config))
    preset = PRESETS.get(model.name.removeprefix(RANDOM))
    if preset is None:
        return None
    return ModelCost(preset.parameters - (0 if tied else head), head, 0, _attention(config))


def _attention(config: Mapping[str, Any]) -> int:
    heads = int(config.get("num_attention_heads") or config.get("n_head") or 0)
    if not heads:  # a state-space model has none
        return 0
    width = int(config.get("hidden_size") or config.get("n_embd") or 0)
    layers = int(config.get("num_hidden_layers") or config.get("n_layer") or 0)
    return layers * heads * int(config.get("head_dim") or width // heads)
