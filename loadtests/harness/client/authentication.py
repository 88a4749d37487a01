"""The authentication of requests: keys, headers, signatures. Keys come only from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from enginebench.settings.schema import UserMistake
from enginebench.settings.system import is_loopback
from loadtests.harness.client.dialects.dialect import Signer
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.headers import Headers, merged_headers
from loadtests.harness.client.tls import CHECKED, TlsOptions

KEY_VARIABLE = "ENGINEBENCH_API_KEY"
"""This variable has precedence over the one that other clients of the same API read."""


@dataclass(frozen=True, slots=True)
class Access:
    """`headers` are sent with every request, `signer` makes the headers that depend on the request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    signer: Signer | None = field(default=None, repr=False)
    tls: TlsOptions = CHECKED
    withheld: str | None = None  # the variable of a key that is not sent over plain HTTP


NO_KEY = Access()


def access_to(
    url: str,
    endpoint: Endpoint,
    headers: Headers,
    environment: Mapping[str, str] = os.environ,
    tls: TlsOptions = CHECKED,
) -> Access:
    """Return the headers for a server. A key for the API's usual clients is sent only to this machine or over TLS. A
    user's header replaces the key, and any other header of the same name.

    Raises `UserMistake` if the environment lacks credentials, or has a malformed key.
    """
    dialect, own_headers = DIALECTS[endpoint], dict(headers)
    names = {name.lower() for name in own_headers}
    if any(name.lower() in names for name in dialect.headers("a key").keys() - dialect.headers(None).keys()):
        return Access(merged_headers(dialect.headers(None), own_headers), tls=tls)
    variable = KEY_VARIABLE if environment.get(KEY_VARIABLE) else dialect.key_variable
    key = environment.get(variable)
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UserMistake(f"{variable} is not an API key: a key is printable ASCII without spaces.")
    withheld = None
    parts = urlsplit(url)
    host = parts.hostname or ""
    private = parts.scheme == "https" or is_loopback(host)  # the network cannot read requests to it
    if key and variable != KEY_VARIABLE and not private:
        withheld, key = variable, None
    signer = dialect.signer(key, host)
    return Access(merged_headers(dialect.headers(key), own_headers), signer, tls, withheld)
