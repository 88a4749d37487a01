"""Models of a preset's true shape without its weights, to measure speed where weights can't be had.

Only `config.json` and a tokenizer are written; each engine draws the weights itself, from a fixed seed. The tokenizer
is the embedded model's, cut or filled up to the preset's vocabulary: text becomes about as many tokens as people
expect, every id is one the model knows, and every id the model may produce becomes text.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from engines.models.presets import Preset


def write_random_model(preset: Preset, embedded: Path, folder: Path) -> None:
    """Fill `folder` from the preset's configuration and the tokenizer of the embedded model's folder."""
    tokenizer = json.loads((embedded / "tokenizer.json").read_text(encoding="utf-8"))
    fitted = fit_vocabulary(tokenizer, int(preset.config["vocab_size"]))
    (folder / "tokenizer.json").write_text(json.dumps(fitted, ensure_ascii=False), encoding="utf-8")
    settings = json.loads((embedded / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings | {"model_max_length": preset.context_length}, indent=2)
    )
    shutil.copyfile(embedded / "chat_template.jinja", folder / "chat_template.jinja")
    tokens = json.loads((embedded / "config.json").read_text())
    special = {name: tokens[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (folder / "config.json").write_text(json.dumps({**preset.config, **special}, indent=2, sort_keys=True) + "\n")


def fit_vocabulary(tokenizer: dict[str, Any], size: int) -> dict[str, Any]:
    """A byte-level BPE `tokenizer.json` with exactly `size` ids.

    Merges were learned in the order of the ids they make, so the first ids and their merges are a tokenizer by
    themselves. Ids beyond the end become words that no text is cut into.
    """
    model = tokenizer["model"]
    vocabulary = {token: id for token, id in model["vocab"].items() if id < size}
    merges = [pair for pair in model["merges"] if "".join(pair) in vocabulary]
    for id in range(len(model["vocab"]), size):
        vocabulary[f"Ġ<{id}>"] = id  # Ġ is how byte-level BPE writes a space
    return tokenizer | {"model": model | {"vocab": vocabulary, "merges": merges}}
