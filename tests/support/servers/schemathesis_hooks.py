"""What no schema can say of a body, told to schemathesis (see tests/servers/openai/test_schemathesis.py)."""

from __future__ import annotations

import os
from typing import Any

import schemathesis

MOST_TOKENS = int(os.environ["MOST_TOKENS"])  # what the server under test gives at most
OPENAI_DEFAULT = 16


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    return not isinstance(case.body, dict) or (_fits(case.body) and not _hurries(case.body.get("timeout")))


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    return _whole_numbers_whole(body)


def _whole_numbers_whole(value: Any) -> Any:
    """JSON Schema calls 5.0 an integer; this server wants 5, as every client writes it."""
    if isinstance(value, dict):
        return {name: _whole_numbers_whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fits(body: dict[str, Any]) -> bool:
    """`min_tokens` is no more than the answer may have."""
    default = OPENAI_DEFAULT if "prompt" in body else MOST_TOKENS
    most = body.get("max_tokens") or body.get("max_completion_tokens") or default
    least = body.get("min_tokens") or 0
    return not (isinstance(most, int) and isinstance(least, int)) or least <= most


def _hurries(timeout: object) -> bool:
    """A deadline that cannot be met is met with 504, as it should be."""
    return isinstance(timeout, int | float) and 0 < timeout < 10
