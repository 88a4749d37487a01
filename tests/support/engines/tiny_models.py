"""Models of every family with random weights, small enough to be generated quickly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engines.contract.base import Model
from engines.models.tokenizer import make_tokenizer
from tests.support.engines.reference import Reference
from tests.support.engines.torch_when_used import torch

VOCABULARY = 512
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.1,  # so that one token is likelier than another
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def write_tiny(folder: Path, model_type: str, embedding_scale: float = 1.0, **differs: Any) -> tuple[Model, Reference]:
    """Write a model of a family into `folder`; return it with its expected answers."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **(SHAPE | differs))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, weights in model.named_parameters():
        if weights.dim() == 1:  # norms begin as ones and biases as zeros, which would hide a mistake
            torch.nn.init.normal_(weights, float("norm" in name), 0.2)
    model.get_input_embeddings().weight.data *= embedding_scale
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(make_tokenizer(VOCABULARY)))
    return Model(f"tiny-{model_type}", folder), Reference(model)


def fit_vocabulary(document: dict[str, Any], size: int) -> dict[str, Any]:
    """Return a byte-level BPE `tokenizer.json` with exactly `size` ids.

    Merges were learned in the order of the ids they make, so the first ids and their merges form a tokenizer. Ids
    beyond its vocabulary become words that no text is split into.
    """
    model = document["model"]
    vocabulary = {token: id for token, id in model["vocab"].items() if id < size}
    merges = [pair for pair in model["merges"] if "".join(pair) in vocabulary]
    for id in range(len(model["vocab"]), size):
        vocabulary[f"Ġ<{id}>"] = id  # Ġ is a space in byte-level BPE
    return document | {"model": model | {"vocab": vocabulary, "merges": merges}}
