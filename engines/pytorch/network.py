"""A model as Transformers reads it: its network, quantised where that is asked for, and the tokens that end an answer.

A model that is quantised already (GPTQ, AWQ, …) says so in its configuration, and needs no setting, only its library.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable, first_line

if TYPE_CHECKING:
    import torch

Quantised = Literal["none", "bnb-int8", "bnb-int4", "torchao-int8", "torchao-int4"]
QUANTISERS = {"bnb": "bitsandbytes", "torchao": "torchao"}
WEIGHTS_SEED = 0  # of models with random weights: the same ones in every run


def read_network(model: Model, device: torch.device, dtype: torch.dtype, **settings: Any) -> Any:
    """The network on `device`, ready to generate. `settings` are those of `from_pretrained`.

    Raises `EngineUnavailable`, in one sentence, where Transformers cannot load the model.
    """
    try:
        return _read(model, device, dtype, settings)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise EngineUnavailable(f"transformers could not load {model.name}: {first_line(error)}") from error


def _read(model: Model, device: torch.device, dtype: torch.dtype, settings: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    trusted = {"trust_remote_code": model.trust_remote_code}
    if not model.random_weights:
        net = AutoModelForCausalLM.from_pretrained(
            model.folder, dtype=dtype, local_files_only=True, **trusted, **settings
        )
        return net.to(device).eval()
    config = AutoConfig.from_pretrained(model.folder, local_files_only=True, **trusted)
    torch.manual_seed(WEIGHTS_SEED)
    with torch.device(device):  # generated on the device
        return AutoModelForCausalLM.from_config(config, dtype=dtype, **trusted, **settings).eval()


def read_config(model: Model) -> Any:
    """The configuration alone. Raises `EngineUnavailable` where Transformers does not know such a model."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            model.folder, local_files_only=True, trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError, KeyError) as error:
        raise EngineUnavailable(f"transformers could not load {model.name}: {first_line(error)}") from error


def end_ids(net: Any) -> frozenset[int]:
    """The tokens that end an answer: models have one, several, or none."""
    for config in (getattr(net, "generation_config", None), net.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()


def bits_of(quantised: Quantised) -> str:
    """The number format: `int8` or `int4`."""
    return quantised.rpartition("-")[2]


def loading_settings(quantised: Quantised, device: Any) -> dict[str, Any]:
    """Settings of `from_pretrained`. Raises `EngineUnavailable` where the library is not installed."""
    if quantised == "none":
        return {}
    library = QUANTISERS[quantised.partition("-")[0]]
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
