"""Read the configuration and the safetensors of a model's folder.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod, tau
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a safetensors file, at `offset` bytes. `dtype` is the format's name, such as `BF16`."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def floats(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Read values from `start` to `stop` as 32-bit floats; `dtype` must be one of `FLOAT_BYTES`.

        Use NumPy alone, because some engines' environments have no torch. NumPy has no bfloat16.
        """
        import numpy as np

        stored = np.memmap(self.file, f"<u{FLOAT_BYTES[self.dtype]}", "r", self.offset, (prod(self.shape),))[start:stop]
        if self.dtype == "BF16":  # the upper half of a 32-bit float
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.view("<f4" if self.dtype == "F32" else "<f2").astype(np.float32)


def config_of(folder: Path) -> Mapping[str, Any]:
    """Read `config.json`; if it describes several models, the text model's settings take precedence."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config | (config.get("text_config") or {})


def end_ids(folder: Path) -> frozenset[int]:
    """Return the ids of the tokens that end an answer; a model may have one, several or none. Ids without a row in the
    output matrix are left out: they are never generated."""
    generation = folder / "generation_config.json"
    configs = [json.loads(generation.read_text())] if generation.is_file() else []
    own = config_of(folder)
    ids = next((ids for config in (*configs, own) if (ids := config.get("eos_token_id")) is not None), ())
    size = own.get("vocab_size") or math.inf
    return frozenset(id for id in ([ids] if isinstance(ids, int) else ids) if 0 <= id < size)


def head_size(config: Mapping[str, Any]) -> int:
    """Return the width of an attention head."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def key_heads(config: Mapping[str, Any]) -> int:
    """Return the number of key/value heads, which configurations older than grouped-query attention lack."""
    return int(config.get("num_key_value_heads") or config["num_attention_heads"])


def rotary_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return base and scaling of the rotary embeddings; older configurations have `rope_theta` and `rope_scaling`."""
    base = {"rope_theta": config.get("rope_theta") or 10_000.0}
    return base | (config.get("rope_scaling") or {}) | (config.get("rope_parameters") or {})


def llama_3_factors(scaling: dict[str, Any], base: float, width: int) -> Sequence[float]:
    """Return the divisor of each rotary frequency of a head of this `width` (Llama 3.1's reference implementation)."""
    factors = []
    for pair in range(width // 2):
        periods = scaling["original_max_position_embeddings"] * base ** (-2 * pair / width) / tau
        share = (periods - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
        share = min(1.0, max(0.0, share))
        factors.append(1 / (share + (1 - share) / scaling["factor"]))
    return factors


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def tensors_of(folder: Path) -> dict[str, StoredTensor]:
    """Read the headers of the folder's safetensors, and return the tensors by name."""
    tensors = {}
    for file in weight_files(folder):
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            entries = json.loads(opened.read(length))
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            offset = 8 + length + entry["data_offsets"][0]
            tensors[name] = StoredTensor(file, entry["dtype"], tuple(entry["shape"]), offset)
    return tensors
