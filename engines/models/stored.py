"""What the files of a model's folder say of it: its configuration, and the headers of its safetensors.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def config_of(folder: Path) -> Mapping[str, Any]:
    """That of the text model, where there are several."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config | (config.get("text_config") or {})


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def header_of(file: Path) -> tuple[Mapping[str, Any], int]:
    """For each tensor its `dtype`, `shape` and `data_offsets`, and the place in the file that these count from."""
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        entries = json.loads(opened.read(length))
    entries.pop("__metadata__", None)
    return entries, 8 + length


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Of every tensor in the folder's files."""
    return {name: tuple(entry["shape"]) for file in weight_files(folder) for name, entry in header_of(file)[0].items()}
