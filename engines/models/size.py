"""How much memory a model takes: known before it is loaded, and of a preset before it is downloaded.

What is counted is a lower bound: the weights in the engine's number format, the keys and values that it allocates or
that one sequence fills, and the values of one step. A library and its workspace come on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.models.formats import BITS
from engines.models.presets import ONE_SEQUENCE, context_of, kept_values, number_of

GGUF = "gguf"  # the number format of an engine that loads a GGUF file as it is
STORED = "as stored"  # that of weights which were quantised before, and which no engine converts
FLOATS = ("float32", "bfloat16", "float16")
STEP_TOKENS = 512  # of prompts, that are computed together


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What an engine takes at least with a model loaded, in bytes. `cache_options` of the engine set the cache's size.

    `device` is `cpu`, `mps`, `metal`, `cuda`, `cuda:1` …; the memory of others is not known here. `gpus` share the need
    equally, and of each the engine takes at most `gpu_share`.
    """

    model: str
    dtype: str
    weights: int
    cache: int = 0
    step: int = 0
    cache_options: tuple[str, ...] = ()
    device: str = "cpu"
    gpus: int = 1
    gpu_share: float = 1.0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.step


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's numbers, before an engine chooses number formats. `config` is that of `config.json`.

    `stored` are the bytes of weights that were quantised before, `gguf` those of the GGUF file that it came from.
    """

    name: str
    parameters: int
    config: Mapping[str, Any]
    stored: int | None = None
    gguf: int | None = None

    @property
    def context_length(self) -> int:
        return context_of(self.config)

    def need(self, dtype: str, tokens: int | None = None, **known: Any) -> MemoryNeed:
        """With a cache of so many tokens (none: of one sequence); `known` are more of its fields.

        A quantised model keeps its cache in 16 bits.
        """
        floats = dtype if dtype in FLOATS else "float16"
        dtype = dtype if self.stored is None else STORED
        cached = min(ONE_SEQUENCE, self.context_length) if tokens is None else tokens
        counted = {"weights": self._weights(dtype), "cache": self._cache(cached, floats), "step": self._step(floats)}
        return MemoryNeed(self.name, dtype, **(counted | known))

    def _weights(self, dtype: str) -> int:
        whole = {STORED: self.stored, GGUF: self.gguf}.get(dtype)
        return round(self.parameters * BITS.get(dtype, 0) / 8) if whole is None else whole

    def _cache(self, tokens: int, dtype: str) -> int:
        """0 where the configuration does not tell what is kept of a token."""
        try:
            return round(kept_values(self.config, tokens) * BITS[dtype] / 8)
        except KeyError:
            return 0

    def _step(self, dtype: str) -> int:
        """A layer's input and output, both halves of its feed-forward, and one row of logits in 32 bits."""
        try:
            width = number_of(self.config, "hidden_size", "n_embd")
            inner = self.config.get("intermediate_size") or 4 * width
            logits = 4 * number_of(self.config, "vocab_size")
        except KeyError:
            return 0
        return round(STEP_TOKENS * 2 * (width + inner) * BITS[dtype] / 8) + logits
