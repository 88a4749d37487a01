"""The address of a server under test, and the addresses of its pages and endpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.authentication import KEY_VARIABLE
from loadtests.harness.client.dialects.endpoints import Endpoint

VERSION = r"/v\d+(?:\.\d+)*(?:(?:alpha|beta|preview|rc)\d*)?"
VERSIONED = re.compile(rf"(.*){VERSION}(?:/(?:.*/)?(?:openai|openapi|compat))?", re.I)
"""A base path that ends in the API's version, or in `/openai` after the version (Gemini, Vertex AI, Cloudflare)."""
ENDPOINT = re.compile(r"(.*?)(/chat/completions|/completions|/responses|/messages|/model/[^/]+/converse(?:-stream)?)/*")
OF_ENDPOINT: Mapping[str, Endpoint] = {"completions": "completions", "responses": "responses", "messages": "messages"}
SECRET = re.compile(r"(key|token|secret|passw(or)?d|pwd|sig|signature|credentials?)$", re.I)
HOST = re.compile(r"[\w.:%~-]+", re.ASCII)
UNQUOTED = "/%:@!$&'()*+,;=~?"  # characters of a path or a query that are not escaped


def with_scheme(url: str) -> str:
    """Return `http://127.0.0.1:8000` for `127.0.0.1:8000`, and `https://` for `HTTPS://`."""
    scheme, separator, rest = url.strip().partition("://")
    return f"{scheme.lower()}://{rest}" if separator else f"http://{scheme}"


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address.

    `root` is the prefix of the server's own paths, such as /metrics, and `base` that of the API's paths, such as
    /models, with the API's version. `query` is added to each. The full address of an endpoint has its path and query in
    `full`, and its API in `endpoint`.
    """

    host: str
    port: int
    tls: bool
    root: str
    base: str
    query: str = ""
    full: str | None = None
    endpoint: Endpoint | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a server's origin, with an optional path before `/v1`; a base URL of the API's clients, which ends in a
        version; or the full address of an endpoint, such as `/v1/chat/completions`, with its query. Raises
        `UserMistake`."""
        if "@" in re.split("[/?#]", url.partition("://")[2])[0]:
            raise UserMistake(f"an address with a password would appear in reports: set {KEY_VARIABLE} instead.")
        no_address = f"`{url}` is not a server's address; give one such as http://127.0.0.1:8000."
        try:
            parts = urlsplit(url)
        except ValueError:  # an IPv6 address with a single bracket
            raise UserMistake(no_address) from None
        try:
            port = parts.port
        except ValueError:
            port = 0
        if port == 0:
            raise UserMistake(f"the port in `{url}` is not a number from 1 to 65535.")
        host = _ascii(parts.hostname or "")
        if parts.scheme not in {"http", "https"} or not HOST.fullmatch(host):
            raise UserMistake(no_address)
        if parts.fragment:
            raise UserMistake(f"`{url}` has a part after #, which is never sent to a server: leave it out.")
        if any(SECRET.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
            raise UserMistake("an address with a key in it would appear in reports: send it by --header instead.")
        tls = parts.scheme == "https"
        place = (host, port or (443 if tls else 80), tls)
        path, query = (quote(part, safe=UNQUOTED) for part in (parts.path, f"?{parts.query}" if parts.query else ""))
        if match := ENDPOINT.fullmatch(path):
            base, name = match[1], match[2].rpartition("/")[2]
            endpoint = "chat" if match[2].startswith("/chat/") else OF_ENDPOINT.get(name, "bedrock")
            root = _root(base)
            return cls(*place, base if root is None else root, base, query, path + query, endpoint)
        base = re.sub("//+", "/", path).rstrip("/")
        if (root := _root(base)) is not None:
            return cls(*place, root, base, query)
        if (root := _root(without := base.removesuffix("/models").rstrip("/"))) is not None:
            return cls(*place, root, without, query)
        return cls(*place, base, f"{base}/v1", query)

    def target(self, path: str) -> str:
        """Return the path and query of a request for `path`, such as /v1/models or /metrics."""
        before = f"{self.base}{path.removeprefix('/v1')}" if path.startswith("/v1/") else f"{self.root}{path}"
        return before + self.query

    def target_of_model(self, path: str) -> str:
        """Return the path and query of the tested endpoint, from its full address if the user gave it."""
        return self.full or self.target(path)

    def check(self, endpoint: Endpoint) -> None:
        """Raise `UserMistake` for the full address of an endpoint that is not the tested one."""
        if self.endpoint not in {None, endpoint}:
            raise UserMistake(
                f"{self.origin}{self.full} is an address of --endpoint {self.endpoint}, and {endpoint} is tested: give "
                "that option, or the address up to the API's version."
            )

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """Return the value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def _ascii(host: str) -> str:
    """Return the name in DNS; empty if it has none."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return ""


def _root(base: str) -> str | None:
    """Return the part of a base path before the API's version; `None` without a version."""
    match = VERSIONED.fullmatch(base)
    return None if match is None else match[1]


def is_same_server(url: str, second_url: str) -> bool:
    """Return whether both addresses have the same scheme, host and port. Raises `UserMistake` for an invalid `url`."""
    first = Address.parse(url)
    try:
        second = Address.parse(second_url)
    except UserMistake:
        return False
    return (first.host, first.port, first.tls) == (second.host, second.port, second.tls)
