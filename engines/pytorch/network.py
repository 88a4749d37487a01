"""A model as Transformers reads it, quantised if requested.

The configuration of an already quantised model (GPTQ, AWQ, …) says so; it needs no setting, only its library.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from importlib.util import find_spec
from math import gcd
from typing import TYPE_CHECKING, Any, Literal

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable, first_line
from engines.models.size import quantised_before
from engines.pytorch.device import name_of

if TYPE_CHECKING:
    import torch

Quantised = Literal["none", "bnb-int8", "bnb-int4", "torchao-int8", "torchao-int4", "inc-int8", "inc-int4"]
# The module to import, and the package to install.
QUANTISERS = {
    "bnb": ("bitsandbytes", "bitsandbytes"),
    "torchao": ("torchao", "torchao"),
    "inc": ("neural_compressor", "neural-compressor-pt"),
}
WEIGHTS_SEED = 0  # of models with random weights: the same ones in every run


def read_network(model: Model, device: torch.device, dtype: torch.dtype, **settings: Any) -> Any:
    """Return the network on `device`, ready to generate. `settings` are passed to `from_pretrained`.

    Raises `EngineUnavailable`, in one sentence, if Transformers cannot load the model.
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
    """Return only the configuration. Raises `EngineUnavailable` if Transformers does not know such a model."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            model.folder, local_files_only=True, trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError, KeyError) as error:
        raise EngineUnavailable(f"transformers could not load {model.name}: {first_line(error)}") from error


def bits_of(quantised: Quantised) -> str:
    """Return the number format: `int8` or `int4`."""
    return quantised.rpartition("-")[2]


def weights_format(net: Any, dtype: torch.dtype, quantised: Quantised) -> str:
    """Return the format of the matrices, which activations need not share."""
    if quantised != "none":
        return bits_of(quantised)
    return quantised_before(net.config.to_dict()) or name_of(dtype)


def loading_settings(quantised: Quantised, model: Model, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Return settings of `from_pretrained`. Raises `EngineUnavailable` if the installed library has no such kernels."""
    if quantised == "none":
        return {}
    library = quantised.partition("-")[0]
    module, package = QUANTISERS[library]
    if find_spec(module) is None:
        raise EngineUnavailable(f"quantization={quantised} needs {package}; install with: pip install {package}")
    if library == "inc":
        return {}  # it quantises a loaded network
    config = (
        _bitsandbytes_config(quantised, dtype) if library == "bnb" else _torchao_config(quantised, model, device, dtype)
    )
    return {"quantization_config": config, "device_map": {"": device}}


def quantised_after(net: Any, quantised: Quantised) -> Any:
    """Quantise with Intel Neural Compressor, rounding to nearest, with a scale for each group.

    Its layers expand the weights at each use, so the model becomes smaller, not faster.
    """
    if not quantised.startswith("inc-"):
        return net
    from neural_compressor.torch.quantization import RTNConfig, convert, prepare

    bits = int(bits_of(quantised).removeprefix("int"))
    config = RTNConfig(bits=bits, group_size=_group_size(net.config), use_layer_wise=False)
    return convert(prepare(net, config)).to(net.device)


def _bitsandbytes_config(quantised: Quantised, dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig

    bits = bits_of(quantised).removeprefix("int")
    computing = {"bnb_4bit_compute_dtype": dtype} if bits == "4" else {}  # by default 32 bits
    return BitsAndBytesConfig(**{f"load_in_{bits}bit": True}, **computing)


def _torchao_config(quantised: Quantised, model: Model, device: torch.device, dtype: torch.dtype) -> Any:
    from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    if quantised == "torchao-int8":
        return TorchAoConfig(Int8WeightOnlyConfig())
    if device.type == "cuda" and name_of(dtype) != "bfloat16":
        raise EngineUnavailable(f"torchao multiplies 4-bit weights with bfloat16 only, not with {name_of(dtype)}.")
    takes = inspect.signature(Int4WeightOnlyConfig).parameters
    settings: dict[str, Any] = {"group_size": _group_size(read_config(model))}
    if (packing := takes.get("int4_packing_format")) is not None:
        # By default torchao takes a kernel of another package (mslk, before it fbgemm-gpu-genai).
        format_name = {"cuda": "tile_packed_to_4d", "cpu": "opaque"}.get(device.type)
        if format_name not in {format.value for format in type(packing.default)}:
            raise EngineUnavailable(
                f"torchao {version('torchao')} has no 4-bit kernel for {device.type}; use torchao-int8 or bnb-int4."
            )
        settings["int4_packing_format"] = format_name
    return TorchAoConfig(Int4WeightOnlyConfig(**settings))


def _group_size(config: Any) -> int:
    """Return the largest group of weights with one scale that divides every row. Raises `EngineUnavailable`."""
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    width = gcd(config.hidden_size, getattr(config, "intermediate_size", None) or config.hidden_size, heads * head)
    for size in (128, 64, 32):
        if width % size == 0:
            return size
    raise EngineUnavailable(f"4-bit weights are grouped by 32 and more, and rows of this model are not ({width}).")
