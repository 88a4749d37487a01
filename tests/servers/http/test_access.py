"""The key, and requests that are not whole when their client leaves or the server stops."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.servers.served import CHAT, RunningServer, body, served, until

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
KEY = "the-key"


@pytest.fixture(scope="module")
def locked() -> Iterator[RunningServer]:
    with served(environment={"ENGINEBENCH_API_KEY": KEY}) as running:
        yield running


def test_a_body_that_has_not_arrived_when_the_server_stops_is_refused() -> None:
    with served() as server, server.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        time.sleep(0.2)
        assert server.stop() == 0
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"The server is shutting down." in answer


def test_a_client_that_leaves_within_its_body_is_counted_as_cancelled(locked: RunningServer) -> None:
    with locked.connect() as connection:
        connection.sendall(HEAD + f"Authorization: Bearer {KEY}\r\nContent-Length: 100\r\n\r\n{{".encode())
        time.sleep(0.1)
    until(lambda: locked.metric("requests_total", endpoint="chat", outcome="cancelled") == 1, "it is counted")
    assert locked.metric("requests_waiting") == 0


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fake", "/v1/engine"])
def test_descriptions_need_a_key(path: str, locked: RunningServer) -> None:
    refused = locked.client.get(path)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert locked.client.get(path, headers={"authorization": f"Bearer {KEY}"}).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(None, id="none"),
        pytest.param("Bearer wrong", id="a wrong key"),
        pytest.param("Bearer", id="an empty key"),
        pytest.param("Bearer the-ke", id="the beginning of the key"),
        pytest.param("Basic the-key", id="another scheme"),
        pytest.param("the-key", id="no scheme"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize"])
def test_requests_need_a_key(path: str, header: str | None, locked: RunningServer) -> None:
    headers = {} if header is None else {"authorization": header}
    refused = locked.client.post(path, json={}, headers=headers)
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert "key" in refused.json()["error"]["message"]
    assert "the-ke" not in refused.text


def test_the_key_is_accepted_and_monitoring_needs_none(locked: RunningServer) -> None:
    assert locked.client.post(CHAT, json=body(), headers={"authorization": f"bearer {KEY}"}).status_code == 200
    for path in ("/health", "/ready", "/metrics"):
        assert locked.client.get(path).status_code == 200
    assert KEY not in locked.client.get("/metrics").text


def test_the_key_is_neither_logged_nor_inherited() -> None:
    """The log at its most verbose, and the environment of the engine's process."""
    with served(arguments=("--log-level", "debug"), environment={"ENGINEBENCH_API_KEY": KEY}) as server:
        assert server.ask().status_code == 401
        assert server.client.post(CHAT, json=body(), headers={"authorization": f"Bearer {KEY}"}).status_code == 200
        assert not any(KEY in value for value in server.engine_process().environ().values())
        server.engine_process().kill()
        until(lambda: server.client.get("/ready").status_code == 200, "the engine is back")
        assert server.stop() == 0
        assert server.process.stderr is not None
        output = server.process.stderr.read()
    assert "stopping" in output
    assert KEY not in output
