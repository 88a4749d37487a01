"""Values as JSON has them."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec


def as_document(value: Any, shorten: Callable[[Any], Any] = lambda value: value) -> Any:
    """Turn dataclasses and structs into objects with their fields, bytes into base64, infinities and NaN into null.
    `shorten` first replaces a value, such as an object by its name."""
    value = shorten(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): as_document(part, shorten) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_document(part, shorten) for part in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value
