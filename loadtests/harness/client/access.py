"""Authentication of requests: keys, headers, signatures. Keys come from the environment only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.dialects.dialect import Signer
from loadtests.harness.client.dialects.registry import DIALECTS, Endpoint

KEY_VARIABLE = "ENGINEBENCH_API_KEY"
"""Counts before the variable that other clients of the same API read."""

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Access:
    """`headers` go with every request, `signer` makes those that depend on the request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    signer: Signer | None = field(default=None, repr=False)
    insecure: bool = False  # the TLS certificate is not checked
    withheld: str | None = None  # the variable of a key that is not sent, because others could read it on its way


def access_to(
    url: str,
    endpoint: Endpoint,
    headers: Headers,
    insecure: bool,
    environment: Mapping[str, str] = os.environ,
    insecure_key: bool = False,
) -> Access:
    """A key that is meant for the API's usual clients goes to this machine or over TLS only, unless `insecure_key`.

    Raises `UserMistake` where the environment lacks credentials, or has a key that is none.
    """
    dialect = DIALECTS[endpoint]
    variable = KEY_VARIABLE if environment.get(KEY_VARIABLE) else dialect.key_variable
    key = environment.get(variable)
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UserMistake(f"{variable} is not an API key: a key is printable ASCII without spaces.")
    withheld = None
    if key and variable != KEY_VARIABLE and not (insecure_key or _is_private(url)):
        withheld, key = variable, None
    signer = dialect.signer(key, urlsplit(url).hostname or "")
    return Access({**dialect.headers(key), **dict(headers)}, signer, insecure, withheld)


def _is_private(url: str) -> bool:
    """Whether nobody on the way to this address can read what is sent."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
    return local or parts.scheme == "https"


def parse_headers(text: str) -> Headers:
    """`Name: value` lines. Raises `UserMistake`, which does not repeat what may be a secret."""
    headers = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not (colon and value and name.replace("-", "").isalnum() and line.isascii() and value.isprintable()):
            raise UserMistake(
                "a header is `Name: value` in printable ASCII, and several are one a line or one for each --header."
            )
        headers.append((name.title(), value))
    return tuple(headers)


def write_headers(headers: Headers) -> str:
    return "\n".join(f"{name}: {value}" for name, value in headers)
