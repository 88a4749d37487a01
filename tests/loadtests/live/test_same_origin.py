"""Who may ask for Locust's page and for the exporter's: browsers on this machine, and no other site in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from loadtests.harness.live.same_origin import SameOrigin

OWN = "127.0.0.1:8089"
NAMES = "Open this page as localhost, by an IP address, or by a host name that --name sets."
FOREIGN = "Another web site requested this page: type its address into the browser instead."


def shared(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Access-Control-Allow-Origin", "*")])
    return [b"yes"]


def ask(bound: str = "127.0.0.1", name: str = "", scheme: str = "http", **headers: str) -> tuple[str, str]:
    """Status and text."""
    statuses: list[str] = []

    def start_response(status: str, sent: list[tuple[str, str]]) -> None:
        statuses.append(status)
        assert not any(header.startswith("Access-Control") for header, _ in sent)

    environ = {f"HTTP_{header.upper()}": value for header, value in headers.items()}
    parts = SameOrigin(shared, bound, "--name", name)(
        {"wsgi.url_scheme": scheme, "REQUEST_METHOD": "GET"} | environ, start_response
    )
    return statuses[0][:3], b"".join(parts).decode().strip()


@pytest.mark.parametrize(
    ("host", "bound"),
    [
        ("127.0.0.1:8089", "127.0.0.1"),
        ("127.8.8.8:8089", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("LOCALHOST.:8089", "127.0.0.1"),
        ("page.localhost:8089", "127.0.0.1"),
        ("[::1]:8089", "::1"),
        ("host.docker.internal:9646", "127.0.0.1"),
        ("192.168.1.9:8089", ""),
        ("[fd00::1]:8089", "::"),
        ("load:9646", "0.0.0.0"),
        ("bench.example.com:8089", "bench.example.com"),
    ],
)
def test_own_names(host: str, bound: str) -> None:
    assert ask(bound, host=host) == ("200", "yes")
    assert ask(bound, host=host, origin=f"http://{host}", sec_fetch_site="same-origin") == ("200", "yes")


@pytest.mark.parametrize("name", ["bench.example.com", "https://bench.example.com:8089/", "Bench.Example.com:1"])
def test_a_name_that_is_given(name: str) -> None:
    assert ask("", name, host="bench.example.com:8089") == ("200", "yes")
    assert ask("", name, host="other.example.com:8089") == ("403", NAMES)


@pytest.mark.parametrize("bound", ["127.0.0.1", "localhost", "::1", "", "0.0.0.0"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8089", "127.0.0.1.evil.example:8089", "127.0.0.1.nip.io", "localhost.evil.example",
     "localhost@evil.example", "evil.example/localhost", "localhost,evil.example", "localhost:8089:evil.example",
     "[::1].evil.example", ""],
)  # fmt: skip
def test_foreign_names(host: str, bound: str) -> None:
    assert ask(bound, host=host) == ("403", NAMES)


@pytest.mark.parametrize("host", ["192.168.1.9:8089", "203.0.113.9", "[fd00::1]", "load:9646"])
def test_a_page_on_loopback_has_no_other_address(host: str) -> None:
    assert ask(host=host) == ("403", NAMES)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8089"},
        {"origin": "http://127.0.0.1:8089.evil.example"},
        {"origin": "http://127.0.0.1:8089,https://evil.example"},
        {"origin": "http://localhost:8089"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "same-origin,cross-site"},
        {"sec_fetch_site": "cross-site", "origin": "http://127.0.0.1:8089"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        {"referer": "https://evil.example/page"},
        {"referer": "http://127.0.0.1:8089@evil.example/"},
        {"referer": "http://[x"},
        {"referer": "evil"},
        {"upgrade": "websocket", "connection": "Upgrade", "origin": "https://evil.example"},
    ],
    ids=str,
)
def test_foreign_sites(headers: dict[str, str]) -> None:
    assert ask(host=OWN, **headers) == ("403", FOREIGN)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin", "referer": "http://127.0.0.1:8089/?tab=tokens"},
        {"origin": "HTTP://127.0.0.1:8089"},
    ],
    ids=str,
)
def test_the_page_itself_and_programs(headers: dict[str, str]) -> None:
    assert ask(host=OWN, **headers) == ("200", "yes")


def test_a_page_behind_tls() -> None:
    assert ask(scheme="https", host="localhost", origin="https://localhost") == ("200", "yes")
    assert ask(scheme="https", host="localhost", origin="http://localhost") == ("403", FOREIGN)
