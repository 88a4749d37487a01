"""Random weights as a file, for engines that read weights from nowhere else.

Written once per model, in the user's cache, as bfloat16, and shared by all such engines.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.contract.base import EngineUnavailable, Model
from engines.models.cache import built_once, cache_folder
from engines.models.stored import head_size

SPREAD = 0.02  # standard deviation, as most models are initialised; a configuration may have its own
FAMILIES = ("llama", "mistral", "qwen2")


def with_weights(model: Model) -> Model:
    """`model` with its random weights in a file. Raises `EngineUnavailable` for a family whose tensors are unknown."""
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
        _write(shapes, spread, folder / "model.safetensors")

    folder = built_once(cache_folder() / "weights" / model.folder.name, write, needs_bytes=needed)
    return replace(model, folder=folder, random_weights=False)


def weights_of(model: Model) -> tuple[Path, bool]:
    """A folder to load, and whether the library must make up the weights: those of families that we cannot write."""
    try:
        return with_weights(model).folder, False
    except EngineUnavailable:
        return model.folder, True


def layer_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The tensors of one layer of a Llama; norms are matrices of one row."""
    width, inner, head = config["hidden_size"], config["intermediate_size"], head_size(config)
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
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
    """Names and shapes; norms and biases are matrices of one row."""
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


def _write(shapes: Mapping[str, tuple[int, int]], spread: float, path: Path) -> None:
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
            for _ in range(rows):
                numbers = generator.standard_normal(columns, np.float32) * np.float32(spread)
                if rows == 1:
                    numbers = np.full(columns, 0 if name.endswith("bias") else 1, np.float32)
                file.write((numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes())  # the upper half of a float
