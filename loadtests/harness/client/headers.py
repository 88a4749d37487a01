"""The user's headers for every request."""

from __future__ import annotations

import re
from collections.abc import Mapping

from enginebench.settings.schema import UserMistake

Headers = tuple[tuple[str, str], ...]

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
OF_THE_BODY = {"content-length", "transfer-encoding"}


def parse_headers(text: str) -> Headers:
    """Read `Name: value` lines. Raises `UserMistake`, without the text, which may be a secret."""
    headers = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not (colon and value and TOKEN.fullmatch(name) and line.isascii() and value.isprintable()):
            raise UserMistake(
                "a header is `Name: value` in printable ASCII without spaces in its name, and several are one a line "
                "or one for each --header."
            )
        if name.lower() in OF_THE_BODY:
            raise UserMistake(f"{name} follows from the body of each request: leave it out.")
        headers.append((name, value))
    return tuple(headers)


def write_headers(headers: Headers) -> str:
    return "\n".join(f"{name}: {value}" for name, value in headers)


def merged_headers(*layers: Mapping[str, str]) -> dict[str, str]:
    """Merge headers; a later one replaces an earlier one of the same name, in upper or lower case."""
    merged = {name.lower(): (name, value) for layer in layers for name, value in layer.items()}
    return dict(merged.values())
