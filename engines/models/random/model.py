"""Models of a preset's shape with random weights, to measure speed where the weights are not available.

Only `config.json` and a tokenizer are written; each engine generates the weights from a fixed seed. The tokenizer is
the embedded model's, cut or extended to the preset's vocabulary: token counts of text are realistic, every id is one
that the model has, and every id that it may produce has a text.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from engines.models.presets import LLAMA_3_ROPE, Preset
from engines.models.random import llama_chat
from engines.text.detokenize import byte_alphabet

PLAIN_TEMPLATE = "{%- for message in messages %}{{ message['content'] }}\n{%- endfor %}"


def identity(preset: Preset) -> str:
    """Changes with everything that determines the weights."""
    return hashlib.sha256(json.dumps([dict(preset.config), llama_chat.TEMPLATE]).encode()).hexdigest()[:8]


def write(preset: Preset, embedded: Path, folder: Path) -> None:
    """Fill `folder` from the preset's configuration and the tokenizer of the embedded model's folder."""
    tokenizer = json.loads((embedded / "tokenizer.json").read_text(encoding="utf-8"))
    fitted = fit_vocabulary(tokenizer, int(preset.config["vocab_size"]))
    tokens = json.loads((embedded / "config.json").read_text())
    special = {name: tokens[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    template = (embedded / "chat_template.jinja").read_text(encoding="utf-8")
    if preset.config.get("rope_scaling") == LLAMA_3_ROPE:
        fitted, template = llama_chat.with_chat_tokens(fitted), llama_chat.TEMPLATE
        special |= {"bos_token_id": llama_chat.BEGIN, "eos_token_id": llama_chat.END_OF_TURN}
    settings = json.loads((embedded / "tokenizer_config.json").read_text(encoding="utf-8"))
    _fill(folder, preset, special, fitted, settings, template)


def write_bytewise(preset: Preset, folder: Path) -> None:
    """Fill `folder` for a model without a tokenizer of its own: a token per byte, and no chat markers."""
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    names = ["<pad>", "<s>", "</s>"]
    tokens = [*names, *sorted(byte_alphabet())]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": id, "content": name, **llama_chat.SPECIAL} for id, name in enumerate(names)],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {token: id for id, token in enumerate(tokens)}, "merges": []},
    }
    fitted = fit_vocabulary(tokenizer, int(preset.config["vocab_size"]))
    _fill(folder, preset, special, fitted, {}, PLAIN_TEMPLATE)


def _fill(
    folder: Path, preset: Preset, special: dict[str, int], tokenizer: Any, settings: dict[str, Any], template: str
) -> None:
    settings = settings | {"model_max_length": preset.context_length}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({**preset.config, **special}, indent=2, sort_keys=True) + "\n")


def fit_vocabulary(tokenizer: dict[str, Any], size: int) -> dict[str, Any]:
    """A byte-level BPE `tokenizer.json` with exactly `size` ids.

    Merges were learned in the order of the ids they make, so the first ids and their merges form a tokenizer. Ids
    beyond its vocabulary become words that no text is split into.
    """
    model = tokenizer["model"]
    vocabulary = {token: id for token, id in model["vocab"].items() if id < size}
    merges = [pair for pair in model["merges"] if "".join(pair) in vocabulary]
    for id in range(len(model["vocab"]), size):
        vocabulary[f"Ġ<{id}>"] = id  # Ġ is a space in byte-level BPE
    return tokenizer | {"model": model | {"vocab": vocabulary, "merges": merges}}
