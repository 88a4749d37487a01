"""Values as JSON has them."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec

from enginebench.records.metrics import Column

COLUMN_NAMES = ("name", "statistic", "key", "full_title", "unit", "better")  # what a declared column is known by


def as_document(value: Any) -> Any:
    """Dataclasses and structs become objects, by their fields; bytes become base64, and what is infinite or not a
    number becomes null."""
    if isinstance(value, Column):
        return {name: getattr(value, name) for name in COLUMN_NAMES}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, msgspec.Struct):
        return as_document(msgspec.to_builtins(value))
    if is_dataclass(value):
        return {field.name: as_document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_document(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_document(part) for part in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value
