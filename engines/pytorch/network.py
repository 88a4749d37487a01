"""A model as Transformers reads it: its network, and the tokens that end an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.contract.base import EngineUnavailable, Model, first_line

if TYPE_CHECKING:
    import torch

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
