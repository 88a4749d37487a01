"""Estimate the memory of a model before it is loaded, and of a preset before it is downloaded.

The estimate is a lower bound: the weights in the engine's number format, the keys and values that it allocates or that
one sequence fills, and the values of one step. It excludes the library and its workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BITS: dict[str, float] = {
    "float32": 32.0,
    **dict.fromkeys(("bfloat16", "float16"), 16.0),
    **dict.fromkeys(("int8", "float8", "fp8"), 8.0),
    "q8_0": 8.5,  # a block of 32 has a 16-bit scale
    "q4_0": 4.5,
    "int4": 4.5,
    # Only in GGUF files that an engine loads as they are.
    "q4_1": 5.0,  # a block has an offset of 16 bits too
    "q4_k": 4.5,
}

GGUF = "gguf"  # the number format of an engine that loads a GGUF file as it is
STORED = "as stored"  # the format of weights that are already quantised and that no engine converts
FLOATS = ("float32", "bfloat16", "float16")
STEP_TOKENS = 512  # tokens of prompts that are computed together
ONE_SEQUENCE = 4096  # tokens of the cache that a model's memory includes, unless an engine allocates another
KEYS_AND_VALUES, STATE = "keys and values", "its state"  # the data that a model keeps of earlier tokens
UNSAID = {"gemma3_text": 131_072}  # Transformers' default context, which published files leave out
WINDOWED = {"mistral", "phi3"}  # families whose layers all have the window
OPTIONAL_WINDOW = {"qwen2", "qwen3"}  # families without a window unless `use_sliding_window` is true
NO_LIMIT = 131_072  # tokens of context: a state-space model's state has one size for any number
STACK = "unoptimized-stack"  # the model type of `unoptimized-512`: only the engine pytorch-baseline knows it


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The minimum memory of an engine with its model, in bytes. `cache_options` of the engine set the cache's size.

    `device` is `cpu`, `mps`, `metal`, `cuda`, `cuda:1` …; the memory of other devices is unknown. `gpus` share the need
    equally, and the engine takes at most `gpu_share` of each.
    """

    model: str
    dtype: str
    weights: int
    cache: int = 0
    step: int = 0
    kept: str = KEYS_AND_VALUES  # the contents of the cache
    cache_options: tuple[str, ...] = ()
    device: str = "cpu"
    gpus: int = 1
    gpu_share: float = 1.0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.step


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's numbers, before an engine chooses number formats. `config` is the content of `config.json`.

    `stored` is the size of already quantised weights in bytes, `gguf` the size of the GGUF file that they came from.
    """

    name: str
    parameters: int
    config: Mapping[str, Any]
    stored: int | None = None
    gguf: int | None = None

    @property
    def context_length(self) -> int:
        return context_of(self.config)

    def need(self, dtype: str, tokens: int | None = None, **fields: Any) -> MemoryNeed:
        """Return the need with a cache of `tokens` (none: of one sequence); `fields` are other fields of the need.

        A quantised model keeps its cache in 16 bits.
        """
        floats = dtype if dtype in FLOATS else "float16"
        dtype = dtype if self.stored is None else STORED
        cached = min(ONE_SEQUENCE, self.context_length) if tokens is None else tokens
        counted = {"weights": self._weights(dtype), "cache": self._cache(cached, floats), "step": self._step(floats)}
        kept = STATE if is_state_space(self.config) else KEYS_AND_VALUES
        return MemoryNeed(self.name, dtype, kept=kept, **(counted | fields))

    def _weights(self, dtype: str) -> int:
        whole = {STORED: self.stored, GGUF: self.gguf}.get(dtype)
        return round(self.parameters * BITS.get(dtype, 0) / 8) if whole is None else whole

    def _cache(self, tokens: int, dtype: str) -> int:
        """Return 0 if the configuration does not tell the size of a token's state."""
        try:
            return round(kept_values(self.config, tokens) * BITS[dtype] / 8)
        except KeyError:
            return 0

    def _step(self, dtype: str) -> int:
        """Return a layer's input and output, both halves of its feed-forward, and one row of logits in 32 bits."""
        try:
            width = number_of(self.config, "hidden_size", "n_embd")
            inner = self.config.get("intermediate_size") or 4 * width
            logits = 4 * number_of(self.config, "vocab_size")
        except KeyError:
            return 0
        return round(STEP_TOKENS * 2 * (width + inner) * BITS[dtype] / 8) + logits


def quantised_before(config: Mapping[str, Any]) -> str | None:
    """Read the format of a model's files, such as "gptq-int4"; `None` if it is floating-point."""
    quantisation = config.get("quantization_config")
    if not quantisation:
        return None
    bits = quantisation.get("bits") or {"load_in_8bit": 8, "load_in_4bit": 4}.get(
        next((name for name in ("load_in_8bit", "load_in_4bit") if quantisation.get(name)), "")
    )
    return "-".join([str(quantisation.get("quant_method", "quantised")), *([f"int{bits}"] if bits else [])])


def quantised_format(quantization: str | None, otherwise: str) -> str:
    """Return the format of weights that vLLM or SGLang quantise while loading; `quantization` is their name for it."""
    if quantization == "bitsandbytes":
        return "int4"
    return quantization if quantization in BITS else otherwise


def kept_values(config: Mapping[str, Any], tokens: int) -> int:
    """Count keys and values of all layers for `tokens`, or a state-space model's state, whose size is constant.

    Raises `KeyError` if the configuration, as in `config.json`, does not say.
    """
    layers = number_of(config, "num_hidden_layers", "n_layer")
    if config["model_type"] == STACK:
        return 0
    if is_state_space(config):
        return layers * int(config["intermediate_size"] * (config["state_size"] + config["conv_kernel"]))
    if "kv_lora_rank" in config:  # DeepSeek's latent attention keeps one vector for all heads
        return layers * int(config["kv_lora_rank"] + config["qk_rope_head_dim"]) * tokens
    if config["model_type"] in WINDOWED and (window := window_of(config)):
        tokens = min(tokens, window)
    width, heads = number_of(config, "hidden_size", "n_embd"), number_of(config, "num_attention_heads", "n_head")
    key_heads = int(config.get("num_key_value_heads") or heads)
    return 2 * layers * key_heads * int(config.get("head_dim") or width // heads) * tokens


def is_state_space(config: Mapping[str, Any]) -> bool:
    """Return whether a state of one size takes the place of keys and values, as in Mamba (Gu and Dao 2023)."""
    return "state_size" in config


def number_of(config: Mapping[str, Any], *names: str) -> int:
    """Return the number under the first of these names that the configuration has. Raises `KeyError` if it has none."""
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    raise KeyError(names[0])


def window_of(config: Mapping[str, Any]) -> int | None:
    """Return the sliding window of attention in tokens, if the model uses one."""
    used = config.get("use_sliding_window", config.get("model_type") not in OPTIONAL_WINDOW)
    return config.get("sliding_window") if used else None


def context_of(config: Mapping[str, Any]) -> int:
    """Return the limit of prompt plus answer. State-space models have none; most are trained on 2048."""
    if is_state_space(config):
        return NO_LIMIT
    try:
        return number_of(config, "max_position_embeddings", "n_positions", "n_ctx", "seq_length")
    except KeyError:
        return UNSAID.get(str(config.get("model_type")), 2048)
