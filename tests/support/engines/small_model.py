"""Llama 3.2 in small, on which engines are compared: made without torch, once for all tests.

python -m tests.support.engines.small_model     # in the user's cache, to be copied to a machine without network
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from engines.contract.base import Model
from engines.models import random_model
from engines.models.cache import built_once, cache_folder
from engines.models.fetch import fetch_model
from engines.models.presets import LLAMA_3_ROPE, PRESETS
from engines.models.random_model import with_weights

PRESET = PRESETS["llama-3.2-tiny"]
# Of 128 256, with which the product with the embeddings is nearly all of a step. This number, and the questions, are
# such that no answer has special tokens or half characters, or two tokens whose logits are less than 0.004 apart.
VOCABULARY = 15_360


def small_model() -> Model:
    """With the rotary scaling, grouped heads and tied embeddings of Llama 3.2, and the tokenizer of SmolLM2, cut."""
    shape = replace(PRESET, config={**PRESET.config, "vocab_size": VOCABULARY, "rope_scaling": None})

    def write(folder: Path) -> None:
        random_model.write_model_like(shape, fetch_model().folder, folder)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "rope_scaling": LLAMA_3_ROPE}))

    folder = built_once(cache_folder() / "models" / f"small-{random_model.identity_of(shape)}", write)
    return with_weights(Model("small", folder, random_weights=True))


if __name__ == "__main__":
    print(small_model().folder)
