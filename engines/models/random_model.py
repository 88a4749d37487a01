"""Models of a preset's shape with random weights, to measure speed if the weights are not available.

Nothing is downloaded. Only `config.json` and a tokenizer of the preset's vocabulary are written; each engine generates
the weights on its device, or reads them from a file, which is written once. Token counts of text are realistic, every
id is one that the model has, and every id that it may produce has a text.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.models import tokenizer
from engines.models.cache import built_once, cache_folder
from engines.models.presets import LLAMA_3_ROPE, Preset
from engines.models.stored import head_size, key_heads
from engines.models.tokenizer import FLAGS

SPREAD = 0.02  # standard deviation, as most models are initialised; a configuration may have its own
BLOCK = 2**22  # numbers that are drawn and written at a time
FAMILIES = ("llama", "mistral", "qwen2")

# Llama 3.2's chat template as token ids: `random:llama-3.2-1b` has it so that every engine, lm.rs with its built-in
# template included, reads the same tokens.
BEGIN, START_HEADER, END_HEADER, END_OF_TURN = 128000, 128006, 128007, 128009
SYSTEM, USER, ASSISTANT, BLANK_LINE = 9125, 882, 78191, 271
# "Cutting Knowledge Date: December 2023\nToday Date: "
KNOWLEDGE = (38766, 1303, 33025, 2696, 25, 6790, 220, 2366, 18, 198, 15724, 2696, 25, 220)

BEFORE_DATE = (BEGIN, START_HEADER, SYSTEM, END_HEADER, BLANK_LINE, *KNOWLEDGE)
AFTER_DATE = (BLANK_LINE, END_OF_TURN)
BEFORE_USER = (START_HEADER, USER, END_HEADER, BLANK_LINE)
BEFORE_ASSISTANT = (START_HEADER, ASSISTANT, END_HEADER, BLANK_LINE)


def _marker(*ids: int) -> str:
    return "".join(f"<|{id}|>" for id in ids)


# A system message stands after the date, as in Llama's own template.
CHAT_TEMPLATE = (
    _marker(*BEFORE_DATE)
    + "{{ strftime_now('%d %b %Y') }}"
    + _marker(BLANK_LINE)
    + "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}"
    + _marker(END_OF_TURN)
    + "{% for message in messages if message.role != 'system' %}"
    + "{% if message.role == 'user' %}"
    + _marker(*BEFORE_USER)
    + "{% else %}"
    + _marker(*BEFORE_ASSISTANT)
    + "{% endif %}{{ message.content | trim }}"
    + _marker(END_OF_TURN)
    + "{% endfor %}{% if add_generation_prompt %}"
    + _marker(*BEFORE_ASSISTANT)
    + "{% endif %}"
)


def with_chat_tokens(document: dict[str, Any]) -> dict[str, Any]:
    """Return a `tokenizer.json` in which the template's ids are special tokens, and the texts they had move to unused
    ids."""
    vocabulary: dict[str, int] = dict(document["model"]["vocab"])
    texts = {id: text for text, id in vocabulary.items()}
    added = list(document["added_tokens"])
    unused = max(vocabulary.values())
    for id in sorted({*BEFORE_DATE, *AFTER_DATE, *BEFORE_USER, *BEFORE_ASSISTANT}):
        del vocabulary[texts[id]], vocabulary[texts[unused]]
        vocabulary[texts[id]], vocabulary[_marker(id)] = unused, id
        unused -= 1
        added.append({"id": id, "content": _marker(id), **FLAGS})
    merges = [pair for pair in document["model"]["merges"] if "".join(pair) in vocabulary]
    return document | {"added_tokens": added, "model": document["model"] | {"vocab": vocabulary, "merges": merges}}


def identity_of(preset: Preset) -> str:
    """Return a hash of everything that determines the weights and the tokenizer."""
    facts = [dict(preset.config), CHAT_TEMPLATE, tokenizer.CHAT_TEMPLATE, tokenizer.MERGES.read_text(encoding="utf-8")]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]


def write_model(preset: Preset, folder: Path) -> None:
    """Fill `folder` from the preset's configuration, with a tokenizer of its vocabulary."""
    document, template = tokenizer.make_tokenizer(int(preset.config["vocab_size"])), tokenizer.CHAT_TEMPLATE
    special = {"bos_token_id": tokenizer.BEGIN, "eos_token_id": tokenizer.END, "pad_token_id": tokenizer.PAD}
    if preset.config.get("rope_scaling") == LLAMA_3_ROPE:
        document, template = with_chat_tokens(document), CHAT_TEMPLATE
        special |= {"bos_token_id": BEGIN, "eos_token_id": END_OF_TURN}
    fill(folder, preset, special, document, tokenizer.SETTINGS, template)


def fill(
    folder: Path, preset: Preset, special: dict[str, int], document: Any, settings: Mapping[str, Any], template: str
) -> None:
    """Write a model's files without weights. `document` is its `tokenizer.json`, `special` tokens go into its
    configuration."""
    settings = {**settings, "model_max_length": preset.context_length}
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({**preset.config, **special}, indent=2, sort_keys=True) + "\n")


def with_weights(model: Model) -> Model:
    """Write the random weights of a model to a file.

    Raises `EngineUnavailable` for a family whose tensors are unknown.
    """
    if not model.random_weights:
        return model
    config = json.loads((model.folder / "config.json").read_text())
    if config["model_type"] not in FAMILIES:
        raise EngineUnavailable(f"random weights are written for {', '.join(FAMILIES)}, not {config['model_type']}.")
    shapes = dict(_tensors(config))
    needed = 2 * sum(rows * columns for rows, columns in shapes.values())

    def write(folder: Path) -> None:
        for path in model.folder.iterdir():
            shutil.copy(path, folder)
        spread = config.get("initializer_range", SPREAD)
        _write_weights(shapes, spread, folder / "model.safetensors")

    folder = built_once(cache_folder() / "weights" / model.folder.name, write, needs_bytes=needed)
    return replace(model, folder=folder, random_weights=False)


def layer_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the tensors of one layer of a Llama; norms are matrices of one row."""
    width, inner, head = config["hidden_size"], config["intermediate_size"], head_size(config)
    queries, keys = config["num_attention_heads"] * head, key_heads(config) * head
    return {
        "input_layernorm": (1, width),
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "post_attention_layernorm": (1, width),
        "mlp.gate_proj": (inner, width),
        "mlp.down_proj": (width, inner),
        "mlp.up_proj": (inner, width),
    }


def _tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield names and shapes; norms and biases are matrices of one row."""
    width = config["hidden_size"]
    yield "model.embed_tokens.weight", (config["vocab_size"], width)
    for layer in range(config["num_hidden_layers"]):
        for name, (rows, columns) in layer_shapes(config).items():
            yield f"model.layers.{layer}.{name}.weight", (rows, columns)
            if config["model_type"] == "qwen2" and name.endswith(("q_proj", "k_proj", "v_proj")):
                yield f"model.layers.{layer}.{name}.bias", (1, rows)
    yield "model.norm.weight", (1, width)
    if not config.get("tie_word_embeddings", False):
        yield "lm_head.weight", (config["vocab_size"], width)


def _write_weights(shapes: Mapping[str, tuple[int, int]], spread: float, path: Path) -> None:
    import numpy as np

    header, end = {}, 0
    for name, (rows, columns) in shapes.items():
        begin, end = end, end + 2 * rows * columns
        shape = [columns] if rows == 1 else [rows, columns]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    described = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(described)) + described)
        for name, (rows, columns) in shapes.items():
            generator = np.random.default_rng(zlib.crc32(name.encode()))
            for begin in range(0, rows * columns, BLOCK):
                count = min(BLOCK, rows * columns - begin)
                if rows == 1:
                    numbers = np.full(count, 0 if name.endswith("bias") else 1, np.float32)
                else:
                    numbers = generator.standard_normal(count, np.float32) * np.float32(spread)
                file.write((numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes())  # the upper half of a float
