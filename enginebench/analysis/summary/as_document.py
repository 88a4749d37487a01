"""Values as JSON has them, and the types that JSON Schema describes them by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from enginebench.records.metrics import Column

COLUMN_NAMES = ("name", "statistic", "key", "full_title", "unit", "better")  # what a declared column is known by


def as_document(value: Any) -> Any:
    """Dataclasses and structs become objects, by their fields; what is infinite or not a number becomes null."""
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
    return None if isinstance(value, float) and not math.isfinite(value) else value


@cache
def document_type(kind: Any) -> Any:
    """The type of a value once it is in a document: as `as_document` writes it."""
    if kind is Column:
        return msgspec.defstruct("Column", [(name, str | None if name == "better" else str) for name in COLUMN_NAMES])
    if kind is float:
        return float | None
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        types = [(field.name, document_type(hints[field.name])) for field in fields(kind)]
        return msgspec.defstruct(kind.__name__, types, namespace={"__doc__": kind.__doc__})
    origin, parts = get_origin(kind), get_args(kind)
    if origin is None or origin is Literal:
        return kind
    parts = tuple(part if part is Ellipsis else document_type(part) for part in parts)
    return reduce(or_, parts) if origin in {Union, UnionType} else origin[parts]
