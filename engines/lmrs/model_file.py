"""`model.lmrs`, version 4, as github.com/samuel-vitorino/lm.rs reads it, written from a folder of safetensors.

A header of 256 bytes, then the tensors in a fixed order without names or gaps, little-endian. Matrices are 32-bit
floats or blocks of 32 weights: first all integers of the matrix, then one 32-bit scale per block.

    q8_0    weight = integer × scale, one signed byte each
    q4_0    weight = (nibble - 8) × scale, two to a byte, the earlier weight in the lower half

lm.rs has the details of a few models built in (rotary scaling, template), so this converts Llama 3.2 and refuses what
lm.rs would load and then answer wrongly.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engines.contract.base import EngineUnavailable, Model
from engines.lmrs.tokens import HIGHEST_ID
from engines.models.cache import built_once, cache_folder
from engines.models.progress import Progress, silent
from engines.models.random_weights import with_weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Weights = Callable[[str, tuple[int, ...]], Iterator[Floats]]  # a tensor in pieces of whole blocks, in order

DType = Literal["float32", "q8_0", "q4_0"]

DTYPES: tuple[DType, ...] = ("float32", "q8_0", "q4_0")  # in the order of their numbers in the header
WEIGHT_BYTES = {"float32": 4.0, "q8_0": 1 + 4 / 32, "q4_0": 0.5 + 4 / 32}
BLOCK = 32  # weights with one scale, as in GGUF; lm.rs would take 16 to 128
HEADER, HEADER_BYTES = struct.Struct("<4sI8I2f2BIB"), 256
LLAMA = 1  # lm.rs's number for the family
AT_A_TIME = 1 << 22  # weights in memory at once while a file is written
STORED = {"F32": 4, "F16": 2, "BF16": 2}  # bytes per weight in safetensors
LLAMA_3_2_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def converted(model: Model, dtype: DType, progress: Progress = silent) -> Path:
    """`model.lmrs` of this model in the user's cache, written if it was not there.

    Raises `ValueError` for a model that lm.rs does not know and `EngineUnavailable` for an incomplete one.
    """
    config = json.loads((model.folder / "config.json").read_text())
    check(config)
    model = with_weights(model, progress)
    sources = [model.folder / "config.json", *sorted(model.folder.glob("*.safetensors"))]
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    identity = hashlib.sha256(repr((stamps, BLOCK)).encode()).hexdigest()[:12]
    plain_name = model.name.replace("/", "-").replace(":", "-")
    weights = sum(rows * columns for _, (rows, columns) in tensors(config))
    folder = built_once(
        cache_folder() / "lmrs" / f"{plain_name}-{dtype}-{identity}",
        lambda unfinished: _write(model, config, dtype, unfinished / "model.lmrs", progress),
        needs_bytes=round(WEIGHT_BYTES[dtype] * weights),
        progress=progress,
    )
    return folder / "model.lmrs"


def check(config: Mapping[str, Any]) -> None:
    """Raises `ValueError` for a model that lm.rs would answer wrongly or end on."""
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    is_llama_3_2 = config.get("model_type") == "llama" and config.get("tie_word_embeddings", False)
    if not is_llama_3_2 or any(rope.get(name) != value for name, value in LLAMA_3_2_ROPE.items()):
        raise ValueError(
            "lm.rs is supported here for Llama 3.2 only (its rotary scaling and tied embeddings are built into "
            f"lm.rs); this model is a {config.get('model_type')} with other settings. Try random:llama-3.2-1b."
        )
    if config["vocab_size"] <= HIGHEST_ID:
        raise ValueError(
            f"lm.rs's chat template uses token {HIGHEST_ID}; this model has {config['vocab_size']} tokens."
        )
    for name, (rows, columns) in tensors(config):
        if rows > 1 and (columns % BLOCK or rows % 4):
            raise ValueError(
                f"lm.rs needs matrices with rows in fours and columns in blocks of {BLOCK}; {name} is {rows}×{columns}."
            )
    if _sizes(config)[2] >= 2 * config["hidden_size"]:
        raise ValueError("lm.rs fails on attention that is twice as wide as the model, or wider.")


def _sizes(config: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Width of the model, of its inner layer, of all query heads, of all key heads."""
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    return config["hidden_size"], config["intermediate_size"], queries, keys


def tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Name and shape of every tensor, in the file's order; norms are matrices of one row."""
    width, inner, queries, keys = _sizes(config)
    layers: dict[str, tuple[int, int]] = {
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
    yield "model.embed_tokens.weight", (config["vocab_size"], width)
    for name, shape in layers.items():
        for layer in range(config["num_hidden_layers"]):
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (1, width)


def header(config: Mapping[str, Any], dtype: DType) -> bytes:
    width, inner, queries, _ = _sizes(config)
    heads = config["num_attention_heads"]
    rope = {"rope_theta": config.get("rope_theta"), **(config.get("rope_parameters") or {})}
    shape = (width, inner, config["num_hidden_layers"], heads, queries // heads, config["num_key_value_heads"])
    fields = (*shape, config["vocab_size"], config["max_position_embeddings"], config["rms_norm_eps"])
    packed = HEADER.pack(b"lmrs", 4, *fields, rope["rope_theta"], DTYPES.index(dtype), LLAMA, BLOCK, 0)
    return packed.ljust(HEADER_BYTES, b"\0")


def _write(model: Model, config: Mapping[str, Any], dtype: DType, path: Path, progress: Progress) -> None:
    shapes = list(tensors(config))
    weights = _stored(model.folder, dict(shapes))
    total, done = 4 * sum(rows * columns for _, (rows, columns) in shapes), 0
    with path.open("wb") as file:
        file.write(header(config, dtype))
        for name, shape in shapes:
            scales: list[Floats] = []
            for some in weights(name, shape):
                if dtype == "float32" or shape[0] == 1:
                    file.write(some.tobytes())
                else:
                    integers, scale = quantise(some, dtype)
                    file.write(integers.tobytes())
                    scales.append(scale)
            file.writelines(scale.tobytes() for scale in scales)
            done += 4 * shape[0] * shape[1]
            progress(f"converting {model.name} to lm.rs's {dtype}", done, total)


def quantise(weights: Floats, dtype: DType) -> tuple[NDArray[Any], Floats]:
    """Integers as they stand in the file, and one scale per block. `weights` is a whole number of blocks."""
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


def _stored(folder: Path, shapes: Mapping[str, tuple[int, int]]) -> Weights:
    """The weights of a folder of safetensors. Raises `EngineUnavailable` where one is missing or of another shape."""
    # Not read with the safetensors package: NumPy has no bfloat16, and a whole tensor may be larger than memory allows.
    found: dict[str, tuple[Path, str, int]] = {}  # file, type, offset in bytes
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            rows, columns = entry["shape"] if len(entry["shape"]) == 2 else (1, *entry["shape"])
            if shapes.get(name) == (rows, columns) and entry["dtype"] in STORED:
                found[name] = path, entry["dtype"], 8 + length + entry["data_offsets"][0]
    if missing := [name for name in shapes if name not in found]:
        raise EngineUnavailable(f"the model in {folder} has no {missing[0]} of floats in its configuration's shape.")

    def read(name: str, shape: tuple[int, ...]) -> Iterator[Floats]:
        import numpy as np

        path, kind, offset = found[name]
        stored = np.memmap(path, f"<u{STORED[kind]}", "r", offset, (shape[0] * shape[1],))
        for start in range(0, len(stored), AT_A_TIME):
            some = stored[start : start + AT_A_TIME]
            if kind == "BF16":  # its bits are the upper half of a 32-bit float's
                yield (some.astype(np.uint32) << 16).view(np.float32)
            else:
                yield some.view("<f4" if kind == "F32" else "<f2").astype(np.float32)

    return read
