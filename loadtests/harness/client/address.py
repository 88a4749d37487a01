"""The address of a server under test."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.access import KEY_VARIABLE


def with_scheme(url: str) -> str:
    """`127.0.0.1:8000` is taken as `http://127.0.0.1:8000`, and `HTTPS://` as `https://`."""
    scheme, separator, rest = url.strip().partition("://")
    return f"{scheme.lower()}://{rest}" if separator else f"http://{scheme}"


def origin_of(url: str) -> str:
    """Without what the API's own paths begin with: a base URL as OpenAI's clients take it, ending in `/v1`, is fine
    too, and so is the address of an endpoint such as `/v1/chat/completions`."""
    return re.sub(r"/+v1(/(chat/)?completions|/responses|/messages|/models)?/*$", "", url.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address. `prefix` comes before every path, without a slash at its end."""

    host: str
    port: int
    tls: bool
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """`url` as `origin_of` takes it. Raises `UserMistake`."""
        origin = origin_of(url)
        if "@" in re.split("[/?#]", origin.partition("://")[2])[0]:
            raise UserMistake(f"an address with a password would appear in reports: set {KEY_VARIABLE} instead.")
        no_address = f"`{url}` is not a server's address; give one such as http://127.0.0.1:8000."
        try:
            parts = urlsplit(origin)
        except ValueError:  # a bracket of an IPv6 address without the other one
            raise UserMistake(no_address) from None
        try:
            port = parts.port
        except ValueError:
            port = 0
        if port == 0:
            raise UserMistake(f"the port in `{url}` is not a number from 1 to 65535.")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UserMistake(no_address)
        if parts.query or parts.fragment:
            raise UserMistake(f"`{url}` has a part after ? or #, which requests would not have: leave it out.")
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def is_same_server(url: str, other: str) -> bool:
    """Whether both addresses have one scheme, host and port. Raises `UserMistake` for a `url` that is no address."""
    here = Address.parse(url)
    try:
        there = Address.parse(other)
    except UserMistake:
        return False
    return (here.host, here.port, here.tls) == (there.host, there.port, there.tls)
