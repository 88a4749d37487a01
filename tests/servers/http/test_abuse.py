"""Hostile and broken clients: what they can do to a server, and how it responds."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.support.servers.served import CHAT, Served, body, served, served_with, until

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def impatient() -> Iterator[Served]:
    """A server with short limits."""
    limits = {"header_timeout": 0.3, "body_timeout": 0.3, "keep_alive": 1, "write_timeout": 0.5}
    with served_with(**limits, max_body_bytes=2_000, max_header_bytes=4_000, max_output_tokens=1_000_000) as running:
        yield running


@pytest.fixture(scope="module")
def paced() -> Iterator[Served]:
    """10 ms a token, and short limits on headers."""
    with served("tpot=0.01", arguments=("--header-timeout", "0.3", "--max-header-bytes", "4000")) as running:
        yield running


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("\n".join(KEYS))
    with served_with(api_key_file=file) as running:
        yield running


def everything(connection: socket.socket) -> bytes:
    """All data until the server closes the connection."""
    parts = []
    while data := connection.recv(65536):
        parts.append(data)
    return b"".join(parts)


def refusal(raw: bytes) -> tuple[int, str]:
    """Status and sentence of the only response in `raw`."""
    head, _, content = raw.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(content)["error"]["message"]


@pytest.mark.parametrize(
    ("sent", "status", "sentence"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\xfc", 400, "not valid HTTP", id="TLS where none is spoken"),
        pytest.param(b"HELLO\r\n\r\n", 400, "not valid HTTP", id="no HTTP at all"),
        pytest.param(HEAD + b"X: " + b"x" * 5_000 + b"\r\n\r\n", 431, "4000 bytes", id="one large header"),
        pytest.param(HEAD + b"X: y\r\n" * 2_000 + b"\r\n", 431, "4000 bytes", id="many small headers"),
        pytest.param(HEAD + b"X: " + b"x" * 100_000, 431, "4000 bytes", id="a header that never ends"),
        pytest.param(HEAD, 408, "headers did not arrive within 0.3 s", id="headers that never end"),
        pytest.param(HEAD + b"Content-Length: 100\r\n\r\n{", 408, "body did not arrive", id="a body that never ends"),
    ],
)
def test_broken_requests_get_json_and_the_connection_is_closed(
    sent: bytes, status: int, sentence: str, impatient: Served
) -> None:
    with impatient.connect() as connection:
        connection.sendall(sent)
        got, message = refusal(everything(connection))
    assert got == status
    assert sentence in message


def test_a_trickle_of_headers_does_not_hold_a_connection(impatient: Served) -> None:
    with impatient.connect() as connection:
        connection.sendall(HEAD)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            _trickle(connection)


def _trickle(connection: socket.socket) -> None:
    for _ in range(200):
        connection.sendall(b"X: y\r\n")
        time.sleep(0.05)


def test_idle_connections_are_closed_with_and_without_earlier_requests(impatient: Served) -> None:
    with impatient.connect() as silent, impatient.connect() as asked:
        asked.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in everything(asked)
        assert everything(silent) == b""


def test_bytes_that_begin_no_request_do_not_keep_a_connection(impatient: Served) -> None:
    """Empty lines before a request are allowed, and are no request."""
    began = time.monotonic()
    with impatient.connect() as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while time.monotonic() - began < 10:
            connection.sendall(b"\r\n")
            time.sleep(0.2)
    assert time.monotonic() - began < 5, "the limit is 1 s"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b"GET /health HTTP/1.1\r\nX: ", id="headers that never end"),
        pytest.param(b"GET /health HTTP/1.1\r\nX: " + 5_000 * b"x", id="headers that are too large"),
        pytest.param(b"\x16\x03\x01\x02\x00", id="no HTTP"),
    ],
)
def test_a_later_request_that_is_refused_does_not_break_into_a_running_stream(more: bytes, paced: Served) -> None:
    content = json.dumps(body(100, stream=True)).encode()
    with paced.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        answer = connection.recv(65536)
        connection.sendall(more)
        answer += everything(connection)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.count(b'"content":" ') == 100
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_body_that_is_larger_than_announced_or_unannounced(impatient: Served) -> None:
    with impatient.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 999999999\r\nConnection: close\r\n\r\n")
        assert refusal(everything(connection))[0] == 413
    with impatient.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        connection.sendall(b"bb8\r\n" + b" " * 3_000 + b"\r\n0\r\n\r\n")
        assert refusal(everything(connection))[0] == 413


def test_a_body_that_has_not_arrived_when_the_server_stops_is_refused() -> None:
    with served() as server, server.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        time.sleep(0.2)
        assert server.stop() == 0
        status, message = refusal(everything(connection))
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()
    assert (status, message) == (503, "The server is shutting down.")


def test_a_client_that_does_not_read_is_disconnected_and_holds_no_slot(impatient: Served) -> None:
    def cut_off() -> float:
        return impatient.metric("requests_total", endpoint="chat", outcome="cancelled") or 0

    content, before = json.dumps(body(130_000, stream=True)).encode(), cut_off()
    with impatient.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        until(lambda: (impatient.metric("generation_tokens_total") or 0) > 0, "it has begun")
        until(lambda: impatient.metric("requests_running") == 0, "its slot is free")
        until(lambda: cut_off() == before + 1, "it was disconnected")


def test_pipelined_requests_are_answered_in_order(impatient: Served) -> None:
    with impatient.connect() as connection:
        requests = []
        for tokens in (3, 1):
            content = json.dumps(body(tokens)).encode()
            requests.append(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        connection.sendall(b"".join(requests))
        answers = everything(connection).decode()
    assert answers.count("HTTP/1.1 200 OK") == 2
    assert answers.index(" the quick brown") < answers.rindex(' the"')


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_is_stopped_when_its_client_leaves_with_others_behind_it(stream: bool, paced: Served) -> None:
    def counts() -> list[float]:
        names = ("cancelled", "engine_error", "ok")
        return [paced.metric("requests_total", endpoint="chat", outcome=name) or 0 for name in names]

    before, tokens = counts(), paced.metric("generation_tokens_total") or 0
    first, second = (json.dumps(body(count, stream=stream)).encode() for count in (500, 1))
    with paced.connect() as connection:
        for content in (first, second):
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
            until(lambda: (paced.metric("generation_tokens_total") or 0) > tokens, "the first has begun")
    until(lambda: paced.metric("requests_running") == 0, "its slot is free")
    until(lambda: counts() == [before[0] + 1, *before[1:]], "the first was cancelled, the second never began")
    assert (paced.metric("generation_tokens_total") or 0) < tokens + 400


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux lets one process limit another")
def test_more_connections_than_descriptors_are_survived() -> None:
    with served() as server, contextlib.ExitStack() as crowd:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        for _ in range(100):
            crowd.enter_context(server.connect())
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url + "/health", timeout=2)
        crowd.close()
        until(lambda: not _asks_in_vain(server), "it answers again")


def _asks_in_vain(server: Served) -> bool:
    try:
        return server.ask().status_code != 200
    except httpx.HTTPError:
        return True


# Keys.


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fake", "/v1/engine"])
def test_descriptions_need_a_key(path: str, locked: Served) -> None:
    refused = locked.client.get(path)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    for key in KEYS:
        assert locked.client.get(path, headers={"authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(None, id="none"),
        pytest.param("Bearer wrong", id="a wrong key"),
        pytest.param("Bearer", id="an empty key"),
        pytest.param("Bearer first-ke", id="the beginning of a key"),
        pytest.param("Basic first-key", id="another scheme"),
        pytest.param("first-key", id="no scheme"),
        pytest.param("Bearer first-key second-key", id="two at once"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize"])
def test_requests_need_a_key(path: str, header: str | None, locked: Served) -> None:
    headers = {} if header is None else {"authorization": header}
    refused = locked.client.post(path, json={}, headers=headers)
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert "key" in refused.json()["error"]["message"]
    assert "first-ke" not in refused.text


def test_a_valid_key_is_accepted_and_monitoring_needs_none(locked: Served) -> None:
    headers = {"authorization": f"bearer {KEYS[1]}"}
    assert locked.client.post(CHAT, json=body(), headers=headers).status_code == 200
    for path in ("/health", "/ready", "/metrics"):
        assert locked.client.get(path).status_code == 200
    assert not any(key in locked.client.get("/metrics").text for key in KEYS)


def test_keys_are_neither_logged_nor_inherited() -> None:
    """The log at its most verbose, and the environment of the engine's process."""
    environment = {"ENGINEBENCH_API_KEY": KEYS[0]}
    with served(arguments=("--log-level", "debug"), environment=environment) as server:
        assert server.ask().status_code == 401
        for key, status in ((KEYS[0], 200), (KEYS[1], 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert server.client.post(CHAT, json=body(), headers=headers).status_code == status
        assert not any(KEYS[0] in value for value in server.engine_process().environ().values())
        server.engine_process().kill()
        until(lambda: server.client.get("/ready").status_code == 200, "the engine is back")
        assert server.stop() == 0
        assert server.process.stderr is not None
        said = server.process.stderr.read()
    assert "stopping" in said
    assert "key" not in said


def test_scripts_of_other_sites_cannot_read_answers(locked: Served) -> None:
    """A browser sends a preflight request, and without CORS headers it gives the page no access."""
    origin = {"origin": "https://elsewhere.example"}
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    before_posting = locked.client.options(CHAT, headers=origin | asked)
    assert before_posting.status_code == 405
    for answer in (before_posting, locked.client.get("/health", headers=origin)):
        assert not any(name.startswith("access-control-") for name in answer.headers)


def test_refused_requests_are_counted(locked: Served) -> None:
    before = locked.metric("requests_total", endpoint="chat", outcome="bad_request") or 0
    httpx.post(locked.url + CHAT, json=body())
    assert locked.metric("requests_total", endpoint="chat", outcome="bad_request") == before + 1
