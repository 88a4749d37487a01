"""Protection of Locust's page and the exporter from other web sites in the same browser.

A browser names the site that sends a request in `Origin`, `Referer` and `Sec-Fetch-Site`
(https://www.w3.org/TR/fetch-metadata). A site whose name resolves to this machine (DNS rebinding) is recognised by
`Host`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any

from enginebench.settings.system import is_loopback

HOST = re.compile(r"(?:[a-z]+://)?(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d+)?/?")
ORIGIN = re.compile(r"[a-zA-Z]+://[^/?#]*")
HERE = {"localhost", "host.docker.internal"}  # the second is the host's name in containers
OWN_SITE = {"same-origin", "none"}  # the page itself, and an address that a person has typed

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class SameOrigin:
    """A WSGI application that other web sites can neither control nor read.

    `bound` is the address that it listens on. `name` is a further host name, which a person sets with `option`.
    """

    def __init__(self, application: Application, bound: str, option: str, name: str = "") -> None:
        self._application, self._option = application, option
        self._names = HERE | {_host_in(text) for text in (socket.gethostname(), bound, name)} - {""}
        self._open = not (_host_in(bound) in HERE or is_loopback(_host_in(bound)))

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        refusal = self._refusal(environ)
        if refusal is not None:
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [f"{refusal}\n".encode()]

        def start_unshared(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            kept = [header for header in headers if not header[0].lower().startswith("access-control-")]
            return start_response(status, [*kept, ("X-Frame-Options", "DENY")], *rest)

        return self._application(environ, start_unshared)

    def _refusal(self, environ: dict[str, Any]) -> str | None:
        host = environ.get("HTTP_HOST", "")
        if not self._is_own(_host_in(host)):
            return f"Open this page as localhost, by an IP address, or by a host name that {self._option} sets."
        own = f"{environ['wsgi.url_scheme']}://{host}".lower()
        referer = environ.get("HTTP_REFERER", "")
        match = ORIGIN.match(referer)
        origin = environ.get("HTTP_ORIGIN") or (match[0] if match else referer) or own
        if origin.lower() != own or environ.get("HTTP_SEC_FETCH_SITE", "none") not in OWN_SITE:
            return "Another web site requested this page: type its address into the browser instead."
        return None

    def _is_own(self, host: str) -> bool:
        if host in self._names or host.endswith(".localhost"):
            return True
        try:
            ip_address(host)
        except ValueError:
            return self._open and "." not in host and host != ""  # containers of one network have such names
        return self._open or is_loopback(host)


def _host_in(text: str) -> str:
    """Return the host of an address with or without port, in lower case; empty if the text is no address."""
    match = HOST.fullmatch(text.lower())
    return (match[1] or match[2]).rstrip(".") if match else ""
