"""Other clients, unchanged, against a real server: LangChain's chat model, and curl."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from tests.support.servers.served import CHAT, TEXT, RunningServer, body, served

QUESTION = [("system", "Be kind."), ("user", "hi")]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with served("tpot=0.001") as running:
        yield running


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "chunked"])
@pytest.mark.parametrize("characters", [10, 20_000])
@pytest.mark.parametrize("at", [None, 0, 3], ids=["in one segment", "head and body", "in the body"])
def test_an_offer_of_http_2_is_ignored(server: RunningServer, at: int | None, characters: int, chunked: bool) -> None:
    """Java's client makes it with every request to an address without TLS."""
    content = json.dumps(body(2, TEXT, prompt="x" * characters)).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    head += "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAA\r\nContent-Type: application/json\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n" if chunked else f"Content-Length: {len(content)}\r\n\r\n"
    sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content) if chunked else content
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port), timeout=20) as connection:
        for _ in range(2):  # requests on one connection
            if at is None:
                connection.sendall(head.encode() + sent)
            else:
                connection.sendall(head.encode() + sent[:at])
                time.sleep(0.05)
                connection.sendall(sent[at:])
            response = HTTPResponse(connection)
            response.begin()
            assert response.status == 200
            assert json.loads(response.read())["usage"]["prompt_tokens"] == characters


def test_langchain_asks_and_streams(server: RunningServer) -> None:
    from langchain_openai import ChatOpenAI

    settings: dict[str, Any] = {"base_url": f"{server.url}/v1", "api_key": "any", "model": "fake", "max_retries": 0}
    settings |= {"max_tokens": 3, "temperature": 0, "seed": 7, "stream_usage": True}
    model = ChatOpenAI(**settings)
    answer = model.invoke(QUESTION)
    assert answer.content == " the quick brown"
    assert answer.response_metadata["finish_reason"] == "length"
    messages = [{"role": role, "content": text} for role, text in QUESTION]
    tokenized = server.client.post("/tokenize", json={"messages": messages}).json()
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (tokenized["count"], 3)
    pieces: list[Any] = list(model.stream(QUESTION))
    assert len(pieces) > 3
    assert "".join(piece.content for piece in pieces) == " the quick brown"
    assert sum(piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata) == 3


# curl: what a person types.


def curl(program: Callable[[str], str], *arguments: str) -> str:
    command = [program("curl"), "--silent", "--show-error", "--max-time", "30", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_curl_asks(server: RunningServer, program: Callable[[str], str]) -> None:
    url = server.url + CHAT
    answer = json.loads(curl(program, url, "--json", json.dumps(body(3))))
    assert answer["choices"][0]["message"]["content"] == " the quick brown"
    refused = curl(program, url, "--write-out", "\n%{http_code} %{content_type}", "--data", json.dumps(body(3)))
    error, _, status = refused.rpartition("\n")  # without `--json`, curl calls it a form
    assert "application/json" in json.loads(error)["error"]["message"]
    assert status == "415 application/json"


def test_curl_waits_for_100_continue_before_it_sends_a_large_body(
    server: RunningServer, program: Callable[[str], str]
) -> None:
    """`Expect: 100-continue`: a body that is too large is refused, and never sent."""
    large = json.dumps(body(1, messages=[{"role": "user", "content": "x" * 100_000}]))
    asked = ("--http1.1", "--header", "expect: 100-continue", "--expect100-timeout", "20", "--json", "@-")
    written = ("--output", "/dev/null", "--write-out", "%{http_code} %{size_upload}")
    command = [program("curl"), "--silent", "--max-time", "30", server.url + CHAT, *asked, *written]
    done = subprocess.run(command, input=large, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"200 {len(large)}"
    too_large = " " * 5 * 1024 * 1024
    done = subprocess.run(command, input=too_large, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "413 0"
