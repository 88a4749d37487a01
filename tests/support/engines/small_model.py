"""A small Llama 3.2 on which engines are compared, made without torch, once for all tests.

python -m tests.support.engines.small_model     # writes it to the user's cache, for a machine without network
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from engines.contract.base import Model
from engines.models.cache import built_once, cache_folder
from engines.models.fetch import fetch_model
from engines.models.presets import LLAMA_3_ROPE, PRESETS
from engines.models.random_model import fill, identity_of, with_weights
from tests.support.engines.tiny_models import fit_vocabulary

PRESET = PRESETS["llama-3.2-tiny"]
# With the original 128 256, the product with the embeddings would take nearly all of a step. This number and the
# questions are chosen so that no answer has special tokens, half characters, or top logits that differ by under 0.004.
VOCABULARY = 15_360
END = 5848  # ends an answer: a token in the middle of a recorded one, whose text is also its text in the vocabulary


def small_model() -> Model:
    """Return a model with the rotary scaling, grouped heads and tied embeddings of Llama 3.2."""
    end = {"eos_token_id": END}
    shape = replace(PRESET, config={**PRESET.config, **end, "vocab_size": VOCABULARY, "rope_scaling": LLAMA_3_ROPE})

    def write(folder: Path) -> None:
        like = fetch_model().folder
        tokens = json.loads((like / "config.json").read_text())
        fitted = fit_vocabulary(json.loads((like / "tokenizer.json").read_text(encoding="utf-8")), VOCABULARY)
        settings = json.loads((like / "tokenizer_config.json").read_text(encoding="utf-8"))
        special = {name: tokens[name] for name in ("bos_token_id", "pad_token_id")} | end
        fill(folder, shape, special, fitted, settings, (like / "chat_template.jinja").read_text(encoding="utf-8"))
        (folder / "generation_config.json").write_text(json.dumps(end))  # some engines look for it only there

    folder = built_once(cache_folder() / "models" / f"small-{identity_of(shape)}", write)
    return with_weights(Model("small", folder, random_weights=True))


if __name__ == "__main__":
    print(small_model().folder)
