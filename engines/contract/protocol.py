"""The engine contract as lines on a pipe, so that an engine may be written in any language.

A child reads JSON objects from its standard input, one per line, and writes JSON objects to its standard output. Its
log goes to standard error. `docs/engine-protocol.md` describes the protocol for authors of engines.

    parent → child   load, generate, cancel, stats, profile
    child  → parent  ready, chunk, done, error, stats, profiled

Every `generate` is answered by any number of `chunk`s and then exactly one `done` or `error`, also after a `cancel`.
The end of standard input tells the child to stop. Standard library only: it also runs without our other packages.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring as quote
from pathlib import Path
from typing import Any, TypeVar, cast

from engines.contract.base import (
    Chunk,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerateRequest,
    Model,
    TokenLogprob,
    Usage,
)
from engines.contract.errors import (
    BadRequest,
    EngineCrashed,
    EngineError,
    EngineOverloaded,
    EngineUnavailable,
    ErrorKind,
    FatalError,
)

T = TypeVar("T")

VERSION = 1
MAX_LINE_BYTES = 64 * 1024 * 1024  # a longer line means a broken child, not a long answer
PLAIN: Mapping[str, Any] = {
    "str": str,
    "bool": bool,
    "int": int,
    "float": int | float,
    "int | None": int | None,
    "float | None": int | float | None,
}
"""Annotations of fields, and what a line may hold there. Others are not checked."""


class ProtocolError(Exception):
    """A line that is not a message of this protocol."""


@dataclass(frozen=True, slots=True)
class Load:
    """The first line a child gets. `options` are texts as the user typed them; the child parses them."""

    engine: str
    model: Model | None
    options: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Ready:
    info: EngineInfo
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Generate:
    """`id` is the parent's number for this request; the child repeats it in every line that answers."""

    id: int
    request: GenerateRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    id: int


@dataclass(frozen=True, slots=True)
class ChunkReady:
    id: int
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Done:
    id: int
    finish_reason: FinishReason
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An error line. Without `id` it concerns the whole engine (it could not load)."""

    id: int | None
    kind: ErrorKind
    message: str
    retry_after: float | None = None  # seconds, with the kind `overloaded`

    def as_error(self) -> EngineError:
        if self.kind == "overloaded":
            return EngineOverloaded(self.message, self.retry_after)
        kinds = (BadRequest, EngineUnavailable, EngineCrashed, FatalError)
        return next((kind for kind in kinds if kind.kind == self.kind), EngineError)(self.message)


@dataclass(frozen=True, slots=True)
class AskStats:
    """The heartbeat: a child that does not answer in time counts as hung."""


@dataclass(frozen=True, slots=True)
class Stats:
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class Profile:
    """Start to profile the child's own process, with the files named after `path`; without `on`, end that and write
    them. Answered by one `profiled`. A child that cannot ignores it, as any message that it does not know."""

    profiler: str
    path: Path
    on: bool = True


@dataclass(frozen=True, slots=True)
class Profiled:
    """`why` says why it could not be done."""

    why: str | None = None


ToChild = Load | Generate | Cancel | AskStats | Profile
ToParent = Ready | ChunkReady | Done | Failed | Stats | Profiled


def _dumps(document: dict[str, Any]) -> bytes:
    return _utf8(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def _utf8(text: str) -> bytes:
    """Half a surrogate pair, as an engine may have from another server, becomes a question mark."""
    return text.encode("utf-8", "replace")


def encode(message: ToChild | ToParent, dumps: Callable[[dict[str, Any]], bytes] = _dumps) -> bytes:
    """One line, newline included. `dumps` may be a faster JSON writer: a long prompt has 100 000 token ids."""
    return dumps(_as_object(message)) + b"\n"


def encode_chunk(id: int, chunk: Chunk) -> bytes:
    """The line that is written once per token: the same as `encode`, formatted by hand because of its frequency."""
    if chunk.logprobs:
        return encode(ChunkReady(id, chunk))
    return b'{"type":"chunk","id":%d,"text":%s,"tokens":%d}\n' % (id, _utf8(quote(chunk.text)), chunk.tokens)


def _as_object(message: ToChild | ToParent) -> dict[str, Any]:
    match message:
        case Load(engine, model, options, version):
            return {
                "type": "load",
                "version": version,
                "engine": engine,
                "model": None if model is None else _plain(model),
                "options": dict(options),
            }
        case Ready(info, version):
            return {"type": "ready", "version": version, "info": _plain(info)}
        case Generate(id, request):
            return {"type": "generate", "id": id, **_plain(request)}
        case Cancel(id):
            return {"type": "cancel", "id": id}
        case ChunkReady(id, chunk):
            logprobs = {"logprobs": [_plain(one) for one in chunk.logprobs]} if chunk.logprobs else {}
            return {"type": "chunk", "id": id, "text": chunk.text, "tokens": chunk.tokens, **logprobs}
        case Done(id, finish_reason, usage):
            more = {} if usage is None else {"usage": _plain(usage)}
            return {"type": "done", "id": id, "finish_reason": finish_reason, **more}
        case Failed(id, kind, message_text, retry_after):
            later = {} if retry_after is None else {"retry_after": retry_after}
            return {"type": "error", "id": id, "kind": kind, "message": message_text, **later}
        case AskStats():
            return {"type": "stats"}
        case Profile():
            return {"type": "profile", **_plain(message)}
        case Profiled():
            return {"type": "profiled", **_plain(message)}
        case Stats(stats):
            return {"type": "stats", **_plain(stats)}


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as a JSON object: fields at their default are left out, paths become text."""
    plain = {}
    for f in dataclasses.fields(value):
        item = getattr(value, f.name)
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        if default is not dataclasses.MISSING and item == default:
            continue
        if isinstance(item, Path):
            item = str(item)
        elif isinstance(item, Mapping):
            item = dict(item)
        plain[f.name] = item
    return plain


def decode_to_child(line: bytes) -> ToChild:
    """Raises `ProtocolError`. Unknown fields are ignored, so that a newer parent may send more."""
    fields = _object(line)
    try:
        match fields.pop("type", None):
            case "load":
                model = fields.get("model")
                return Load(
                    engine=fields["engine"],
                    model=None if model is None else _model(model),
                    options=fields.get("options", {}),
                    version=fields.get("version", 0),
                )
            case "generate":
                id = int(fields.pop("id"))
                fields["prompt_token_ids"] = tuple(fields["prompt_token_ids"])
                fields["stop"] = tuple(fields.get("stop", ()))
                fields["forced_token_ids"] = tuple(fields.get("forced_token_ids", ()))
                if fields.get("messages") is not None:
                    fields["messages"] = tuple(fields["messages"])
                return Generate(id, _known(GenerateRequest, fields))
            case "cancel":
                return Cancel(int(fields["id"]))
            case "stats":
                return AskStats()
            case "profile":
                return _known(Profile, fields | {"path": Path(fields["path"])})
            case other:
                raise ProtocolError(f"unknown message type {other!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"malformed line ({error!r}): {line[:200]!r}") from error


def decode_to_parent(line: bytes) -> ToParent:
    """Raises `ProtocolError`."""
    fields = _object(line)
    try:
        match fields["type"]:
            case "chunk":
                logprobs = _logprobs(fields["logprobs"]) if "logprobs" in fields else ()
                return ChunkReady(fields["id"], Chunk(fields["text"], fields["tokens"], None, logprobs))
            case "done":
                usage = fields.get("usage")
                return Done(fields["id"], fields["finish_reason"], None if usage is None else _known(Usage, usage))
            case "error":
                return _known(Failed, fields)
            case "stats":
                return Stats(_known(EngineStats, fields))
            case "profiled":
                return _known(Profiled, fields)
            case "ready":
                info = fields["info"]
                info["features"] = tuple(info.get("features", ()))
                return Ready(_known(EngineInfo, info), fields["version"])
            case other:
                raise ProtocolError(f"unknown message type {other!r}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"malformed line ({error!r}): {line[:200]!r}") from error


def _object(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {line[:200]!r}") from error
    if not isinstance(fields, dict):
        raise ProtocolError(f"not an object: {line[:200]!r}")
    return fields


def _known(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Raises `TypeError` for a field that is missing or of another type, `ValueError` for text that is no Unicode."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"{fields!r} is not an object")
    known = {}
    for f in dataclasses.fields(cast(Any, kind)):
        if f.name not in fields:
            continue
        known[f.name] = value = fields[f.name]
        if not isinstance(value, PLAIN.get(cast(str, f.type), object)):
            raise TypeError(f"`{f.name}` is {f.type}, not {value!r}")
        if isinstance(value, str):
            value.encode()
    return kind(**known)


def _model(fields: dict[str, Any]) -> Model:
    gguf = fields.get("gguf")
    return _known(Model, fields | {"folder": Path(fields["folder"]), "gguf": Path(gguf) if gguf else None})


def _bytes(given: Any) -> tuple[int, ...] | None:
    return None if given is None else tuple(given)


def _logprobs(given: Any) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(
            one["token"],
            one["logprob"],
            tuple((token, logprob, _bytes(data)) for token, logprob, data in one.get("top", ())),
            _bytes(one.get("bytes")),
        )
        for one in given
    )
