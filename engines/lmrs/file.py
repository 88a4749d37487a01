"""The `.lmrs` file, version 4: what lm.rs (github.com/samuel-vitorino/lm.rs) loads. Written the format and its reader.

A header of 256 bytes, then the tensors in a fixed order without names or gaps, little-endian. Matrices are 32-bit
floats, or groups of `group_size` weights: all the matrix's integers first, then one 32-bit scale per group.

    q8_0    weight = integer × scale, one signed byte each
    q4_0    weight = (nibble - 8) × scale, two to a byte, the earlier weight in the lower half

`engines.lmrs.convert` writes it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

Family = Literal["gemma", "llama", "phi"]
DType = Literal["f32", "q8_0", "q4_0"]

MAGIC, VERSION, HEADER_BYTES = 0x73726D6C, 4, 256
HEADER = struct.Struct("<2I8I2f2BIB")
FAMILIES: tuple[Family, ...] = ("gemma", "llama", "phi")  # in the order of their numbers in the header
DTYPES: tuple[DType, ...] = ("f32", "q8_0", "q4_0")
LONGEST_CONTEXT = 8192  # tokens; lm.rs keeps no more, whatever the header says


@dataclass(frozen=True, slots=True)
class Header:
    """The model's shape, and how its matrices are stored."""

    dim: int
    hidden: int
    layers: int
    heads: int
    head_size: int
    kv_heads: int
    vocabulary: int
    context: int  # tokens, as the model was trained
    norm_eps: float
    rope_theta: float
    dtype: DType
    family: Family
    group_size: int

    def pack(self) -> bytes:
        shape = (self.dim, self.hidden, self.layers, self.heads, self.head_size, self.kv_heads, self.vocabulary)
        packed = HEADER.pack(
            *(MAGIC, VERSION, *shape, self.context, self.norm_eps, self.rope_theta),
            *(DTYPES.index(self.dtype), FAMILIES.index(self.family), self.group_size, 0),
        )
        return packed.ljust(HEADER_BYTES, b"\0")

    @classmethod
    def read(cls, path: Path) -> Header:
        """Raises `ValueError` for a file that is none of lm.rs's, or has images in it."""
        with path.open("rb") as file:
            start = file.read(HEADER_BYTES)
        if len(start) < HEADER_BYTES or (fields := HEADER.unpack_from(start))[:2] != (MAGIC, VERSION):
            raise ValueError(
                f"{path.name} is no .lmrs file of version {VERSION}; `enginebench models convert --to lmrs` makes one."
            )
        shape, (dtype, family, group_size, images) = fields[2:12], fields[12:]
        if dtype >= len(DTYPES) or family >= len(FAMILIES) or images:
            raise ValueError(
                f"{path.name} holds an lm.rs model of a kind that is not supported here (images, or newer)."
            )
        values: tuple[Any, ...] = (*shape, DTYPES[dtype], FAMILIES[family], group_size)
        return cls(*values)


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of the file: its name, and which rows of which safetensors entry it comes from."""

    name: str
    shape: tuple[int, ...]
    is_matrix: bool
    key: str
    first_row: int = 0

    @property
    def size(self) -> int:
        rows, columns = self.shape if self.is_matrix else (1, *self.shape)
        return rows * columns


def parts(header: Header) -> Iterator[Part]:
    """Every tensor, in the file's order."""
    dim, hidden = header.dim, header.hidden
    q, kv = header.heads * header.head_size, header.kv_heads * header.head_size
    is_phi, is_gemma = header.family == "phi", header.family == "gemma"

    def layers(name: str, shape: tuple[int, ...], key: str | None = None, first_row: int = 0) -> Iterator[Part]:
        for layer in range(header.layers):
            at = f"model.layers.{layer}."
            yield Part(f"{at}{name}.weight", shape, len(shape) == 2, f"{at}{key or name}.weight", first_row)

    qkv, gate_up = ("self_attn.qkv_proj", "mlp.gate_up_proj") if is_phi else (None, None)
    yield Part("model.embed_tokens.weight", (header.vocabulary, dim), True, "model.embed_tokens.weight")
    yield from layers("input_layernorm", (dim,))
    yield from layers("self_attn.q_proj", (q, dim), qkv)
    yield from layers("self_attn.k_proj", (kv, dim), qkv, q if is_phi else 0)
    yield from layers("self_attn.v_proj", (kv, dim), qkv, q + kv if is_phi else 0)
    yield from layers("self_attn.o_proj", (dim, q))
    yield from layers("post_attention_layernorm", (dim,))
    if is_gemma:
        yield from layers("pre_feedforward_layernorm", (dim,))
    yield from layers("mlp.gate_proj", (hidden, dim), gate_up)
    yield from layers("mlp.down_proj", (dim, hidden))
    yield from layers("mlp.up_proj", (hidden, dim), gate_up, hidden if is_phi else 0)
    if is_gemma:
        yield from layers("post_feedforward_layernorm", (dim,))
    yield Part("model.norm.weight", (dim,), False, "model.norm.weight")
    if is_phi:
        yield Part("lm_head.weight", (header.vocabulary, dim), True, "lm_head.weight")


def file_bytes(header: Header) -> int:
    return HEADER_BYTES + sum(part_bytes(part, header) for part in parts(header))


def part_bytes(part: Part, header: Header) -> int:
    if header.dtype == "f32" or not part.is_matrix:
        return 4 * part.size
    return (part.size if header.dtype == "q8_0" else part.size // 2) + 4 * (part.size // header.group_size)


def quantise(weights: Floats, dtype: DType, group_size: int) -> tuple[NDArray[np.uint8] | NDArray[np.int8], Floats]:
    """Integers as they stand in the file, and one scale per group. `weights` is a whole number of groups."""
    import numpy as np

    groups = weights.reshape(-1, group_size)
    largest = np.abs(groups).max(axis=1)
    scale = (largest / np.float32(127.0 if dtype == "q8_0" else -7.5)).astype(np.float32)
    # A group of zeros has no scale to divide by; any integer times 0 is 0.
    steps = np.rint(groups / np.where(largest == 0, np.float32(1), scale)[:, None] + (0 if dtype == "q8_0" else 8))
    if dtype == "q8_0":
        return steps.astype(np.int8).reshape(-1), scale
    nibbles = np.clip(steps, 0, 15).astype(np.uint8).reshape(-1)
    return nibbles[0::2] | (nibbles[1::2] << 4), scale


def read_tensors(path: Path) -> Iterator[tuple[str, Floats]]:
    """Every tensor by name, dequantised, in the file's order. Raises `ValueError` for a file that is cut short."""
    import numpy as np

    header = Header.read(path)
    if path.stat().st_size != file_bytes(header):
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes where its header asks for {file_bytes(header)}.")
    offset = HEADER_BYTES
    for part in parts(header):
        data = np.memmap(path, np.uint8, "r", offset, (part_bytes(part, header),))
        offset += len(data)
        if header.dtype == "f32" or not part.is_matrix:
            yield part.name, data.view("<f4").reshape(part.shape)
            continue
        packed, scales = np.split(data, [len(data) - 4 * (part.size // header.group_size)])
        if header.dtype == "q8_0":
            integers = packed.view(np.int8).astype(np.float32)
        else:
            integers = np.stack([packed & 15, packed >> 4], axis=1).astype(np.float32).reshape(-1) - np.float32(8)
        weights = integers.reshape(-1, header.group_size) * scales.view("<f4")[:, None]
        yield part.name, weights.reshape(part.shape)
