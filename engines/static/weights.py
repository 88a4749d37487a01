"""The weights of a Llama-family network as the static step takes them, with two fused products per layer.

They are read by Transformers, so that every format it reads, and every random model, has the same numbers here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from engines.contract.errors import EngineUnavailable

if TYPE_CHECKING:
    import torch


FAMILIES = ("llama", "mistral", "qwen2", "phi3")
NAMES = "Llama, Mistral, Qwen2 and Phi-3"
ENCODERS = ("bert", "roberta", "distilbert", "deberta", "electra", "albert")


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes that a step needs with its weights. `context_length` in tokens, prompt and answer together."""

    layers: int
    heads: int
    key_heads: int
    head_width: int
    epsilon: float  # of the norms
    context_length: int

    @property
    def cached_values(self) -> int:
        """Count the values that one token has in all layers."""
        return 2 * self.layers * self.key_heads * self.head_width

    @classmethod
    def from_config(cls, config: Any, engine: str) -> DecoderShape:
        """Read a configuration of Transformers. Raises `EngineUnavailable` for operations that the step lacks."""
        kind = config.model_type
        if kind in ENCODERS:
            raise EngineUnavailable(f"{kind} is an encoder and generates no tokens, so there is nothing to stream.")
        if kind not in FAMILIES:
            raise EngineUnavailable(f"{engine} runs {NAMES}, not {kind}; the engine transformers runs every family.")
        if config.hidden_act != "silu":
            raise EngineUnavailable(f"{engine} computes the activation silu, not {config.hidden_act}.")
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise EngineUnavailable(f"{engine} rotates whole heads; this model rotates a part of each.")
        if rope.get("rope_type") in {"dynamic", "longrope"}:
            raise EngineUnavailable(f"{engine} has no rotary scaling that depends on the length, as this model has.")
        context_length = config.max_position_embeddings
        if getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None):
            context_length = min(context_length, config.sliding_window)  # the step has no window: the context ends
        return cls(
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            key_heads=config.num_key_value_heads,
            head_width=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            epsilon=config.rms_norm_eps,
            context_length=context_length,
        )


class LayerWeights(NamedTuple):
    """Queries, keys and values are one product, gate and up another."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    feed_forward_norm: torch.Tensor
    gate_and_up: torch.Tensor
    gate_and_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`cosines` and `sines` have one row per position."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor
    cosines: torch.Tensor
    sines: torch.Tensor


def weights_of(net: Any, positions: int) -> DecoderWeights:
    """Take the weights out of a network of one of `FAMILIES`, whose layers are freed one by one."""
    import torch

    embedding, head = net.model.embed_tokens.weight.data, net.lm_head.weight.data
    with torch.no_grad():
        at = torch.arange(positions, device=embedding.device)[None]
        cosines, sines = net.model.rotary_emb(embedding[:1, None], at)
    layers = []
    for index in range(len(net.model.layers)):
        layers.append(_layer(dict(net.model.layers[index].named_parameters())))
        net.model.layers[index] = torch.nn.Identity()
    return DecoderWeights(embedding, tuple(layers), net.model.norm.weight.data, head, cosines[0], sines[0])


def _layer(named: Mapping[str, torch.Tensor]) -> LayerWeights:
    return LayerWeights(
        named["input_layernorm.weight"].data,
        *_fused(named, "self_attn", "qkv_proj", ("q_proj", "k_proj", "v_proj")),
        *_fused(named, "self_attn", "o_proj"),
        named["post_attention_layernorm.weight"].data,
        *_fused(named, "mlp", "gate_up_proj", ("gate_proj", "up_proj")),
        *_fused(named, "mlp", "down_proj"),
    )


def _fused(
    named: Mapping[str, torch.Tensor], block: str, fused: str, parts: tuple[str, ...] = ()
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return weight and bias of one product. Phi-3 has them fused already, in the same order."""
    import torch

    if f"{block}.{fused}.weight" in named:
        parts = (fused,)
    weights = [named[f"{block}.{part}.weight"].data for part in parts]
    biases = [named[f"{block}.{part}.bias"].data for part in parts if f"{block}.{part}.bias" in named]
    if len(parts) == 1:
        return weights[0], biases[0] if biases else None
    return torch.cat(weights), torch.cat(biases) if biases else None
