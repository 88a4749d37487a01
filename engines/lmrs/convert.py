"""From a folder of safetensors to what lm.rs loads: `model.lmrs` and `tokenizer.bin`.

lm.rs knows three families and has their details written into its code (rotary scaling, soft caps, chat template), so a
model is refused here when lm.rs would load it and then answer nonsense.

    enginebench models convert llama-3.2-1b --to lmrs --dtype q8_0
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from engines.contract.base import EngineUnavailable, Model
from engines.lmrs.file import DType, Family, Header, Part, file_bytes, parts, quantise
from engines.lmrs.text import AFTER, BEFORE, LLAMA_SYSTEM, write_tokenizer
from engines.models.progress import Progress, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engines.lmrs.file import Floats

    Weights = Callable[[Part, int], Iterator[Floats]]  # a part's weights in order, at most so many at a time

AT_A_TIME = 1 << 22  # weights that are in memory together while a file is written
LLAMA_3_2_ROPE = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
STORED_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def convert(model: Model, dtype: DType, folder: Path, progress: Progress = silent) -> None:
    """Write `model.lmrs` and lm.rs's `tokenizer.bin` into `folder`.

    Raises `ValueError` for a model that lm.rs does not know and `EngineUnavailable` for one that is not whole.
    """
    config = json.loads((model.folder / "config.json").read_text())
    header = header_of(config, dtype)
    weights = _drawn(header) if model.random_weights else _stored(model.folder, header)
    everything = list(parts(header))
    total, done = 4 * sum(part.size for part in everything), 0
    with (folder / "model.lmrs").open("wb") as file:
        file.write(header.pack())
        for part in everything:
            _write(part, header, weights, file)
            done += 4 * part.size
            progress(f"converting {model.name} to lm.rs's {dtype}", done, total)
    write_tokenizer(model.folder, header, folder / "tokenizer.bin")


def converted(model: Model, dtype: DType, progress: Progress = silent) -> Path:
    """The folder in the user's cache that holds this model for lm.rs, converted if it was not there."""
    import hashlib

    from engines.models.cache import built_once, cache_folder

    sources = [model.folder / "config.json", *sorted(model.folder.glob("*.safetensors"))]
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sources if path.is_file()]
    identity = hashlib.sha256(repr(stamps).encode()).hexdigest()[:12]
    header = header_of(json.loads((model.folder / "config.json").read_text()), dtype)
    plain_name = model.name.replace("/", "-").replace(":", "-")
    return built_once(
        cache_folder() / "lmrs" / f"{plain_name}-{dtype}-{identity}",
        lambda unfinished: convert(model, dtype, unfinished, progress),
        needs_bytes=file_bytes(header),
        progress=progress,
    )


def header_of(config: Mapping[str, Any], dtype: DType) -> Header:
    """The header for a Hugging Face configuration. Raises `ValueError` for a model that lm.rs would answer wrongly."""
    family = _family(config)
    heads = config["num_attention_heads"]
    head_size = config.get("head_dim") or config["hidden_size"] // heads
    header = Header(
        dim=config["hidden_size"],
        hidden=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        head_size=head_size,
        kv_heads=config["num_key_value_heads"],
        vocabulary=config["vocab_size"],
        context=config["max_position_embeddings"],
        norm_eps=config["rms_norm_eps"],
        rope_theta=_rope(config)["rope_theta"],
        dtype=dtype,
        family=family,
        group_size=_group_size(config["hidden_size"], heads * head_size, config["intermediate_size"]),
    )
    _check_kernels(header)
    return header


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Old and new spellings of the rotary embedding's settings in one place."""
    return {
        "rope_theta": config.get("rope_theta"),
        **(config.get("rope_scaling") or {}),
        **(config.get("rope_parameters") or {}),
    }


def _family(config: Mapping[str, Any]) -> Family:
    kind, rope = config.get("model_type"), _rope(config)
    scaling = rope.get("rope_type", rope.get("type", "default"))
    tied = config.get("tie_word_embeddings", False)
    if kind == "llama":
        if scaling != "llama3" or any(rope.get(name) != value for name, value in LLAMA_3_2_ROPE.items()) or not tied:
            raise ValueError(
                "of the Llama family, lm.rs knows Llama 3.2 only: its rotary scaling and tied embeddings are built in."
            )
        return "llama"
    if kind == "gemma2":
        head_size = config.get("head_dim", 256)
        caps = (config.get("attn_logit_softcapping"), config.get("final_logit_softcapping"))
        if caps != (50.0, 30.0) or config.get("query_pre_attn_scalar", head_size) != head_size:
            raise ValueError(
                "of Gemma, lm.rs knows Gemma 2 with 2B and 9B weights only: their scales and caps are in its code."
            )
        return "gemma"
    if kind == "phi3":
        head_size = config["hidden_size"] // config["num_attention_heads"]
        if scaling != "longrope" or head_size != 96 or config["max_position_embeddings"] != 131_072:
            raise ValueError("of Phi, lm.rs knows Phi-3.5 only: its long rotary embedding is in its code.")
        return "phi"
    raise ValueError(
        f"lm.rs knows the families Llama 3.2, Gemma 2 and Phi-3.5; this model is a {kind or 'model of no named type'}."
    )


def _group_size(*lengths: int) -> int:
    """The largest of lm.rs's group sizes that divides every row it will multiply."""
    for size in (128, 64, 32, 16):
        if all(length % size == 0 for length in lengths):
            return size
    raise ValueError(
        f"lm.rs works on groups of 16 weights or more; rows of {', '.join(map(str, lengths))} can't be split so."
    )


def _check_kernels(header: Header) -> None:
    """What lm.rs takes for granted: it would panic, or leave the rest of a row or a matrix out without a word."""
    highest = max(*BEFORE[header.family], *AFTER[header.family], *(LLAMA_SYSTEM if header.family == "llama" else ()))
    if header.vocabulary <= highest:
        raise ValueError(
            f"lm.rs's chat template uses token {highest}; this model's vocabulary ends at {header.vocabulary - 1}."
        )
    q, kv = header.heads * header.head_size, header.kv_heads * header.head_size
    if any(rows % 4 for rows in (header.dim, header.hidden, q, kv, header.vocabulary)):
        raise ValueError(
            "lm.rs multiplies four rows at a time; this model has a matrix whose rows are no multiple of 4."
        )
    if q >= 2 * header.dim:
        raise ValueError("lm.rs panics over attention that is twice as wide as the model, or wider.")
    biggest = max(header.vocabulary * header.dim, header.layers * header.dim * max(header.hidden, q))
    if biggest >= 1 << 32:
        raise ValueError("lm.rs counts a model's weights of one kind in 32 bits; this model has more.")


def _write(part: Part, header: Header, weights: Weights, file: BinaryIO) -> None:
    scales: list[Floats] = []
    for some in weights(part, AT_A_TIME):
        if header.dtype == "f32" or not part.is_matrix:
            file.write(some.tobytes())
            continue
        integers, scale = quantise(some, header.dtype, header.group_size)
        file.write(integers.tobytes())
        scales.append(scale)
    for scale in scales:
        file.write(scale.tobytes())


def _drawn(header: Header) -> Weights:
    """Random weights of the model's shape, the same ones each time."""

    def draw(part: Part, at_most: int) -> Iterator[Floats]:
        import zlib

        import numpy as np

        if not part.is_matrix:  # Gemma adds 1 to its norms' weights
            yield np.full(part.size, 0 if header.family == "gemma" else 1, np.float32)
            return
        chance = np.random.default_rng(zlib.crc32(part.name.encode()))
        for start in range(0, part.size, at_most):
            yield chance.standard_normal(min(at_most, part.size - start), np.float32) * np.float32(0.02)

    return draw


@dataclass(frozen=True, slots=True)
class _Stored:
    """Where a safetensors file keeps a tensor."""

    path: Path
    kind: str
    shape: tuple[int, ...]
    offset: int  # bytes

    def holds(self, part: Part) -> bool:
        enough_rows = self.shape[0] >= part.first_row + part.shape[0]
        return self.kind in STORED_BYTES and self.shape[1:] == part.shape[1:] and enough_rows


def _stored(folder: Path, header: Header) -> Weights:
    """The weights of a folder of safetensors. Raises `EngineUnavailable` where one is missing or of another shape."""
    entries = {key: entry for path in sorted(folder.glob("*.safetensors")) for key, entry in _entries(path)}
    if "lm_head.weight" not in entries and "model.embed_tokens.weight" in entries:
        entries["lm_head.weight"] = entries["model.embed_tokens.weight"]
    for part in parts(header):
        if part.key not in entries or not entries[part.key].holds(part):
            raise EngineUnavailable(
                f"the model in {folder} has no {part.key} of floats in the shape that its configuration tells."
            )

    def read(part: Part, at_most: int) -> Iterator[Floats]:
        import numpy as np

        entry = entries[part.key]
        item = STORED_BYTES[entry.kind]
        first = part.first_row * (part.size // part.shape[0])
        stored = np.memmap(entry.path, f"<u{item}", "r", entry.offset + first * item, (part.size,))
        for start in range(0, part.size, at_most):
            yield _as_f32(stored[start : start + at_most], entry.kind)

    return read


def _as_f32(stored: NDArray[Any], kind: str) -> Floats:
    """NumPy has no bfloat16: its bits are the upper half of a 32-bit float's."""
    import numpy as np

    if kind == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.view("<f4" if kind == "F32" else "<f2").astype(np.float32)


def _entries(path: Path) -> Iterator[tuple[str, _Stored]]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        described = json.loads(file.read(length))
    described.pop("__metadata__", None)
    for key, one in described.items():
        yield key, _Stored(path, one["dtype"], tuple(one["shape"]), 8 + length + one["data_offsets"][0])
