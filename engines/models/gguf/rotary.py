"""The rotary scaling of a GGUF file as `config.json` expresses it.

Llama 3's scaling is a tensor of factors in GGUF, `rope_freqs.weight`, and four parameters in `config.json`. The reader
of Transformers ignores it, and other scalings too: the model would give other answers without a warning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines.contract.base import EngineUnavailable

# As in every Llama from 3.1 to 3.3; only the factor differs, and it is the largest in the tensor.
LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
TOLERANCE = 1e-4  # of a factor, which the tensor has in 32 bits
INSTEAD = "name the model's original folder of safetensors instead"


def rotary_scaling(gguf: Path) -> dict[str, Any] | None:
    """What `rope_parameters` must have besides the base; `None` without scaling.

    Raises `EngineUnavailable` for a scaling that this cannot express.
    """
    from gguf import GGUFReader

    reader = GGUFReader(gguf)

    def value(key: str, default: Any) -> Any:
        field = reader.get_field(key)
        return default if field is None else field.contents()

    family = value("general.architecture", "llama")
    kind = value(f"{family}.rope.scaling.type", "none")
    if kind == "linear":
        return {"rope_type": "linear", "factor": float(value(f"{family}.rope.scaling.factor", 1.0))}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if kind != "none" or any(name.startswith("rope_factors") for name in tensors):
        name = "longrope" if kind == "none" else kind
        raise EngineUnavailable(f"its rotary scaling is {name}, which is not converted; {INSTEAD}.")
    if "rope_freqs.weight" not in tensors:
        return None
    factors = [float(one) for one in tensors["rope_freqs.weight"].data]
    scaling = {"rope_type": "llama3", "factor": max(factors), **LLAMA_3}
    wanted = llama_3_factors(scaling, float(value(f"{family}.rope.freq_base", 10_000.0)), 2 * len(factors))
    if any(abs(one - other) > TOLERANCE * other for one, other in zip(factors, wanted, strict=True)):
        raise EngineUnavailable(f"its rotary factors are not those of Llama 3; {INSTEAD}.")
    return None if max(factors) == 1 else scaling


def llama_3_factors(scaling: dict[str, Any], base: float, width: int) -> Sequence[float]:
    """By what each rotary frequency of a head of that `width` is divided (Llama 3.1's reference implementation)."""
    factors = []
    for pair in range(width // 2):
        periods = scaling["original_max_position_embeddings"] * base ** (-2 * pair / width) / math.tau
        kept = (periods - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
        kept = min(1.0, max(0.0, kept))
        factors.append(1 / (kept + (1 - kept) / scaling["factor"]))
    return factors
