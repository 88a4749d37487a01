"""The engine contract as lines on a pipe, so that an engine may be written in any language.

A child reads JSON objects from its standard input, one per line, and writes JSON objects to its standard output. Its
log goes to standard error. `docs/engine-protocol.md` describes the protocol for authors of engines.

    parent → child   load, generate, cancel, stats
    child  → parent  ready, chunk, done, error, stats

Every `generate` is answered by any number of `chunk`s and then exactly one `done` or `error`, even after a `cancel`.
The end of standard input tells the child to stop. Standard library only: it also runs without our other packages.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
PLAIN: Mapping[str, Any] = {"str": str, "bool": bool, "int": int, "float": int | float}
"""Annotations of fields, and the types that a line may have for them. Other annotations are not checked."""
OBJECTS: Mapping[str, type[Any]] = {
    kind.__name__: kind for kind in (Model, GenerateRequest, Chunk, Usage, EngineInfo, EngineStats)
}
"""Annotations of fields that are nested objects."""


class ProtocolError(Exception):
    """A line that is not a message of this protocol."""


@dataclass(frozen=True, slots=True)
class Load:
    """The first line a child gets. `options` are texts as the user typed them; the child parses them."""

    engine: str
    model: Model | None
    options: Mapping[str, str]
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


ToChild = Load | Generate | Cancel | AskStats
ToParent = Ready | ChunkReady | Done | Failed | Stats


TO_CHILD: Mapping[str, type[Any]] = {
    "load": Load,
    "generate": Generate,
    "cancel": Cancel,
    "stats": AskStats,
}
TO_PARENT: Mapping[str, type[Any]] = {
    "ready": Ready,
    "chunk": ChunkReady,
    "done": Done,
    "error": Failed,
    "stats": Stats,
}
NAMES = {kind: name for names in (TO_CHILD, TO_PARENT) for name, kind in names.items()}
FLAT = {Generate: "request", ChunkReady: "chunk", Stats: "stats"}
"""Messages with a field whose own fields are written among the message's fields."""
ALWAYS = ("version", "tokens")  # fields that are written even at their default


def _dumps(document: dict[str, Any], allow_nan: bool = True) -> bytes:
    return _utf8(json.dumps(document, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":")))


def _utf8(text: str) -> bytes:
    """Encode text; half a surrogate pair, which another server may have sent, becomes a question mark."""
    return text.encode("utf-8", "replace")


def encode(message: ToChild | ToParent, dumps: Callable[[dict[str, Any]], bytes] = _dumps) -> bytes:
    """Return one line, newline included. `dumps` may be a faster JSON writer: a long prompt has 100 000 token ids."""
    fields = _plain(message)
    inner = fields.pop(FLAT.get(type(message), ""), {})
    return dumps({"type": NAMES[type(message)], **fields, **inner}) + b"\n"


def encode_chunk(id: int, chunk: Chunk) -> bytes:
    """Return the line that is written once per token: the same as `encode`, formatted by hand because of its frequency.
    How the answer ends is in the next line.

    Raises `ValueError` for a log-probability that is not a number: the parent would treat the line as broken.
    """
    if chunk.logprobs:
        strict = partial(_dumps, allow_nan=False)
        return encode(ChunkReady(id, dataclasses.replace(chunk, finish_reason=None, usage=None)), strict)
    return b'{"type":"chunk","id":%d,"text":%s,"tokens":%d}\n' % (id, _utf8(quote(chunk.text)), chunk.tokens)


def _plain(value: Any) -> Any:
    """Convert a dataclass to a JSON object without the fields at their default, paths to text."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        return [_plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    plain = {}
    for f in dataclasses.fields(value):
        item = getattr(value, f.name)
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        if f.name in ALWAYS or default is dataclasses.MISSING or item != default:
            plain[f.name] = _plain(item)
    return plain


def decode_to_child(line: bytes) -> ToChild:
    """Decode a line. Raises `ProtocolError`. Unknown fields are ignored, so that a newer parent may send more."""
    return cast(ToChild, _decoded(line, TO_CHILD))


def decode_to_parent(line: bytes) -> ToParent:
    """Decode a line. Raises `ProtocolError`."""
    return cast(ToParent, _decoded(line, TO_PARENT))


def _decoded(line: bytes, kinds: Mapping[str, type[Any]]) -> Any:
    try:
        fields = {"version": 0} | json.loads(line)
        kind = kinds.get(name := fields.pop("type", None))
        if kind is None:
            raise ProtocolError(f"unknown message type {name!r}")
        return _read(kind, fields | {FLAT.get(kind, ""): fields})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"malformed line ({error!r}): {line[:200]!r}") from error


def _read(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Build an object. Raises `TypeError` for a missing or wrong field, `ValueError` for text that is not Unicode."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"{fields!r} is not an object")
    present = [f for f in dataclasses.fields(cast(Any, kind)) if f.name in fields]
    return kind(**{f.name: _value(f.name, cast(str, f.type), fields[f.name]) for f in present})


def _value(name: str, annotation: str, value: Any) -> Any:
    """Convert a JSON value to the type of the field's annotation."""
    plain = annotation.removesuffix(" | None")
    if value is None and plain != annotation:
        return None
    if plain in OBJECTS:
        return _read(OBJECTS[plain], value)
    if plain == "tuple[TokenLogprob, ...]":
        return tuple(_read(TokenLogprob, logprob) for logprob in value)
    if plain.startswith("tuple[tuple["):
        return tuple((token, logprob, data and tuple(data)) for token, logprob, data in value)
    if plain.startswith("tuple["):
        return tuple(value)
    if plain == "Path":
        return Path(value)
    if not isinstance(value, PLAIN.get(plain, object)):
        raise TypeError(f"`{name}` is {annotation}, not {value!r}")
    if isinstance(value, str):
        value.encode()
    return value
