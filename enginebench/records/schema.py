"""JSON Schema (2020-12) of a finished request's line in `requests*.jsonl`.

python -m enginebench.records.schema > docs/request-record.schema.json
"""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import msgspec

from enginebench.records.request import RequestRecord
from enginebench.records.run import SCHEMA_VERSION


def json_schema() -> dict[str, Any]:
    _, components = msgspec.json.schema_components([RequestRecord])
    declared = components[RequestRecord.__name__]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **declared,
        "description": inspect.cleandoc(declared["description"]),  # Python keeps the indentation before 3.13
        "title": f"enginebench request record, version {SCHEMA_VERSION}",
        "additionalProperties": True,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
