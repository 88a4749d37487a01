"""JSON that may be large, read so that it delays no other request for long.

One decoding call holds the interpreter lock from its start to its end: 60 ms for 4 MB of small objects. Large arrays
are therefore decoded element by element, up to the first error and up to a limit. In between other threads can run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from servers.http.errors import ApiError, bad_request

WINDOW = 256 * 1024  # bytes that are searched in one call
SMALL = 512  # bytes of an object that is skipped in one call
DIRECT = 64 * 1024  # bytes of an array that is decoded in one call
COMMA, QUOTE, BACKSLASH, BRACE = b',"\\{'
LONGEST_NAME = 100  # characters of a field's name in an error
JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
TOO_LONG = "context_length_exceeded"
T = TypeVar("T")
TokenId = Annotated[int, Meta(ge=0)]

_MARK = re.compile(rb'["\[\]{},]')
_SMALL_OBJECT = re.compile(rb'\{[^\[\]{}"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^\[\]{}"]*+)*+\}', re.DOTALL)
_PLACE = re.compile(r" - at `\$(.*)`$")


def decoded(content: bytes, kind: type[T], where: str = "") -> T:
    """JSON as a `kind`; `where` is its place in the body. Raises `ApiError` with the first error."""
    try:
        value: T = _decoder(kind).decode(content)  # type: ignore[arg-type]  # types are hashable
    except msgspec.ValidationError as error:
        raise _invalid(str(error), where, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise bad_request("The body is nested too deeply.") from None
    return value


def refuse_more_values_than(limit: int, content: bytes) -> None:
    """Raises `ApiError` for a body with more commas outside strings and small objects than any prompt needs."""
    windows = range(0, len(content), WINDOW)
    if sum(content.count(b",", start, start + WINDOW) for start in windows) > limit:
        commas = (at for at in _structure(content, 0) if content[at] == COMMA)
        if sum(1 for _ in itertools.islice(commas, limit + 1)) > limit:
            raise bad_request("The body holds more values than the model's context has tokens.", None, TOO_LONG)


def read_array(array: bytes, kind: type[T], limit: int, where: str, too_many: ApiError | None = None) -> list[T]:
    """The elements of a JSON array. Raises `ApiError`, `too_many` where there are more than `limit`."""
    if not array.startswith(b"["):
        raise bad_request(f"`{where}` is an array.", where)
    if len(array) <= DIRECT:
        found: list[T] = decoded(array, list[kind], where)  # type: ignore[valid-type]
    else:
        found = []
        for number, element in enumerate(_elements(array)):
            if number > limit:
                break
            found.append(decoded(element, kind, f"{where}.{number}"))
    if len(found) > limit:
        raise too_many or too_long(limit, where)
    return found


def read_ids(array: bytes, limit: int, where: str) -> list[int]:
    """Token ids. Raises `ApiError`."""
    if array.count(b",") >= limit:
        raise too_long(limit, where)
    return decoded(array, list[TokenId], where)


def too_long(limit: int, where: str) -> ApiError:
    """For a prompt that is not read to its end."""
    message = f"This model's context length is {limit} tokens, and the prompt alone has more."
    return bad_request(message, where, TOO_LONG)


def _elements(array: bytes) -> Iterator[bytes]:
    """The elements of a JSON array that is well formed."""
    begin = depth = 1
    for at in _structure(array, 1):
        match array[at]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
            case 0x5D | 0x7D:  # ] }
                depth -= 1
                if depth == 0 and (last := array[begin:at].strip()):
                    yield last
            case _ if depth == 1:
                yield array[begin:at].strip()
                begin = at + 1


def _structure(content: bytes, at: int) -> Iterator[int]:
    """Where brackets and commas stand, from `at` on, except those in strings and in small flat objects."""
    while at < len(content):
        found = _MARK.search(content, at, at + WINDOW)
        if found is None:
            at += WINDOW
            continue
        at = found.start()
        if content[at] == QUOTE:
            at = _end_of_string(content, at)
        elif content[at] == BRACE and (small := _SMALL_OBJECT.match(content, at, at + SMALL)):
            at = small.end()
        else:
            yield at
            at += 1


def _end_of_string(content: bytes, at: int) -> int:
    """The position after the string that begins at `at`."""
    while (at := content.find(b'"', at + 1)) >= 0:
        escapes = at
        while content[escapes - 1] == BACKSLASH:
            escapes -= 1
        if (at - escapes) % 2 == 0:
            return at + 1
    return len(content)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _invalid(error: str, where: str, kind: Any) -> ApiError:
    """msgspec's message in the words of JSON, with the place in the whole body. Values of the client are left out."""
    what, place = error, ""
    if found := _PLACE.search(error):
        what, place = error[: found.start()], found[1].replace("[", ".").replace("]", "")
    where = f"{where}{place}".strip(".")
    if field := re.match(r"Object (missing required|contains unknown) field `(.*)`", what, re.DOTALL):
        where = f"{where}.{field[2][:LONGEST_NAME]}".strip(".")
        if field[1] == "contains unknown":
            return bad_request(f"There is no field `{where}`.", where)
        return bad_request(f"`{where}` is required.", where)
    if what.startswith("Invalid enum value"):
        (shape,) = get_args(kind) or (kind,)
        hint = get_type_hints(shape).get(where.rpartition(".")[2])
        what = f"Expected one of {', '.join(map(repr, get_args(hint)))}"
    what = re.sub(r"\b(str|int|float|bool)\b", lambda name: JSON_NAMES[name[0]], what)
    return bad_request(f"`{where}`: {what}." if where else f"The body is invalid: {what}.", where or None)
