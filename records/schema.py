"""JSON Schema (2020-12) of a finished request's line in `requests*.jsonl`.

python -m records.schema > docs/request-record.schema.json
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from typing import Any, Literal

from records.request import RequestRecord
from records.run import SCHEMA_VERSION


def json_schema() -> dict[str, Any]:
    hints = typing.get_type_hints(RequestRecord)
    fields = dataclasses.fields(RequestRecord)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"enginebench request record, version {SCHEMA_VERSION}",
        "type": "object",
        "properties": {field.name: _schema_of(hints[field.name]) for field in fields},
        "required": [field.name for field in fields if field.default is dataclasses.MISSING],
        "additionalProperties": True,
    }


def _schema_of(hint: Any) -> dict[str, Any]:
    origin, arms = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(arms)}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arms[0])}
    if origin is types.UnionType or origin is typing.Union:
        return {"anyOf": [_schema_of(arm) for arm in arms]}
    return {"type": {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}[hint]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
