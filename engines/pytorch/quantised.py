"""Weights quantised while Transformers loads them, by the libraries that it supports.

A model that is quantised already (GPTQ, AWQ, …) says so in its configuration, and needs no setting, only its library.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

from engines.contract.base import EngineUnavailable

Quantised = Literal["none", "bnb-int8", "bnb-int4", "torchao-int8", "torchao-int4"]
LIBRARIES = {"bnb": "bitsandbytes", "torchao": "torchao"}


def bits_of(quantised: Quantised) -> str:
    """The number format: `int8` or `int4`."""
    return quantised.rpartition("-")[2]


def loading_settings(quantised: Quantised, device: Any) -> dict[str, Any]:
    """Settings of `from_pretrained`. Raises `EngineUnavailable` where the library is not installed."""
    if quantised == "none":
        return {}
    library = LIBRARIES[quantised.partition("-")[0]]
    if find_spec(library) is None:
        raise EngineUnavailable(f"quantise={quantised} needs {library}; install with: pip install {library}")
    return {"quantization_config": _configuration(quantised), "device_map": {"": device}}


def _configuration(quantised: Quantised) -> Any:
    from transformers import BitsAndBytesConfig, TorchAoConfig

    if quantised == "bnb-int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    if quantised == "bnb-int4":
        return BitsAndBytesConfig(load_in_4bit=True)
    from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig

    return TorchAoConfig(Int8WeightOnlyConfig() if quantised == "torchao-int8" else Int4WeightOnlyConfig())
