"""JSON that may be large, decoded so that it delays no other request for long.

A call of msgspec holds the interpreter lock from start to end. So large parts of a body are left as raw JSON, arrays of
objects are decoded element by element, and a body with more values than any prompt needs is not decoded at all.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Raw

from servers.http.api_errors import ApiError, bad_request

OTHER_VALUES = 1000  # commas of a body in addition to its prompt's
MAX_NAME = 100  # characters of a client's text in an error
JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
TOO_LONG = "context_length_exceeded"
T = TypeVar("T")

_PLACE = re.compile(r" - at `\$(.*)`$")


def decoded(content: bytes, kind: type[T], where: str = "") -> T:
    """Decode JSON as a `kind`; `where` is its place in the body. Raises `ApiError` with the first error."""
    try:
        value: T = _decoder(kind).decode(content)  # type: ignore[arg-type]  # types are hashable
    except msgspec.ValidationError as error:
        raise _invalid(str(error), where, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise bad_request("The body is nested too deeply.") from None
    return value


def decoded_array(array: bytes, kind: type[T], where: str) -> list[T]:
    """Decode an array. Raises `ApiError` with the first error."""
    if not array.startswith(b"["):
        raise bad_request(f"`{where}` must be an array.", where)
    elements = decoded(array, list[Raw], where)
    return [decoded(bytes(element), kind, f"{where}.{number}") for number, element in enumerate(elements)]


def refuse_too_many_values(content: bytes, context_length: int) -> None:
    """Raise `ApiError` by the number of commas: a token id has one, a message two, and text fewer than tokens."""
    if (commas := content.count(b",")) > context_length + OTHER_VALUES:
        message = (
            f"The body has {commas} commas, more than a prompt for this model's context of {context_length} tokens."
        )
        raise bad_request(message, None, TOO_LONG)


def too_long(limit: int, where: str) -> ApiError:
    """Build the error for a prompt that is not read to its end."""
    message = f"This model's context length is {limit} tokens, and the prompt alone has more."
    return bad_request(message, where, TOO_LONG)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _invalid(error: str, where: str, kind: Any) -> ApiError:
    """Return msgspec's message in JSON's terms, with the place in the whole body. The client's values are left out."""
    message, place = error, ""
    if match := _PLACE.search(error):
        message, place = error[: match.start()], match[1].replace("[", ".").replace("]", "")
    where = f"{where}{place}".strip(".")
    if field := re.match(r"Object (missing required|contains unknown) field `(.*)`", message, re.DOTALL):
        where = f"{where}.{field[2][:MAX_NAME]}".strip(".")
        if field[1] == "contains unknown":
            return bad_request(f"There is no field `{where}`.", where)
        return bad_request(f"`{where}` is required.", where)
    if message.startswith("Invalid enum value"):
        hint = get_type_hints(kind).get(where.rpartition(".")[2])
        message = f"Expected one of {', '.join(map(repr, get_args(hint)))}"
    message = re.sub(r"\b(str|int|float|bool)\b", lambda name: JSON_NAMES[name[0]], message)
    return bad_request(f"`{where}`: {message}." if where else f"The body is invalid: {message}.", where or None)
