"""The OpenAPI document: requests and responses, as exactly as JSON Schema can describe them.

Bodies are read by `servers.http.access` and validated by `servers.openai.intake`, not by FastAPI, which would not limit
their size and would parse them twice. Their schemas are therefore added here, together with the rules of intake that go
beyond a field's type: fields that exclude or need each other, and the features and limits of the loaded engine. A
schema cannot express that `min_tokens` must not exceed the answer's limit, nor prompt and answer together the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from msgspec.json import schema_components

from engines.contract.base import EngineInfo
from servers.openai.requests import (
    IRRELEVANT,
    MAX_STOP_STRINGS,
    UNUSED,
    UNUSED_IN_MESSAGES,
    Body,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Message,
    TextPart,
    TokenizeRequest,
)
from servers.settings import ServerSettings

Schema = dict[str, Any]

BODIES: tuple[type[Body], ...] = (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)
SCHEMAS = "#/components/schemas/{name}"
NULL: Schema = {"type": "null"}
SOME_TEXT: Schema = {"type": "string", "minLength": 1}


def takes(body: type[Body]) -> Schema:
    """A path's `openapi_extra` for its body."""
    schema = {"$ref": SCHEMAS.format(name=body.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class OpenApiDocument:
    """Builds the document for `app`; without the engine's limits while `info` is `None`."""

    def __init__(self, app: FastAPI, settings: ServerSettings, vocab_size: int) -> None:
        self._facts = app, settings, vocab_size
        self._built: tuple[EngineInfo | None, Schema] | None = None

    def __call__(self, info: EngineInfo | None) -> Schema:
        if self._built is None or self._built[0] is not info:
            self._built = info, _document(*self._facts, info)
        return self._built[1]


def _document(app: FastAPI, settings: ServerSettings, vocab_size: int, info: EngineInfo | None) -> Schema:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    _, schemas = schema_components([*BODIES, Message, TextPart], ref_template=SCHEMAS)
    ids = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": vocab_size - 1}}
    schemas["DetokenizeRequest"]["properties"]["tokens"] |= ids
    schemas["TokenizeRequest"]["oneOf"] = [_given("prompt", "string"), _given("messages", "array")]
    schemas["CompletionRequest"]["properties"]["prompt"] |= _one_prompt(ids)
    for body in BODIES:
        properties = schemas[body.__name__]["properties"]
        properties |= {field: {"enum": [*values, None]} for field, values in UNUSED.items()}
        properties |= {field: {"description": "Accepted, and ignored."} for field in IRRELEVANT}
    unused = {field: {"enum": [*values, None]} for field, values in UNUSED_IN_MESSAGES.items()}
    schemas["Message"]["properties"] |= unused
    with_content = _given("content", "string"), _given("content", "array")
    schemas["Message"]["anyOf"] = [*with_content, _is("role", "assistant")]
    for name, rules in RULES.items():
        schemas[name]["allOf"] = rules
        properties = schemas[name]["properties"]
        strings = {"type": "array", "items": SOME_TEXT, "maxItems": MAX_STOP_STRINGS}
        properties["stop"]["anyOf"] = [SOME_TEXT, strings, NULL]
        if info is not None:
            _limit(properties, settings, info)
    document["components"]["schemas"] |= schemas
    if settings.api_keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for operation in (one for path in document["paths"].values() for one in path.values()):
            if "401" in operation["responses"]:
                operation["security"] = [{"key": []}]
    return document


def _given(field: str, kind: str) -> Schema:
    return {"properties": {field: {"type": kind}}, "required": [field]}


def _unless_null(field: str, needs: Schema) -> Schema:
    return {"anyOf": [{"properties": {field: NULL}}, needs]}


def _is(field: str, value: object) -> Schema:
    return {"properties": {field: {"const": value}}, "required": [field]}


_STREAM_OPTIONS = _unless_null("stream_options", _is("stream", True))
RULES: Mapping[str, list[Schema]] = {
    "ChatRequest": [
        _STREAM_OPTIONS,
        _unless_null("top_logprobs", _is("logprobs", True)),
        _unless_null("max_tokens", {"properties": {"max_completion_tokens": NULL}}),
    ],
    "CompletionRequest": [_STREAM_OPTIONS, _unless_null("logprobs", {"properties": {"echo": {"enum": [False, None]}}})],
}


def _one_prompt(ids: Schema) -> Schema:
    some = ids | {"minItems": 1}
    one = {"type": "array", "minItems": 1, "maxItems": 1}
    return {"anyOf": [SOME_TEXT, some, one | {"items": SOME_TEXT}, one | {"items": some}]}


def _limit(properties: Schema, settings: ServerSettings, info: EngineInfo) -> None:
    """A feature that the engine lacks is accepted only at the value that does not use it."""
    most = min(info.context_length - 1, settings.max_output_tokens or info.context_length)
    for field in ("max_tokens", "max_completion_tokens", "min_tokens"):
        if field in properties:
            (whole,) = (arm for arm in properties[field]["anyOf"] if arm["type"] == "integer")
            whole["maximum"] = most
    nothing: Mapping[str, list[Any]] = {
        "stop": [[], None],
        "ignore_eos": [False, None],
        "min_tokens": [0, None],
        "logprobs": [False, None] if "top_logprobs" in properties else [None],
    }
    for field, values in nothing.items():
        if field not in info.features:
            properties[field] = {"enum": values, "description": f"Not supported by the engine {info.name}."}
