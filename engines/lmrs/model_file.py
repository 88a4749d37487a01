"""`model.lmrs`, version 4, as github.com/samuel-vitorino/lm.rs reads it, written from a folder of safetensors.

A header of 256 bytes, then the tensors in a fixed order without names or gaps, little-endian. Matrices are 32-bit
floats or blocks of 32 weights: first all integers of the matrix, then one 32-bit scale per block.

    q8_0    weight = integer × scale, one signed byte each
    q4_0    weight = (nibble - 8) × scale, two to a byte, the earlier weight in the lower half

lm.rs has the details of a few models built in (rotary scaling, template), so this converts Llama 3.2 and refuses models
that lm.rs would load and then answer wrongly.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from enginebench.settings.schema import UserMistake
from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.lmrs.alphabet import HIGHEST_ID
from engines.models.cache import converted_once
from engines.models.presets import LLAMA_3_ROPE
from engines.models.random_model import layer_shapes, with_weights
from engines.models.stored import FLOAT_BYTES, StoredTensor, head_size, key_heads, rotary_of, tensors_of, weight_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

DType = Literal["float32", "q8_0", "q4_0"]

DTYPES: tuple[DType, ...] = ("float32", "q8_0", "q4_0")  # in the order of their numbers in the header
WEIGHT_BYTES = {"float32": 4.0, "q8_0": 1 + 4 / 32, "q4_0": 0.5 + 4 / 32}
BLOCK = 32  # weights with one scale, as in GGUF; lm.rs would take 16 to 128
HEADER, HEADER_BYTES = struct.Struct("<4sI8I2f2BIB"), 256
LLAMA = 1  # lm.rs's number for the family
AT_A_TIME = 1 << 22  # weights in memory at once while a file is written: a whole number of blocks


def converted(model: Model, dtype: DType) -> Path:
    """Return `model.lmrs` from the user's cache, written if it is missing.

    Raises `UserMistake` for a model that lm.rs does not know and `EngineUnavailable` for an incomplete one.
    """
    config = json.loads((model.folder / "config.json").read_text())
    check(config)
    model = with_weights(model)
    folder = converted_once(
        model,
        f"lmrs/{dtype}",
        [model.folder / "config.json", *weight_files(model.folder)],
        lambda unfinished: _write(model, config, dtype, unfinished / "model.lmrs"),
        version=BLOCK,
        needs_bytes=round(WEIGHT_BYTES[dtype] * sum(rows * columns for _, (rows, columns) in tensors(config))),
    )
    return folder / "model.lmrs"


def check(config: Mapping[str, Any]) -> None:
    """Raise `UserMistake` for a model on which lm.rs would fail or answer wrongly."""
    rope = rotary_of(config)
    is_llama_3_2 = config.get("model_type") == "llama" and config.get("tie_word_embeddings", False)
    if not is_llama_3_2 or any(rope.get(name) != value for name, value in LLAMA_3_ROPE.items()):
        raise UserMistake(
            "lm.rs is supported here for Llama 3.2 only (its rotary scaling and tied embeddings are built into "
            f"lm.rs); this model is a {config.get('model_type')} with other settings. Try random:llama-3.2-1b."
        )
    if config["vocab_size"] <= HIGHEST_ID:
        raise UserMistake(
            f"lm.rs's chat template uses token {HIGHEST_ID}; this model has {config['vocab_size']} tokens."
        )
    for name, (rows, columns) in tensors(config):
        if rows > 1 and (columns % BLOCK or rows % 4):
            raise UserMistake(
                f"lm.rs needs matrices with rows in fours and columns in blocks of {BLOCK}; {name} is {rows}×{columns}."
            )
    if config["num_attention_heads"] * head_size(config) >= 2 * config["hidden_size"]:
        raise UserMistake("lm.rs fails on attention that is twice as wide as the model, or wider.")


def tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield name and shape of every tensor, in the file's order; norms are matrices of one row."""
    width = config["hidden_size"]
    yield "model.embed_tokens.weight", (config["vocab_size"], width)
    for name, shape in layer_shapes(config).items():
        for layer in range(config["num_hidden_layers"]):
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (1, width)


def header(config: Mapping[str, Any], dtype: DType) -> bytes:
    fields = (
        *(config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]),
        *(config["num_attention_heads"], head_size(config), key_heads(config)),
        *(config["vocab_size"], config["max_position_embeddings"], config["rms_norm_eps"]),
    )
    packed = HEADER.pack(b"lmrs", 4, *fields, rotary_of(config)["rope_theta"], DTYPES.index(dtype), LLAMA, BLOCK, 0)
    return packed.ljust(HEADER_BYTES, b"\0")


def _write(model: Model, config: Mapping[str, Any], dtype: DType, path: Path) -> None:
    shapes, stored = dict(tensors(config)), tensors_of(model.folder)
    if missing := [name for name, shape in shapes.items() if not _fits(stored.get(name), shape)]:
        raise EngineUnavailable(
            f"the model in {model.folder} has no {missing[0]} of floats in its configuration's shape."
        )
    with path.open("wb") as file:
        file.write(header(config, dtype))
        for name, (rows, columns) in shapes.items():
            scales: list[Floats] = []
            for start in range(0, rows * columns, AT_A_TIME):
                some = stored[name].floats(start, start + AT_A_TIME)
                if dtype == "float32" or rows == 1:
                    file.write(some.tobytes())
                else:
                    integers, scale = quantise(some, dtype)
                    file.write(integers.tobytes())
                    scales.append(scale)
            file.writelines(scale.tobytes() for scale in scales)


def _fits(tensor: StoredTensor | None, shape: tuple[int, int]) -> bool:
    return tensor is not None and tensor.dtype in FLOAT_BYTES and (1, *tensor.shape)[-2:] == shape


def quantise(weights: Floats, dtype: DType) -> tuple[NDArray[Any], Floats]:
    """Return the integers of the file, and one scale per block. `weights` is a whole number of blocks."""
    import numpy as np

    blocks = weights.reshape(-1, BLOCK)
    largest = np.abs(blocks).max(axis=1)
    scale = (largest / np.float32(127.0 if dtype == "q8_0" else -7.5)).astype(np.float32)
    # A block of zeros has no scale to divide by; any integer times 0 is 0.
    steps = np.rint(blocks / np.where(largest == 0, np.float32(1), scale)[:, None] + (0 if dtype == "q8_0" else 8))
    if dtype == "q8_0":
        return steps.astype(np.int8).reshape(-1), scale
    nibbles = np.clip(steps, 0, 15).astype(np.uint8).reshape(-1)
    return nibbles[0::2] | (nibbles[1::2] << 4), scale
