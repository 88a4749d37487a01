"""Responses of a real server to good, odd and bad requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.servers.served import CHAT, TEXT, RunningServer, body, served

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with served() as running:
        yield running


@pytest.fixture(scope="module")
def slow() -> Iterator[RunningServer]:
    """0.2 s to the first token, 20 ms for each after it."""
    with served("ttft=0.2", "tpot=0.02") as running:
        yield running


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    *parts, end = response.text.split("\n\n")
    assert end == ""
    assert parts.pop() == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def refusal(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a refused request: JSON in OpenAI's shape, whatever went wrong."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in error["message"]
    return error


# Good requests.


def test_streamed_and_whole_answers_say_the_same(server: RunningServer) -> None:
    for path in (CHAT, TEXT):
        whole = server.ask(9, path).json()
        chunks = events(server.ask(9, path, stream=True))
        if path == CHAT:
            text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
            assert text == whole["choices"][0]["message"]["content"]
            assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
        else:
            text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
            assert text == whole["choices"][0]["text"]
        assert text.split() == ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
        assert chunks[-1]["usage"] == whole["usage"]
        assert whole["usage"]["completion_tokens"] == 9
        assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
        assert chunks[-1]["system_fingerprint"] == whole["system_fingerprint"]


def test_usage_counts_the_prompt_as_tokenize_does(server: RunningServer) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße!"}]
    counted = server.client.post("/tokenize", json={"messages": messages}).json()
    answer = server.ask(2, messages=messages).json()
    assert answer["usage"]["prompt_tokens"] == counted["count"] == len(counted["tokens"])
    counted = server.client.post("/tokenize", json={"prompt": "Grüße!"}).json()
    assert counted["count"] == len("Grüße!".encode())
    assert counted["max_model_len"] == server.client.get("/v1/engine").json()["context_length"]
    assert server.ask(2, TEXT, prompt="Grüße!").json()["usage"]["prompt_tokens"] == counted["count"]


def test_timing_tells_where_the_time_went(slow: RunningServer) -> None:
    for stream in (False, True):
        response = slow.ask(6, stream=stream)
        timing = events(response)[-1]["timing"] if stream else response.json()["timing"]
        assert set(timing) == {"queue", "prefill", "decode"}
        assert timing["queue"] >= 0
        assert timing["prefill"] >= 0.2
        # Five gaps of 20 ms: each token is due from the start, so that a late first one shortens what follows, by all
        # of it on a busy machine.
        assert timing["decode"] >= 0
        assert timing["prefill"] + timing["decode"] >= 0.299
        assert sum(timing.values()) <= response.elapsed.total_seconds()
        header = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
        assert float(header["prefill"]) == pytest.approx(1e3 * timing["prefill"], abs=0.01)  # milliseconds, by W3C
        assert ("decode" in header) is (not stream)


def test_the_answer_streams_as_it_is_made(slow: RunningServer) -> None:
    with slow.client.stream("POST", CHAT, json=body(10, stream=True)) as response:
        reads = list(response.iter_raw())
    assert len(reads) >= 5, "tokens 20 ms apart arrive apart"


def test_stop_strings_and_min_tokens(server: RunningServer) -> None:
    answer = server.ask(50, stop=[" fox", "never"]).json()
    assert answer["choices"][0]["message"]["content"] == " the quick brown"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert server.ask(50, stop=" lazy").json()["choices"][0]["message"]["content"].endswith(" over the")
    longer = server.ask(50, stop=[" fox"], min_tokens=8).json()
    assert longer["usage"]["completion_tokens"] > 8
    assert longer["choices"][0]["message"]["content"].startswith(" the quick brown fox jumps")
    assert longer["choices"][0]["finish_reason"] == "stop"


def test_a_chat_may_go_on_to_the_end_of_the_context(server: RunningServer) -> None:
    context = server.client.get("/v1/engine").json()["context_length"]
    question = {"messages": [{"role": "user", "content": "hi"}], "stop": [" lazy"]}
    assert server.client.post(CHAT, json=question).json()["choices"][0]["finish_reason"] == "stop"
    answer = server.client.post(TEXT, json={"prompt": "x" * (context - 3), "temperature": 0, "max_tokens": 3})
    assert answer.json()["usage"]["total_tokens"] == context


def test_sixteen_tokens_are_openais_default_for_a_completion(server: RunningServer) -> None:
    assert server.client.post(TEXT, json={"prompt": "hi"}).json()["usage"]["completion_tokens"] == 16


def test_what_a_server_says_about_itself(server: RunningServer) -> None:
    models = server.client.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["fake"]
    assert server.client.get("/v1/models/").json() == models
    assert server.client.get("/v1/models/fake").json() == models["data"][0]
    refusal(server.client.get("/v1/models/other"), 404)
    engine = server.client.get("/v1/engine").json()
    assert (engine["name"], engine["batching"], engine["options"]["tpot"]) == ("fake", "continuous", 0.0)
    assert server.client.get("/health").json() == {"status": "ok", "engine": "fake", "state": "ready"}
    assert server.client.get("/ready").status_code == 200


@pytest.mark.parametrize(
    "field",
    [
        {"n": 1},
        {"user": "somebody", "metadata": {"a": "b"}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}},
        {"response_format": {"type": "text"}, "tools": [], "tool_choice": "none"},
        {"seed": 7, "top_p": 0.5, "temperature": 1},
        {"top_p": 1e-50, "temperature": 1},
        {"top_p": -0.0, "temperature": 5e-324},
        {"seed": -(2**63), "temperature": 2},
        {"stop": "b" * 256},
        {"model": None, "stop": None, "stream": None, "max_tokens": None, "max_completion_tokens": 4},
        {
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
            ]
        },
        {"stop": ["a", "b", "c", "d"]},
        {"ignore_eos": True, "min_tokens": 2},
        {"max_tokens": 4, "max_completion_tokens": 4},
        {"top_k": -1, "repetition_penalty": 1.0},
        {"verbosity": "medium", "reasoning_effort": "none", "prompt_cache_options": {"mode": "implicit"}},
        dict.fromkeys(("audio", "moderation", "prediction", "web_search_options")),
    ],
    ids=lambda field: ", ".join(field),
)
def test_accepted(field: dict[str, Any], server: RunningServer) -> None:
    response = server.ask(4, **field)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/v1/models", "/v1/models/fake", "/v1/engine"])
def test_head_is_get_without_the_body(path: str, server: RunningServer) -> None:
    head, get = server.client.head(path), server.client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"") == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


def test_http_1_0(server: RunningServer) -> None:
    """A chunked body is read. A stream would have to be chunked, which such a client cannot be expected to read."""
    for stream in (False, True):
        content = json.dumps(body(4, stream=stream)).encode()
        with server.connect() as connection:
            connection.sendall(f"POST {CHAT} HTTP/1.0\r\nContent-Type: application/json\r\n".encode())
            connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))
            head, _, document = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        if stream:
            assert b" 400 " in head
            assert "HTTP/1.1" in json.loads(document)["error"]["message"]
        else:
            assert b" 200 " in head
            assert json.loads(document)["usage"]["completion_tokens"] == 4


def test_the_scrape_knows_its_format(server: RunningServer) -> None:
    assert server.client.get("/metrics").headers["content-type"].startswith("text/plain")
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    openmetrics = server.client.get("/metrics", headers=accept)
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


# Bad requests.


@pytest.mark.parametrize(
    ("path", "field", "param", "words"),
    [
        pytest.param(CHAT, {"temperature": "hot"}, "temperature", "number", id="a word for a number"),
        pytest.param(CHAT, {"temperature": 3}, "temperature", "2", id="too hot"),
        pytest.param(CHAT, {"max_tokens": "5"}, "max_tokens", "integer", id="a number in quotes"),
        pytest.param(CHAT, {"max_tokens": 0}, "max_tokens", "1", id="no tokens"),
        pytest.param(CHAT, {"max_completion_tokens": 5}, "max_tokens", "differ", id="two limits"),
        pytest.param(CHAT, {"messages": []}, "messages", "1", id="no messages"),
        pytest.param(CHAT, {"messages": [{"role": "me", "content": "x"}]}, "messages.0.role", "user", id="odd role"),
        pytest.param(
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages.0.content.0.type",
            "'text'",
            id="an image",
        ),
        pytest.param(CHAT, {"n": 2}, "n", "not supported", id="two answers"),
        pytest.param(CHAT, {"n": True}, "n", "not supported", id="true is not one"),
        pytest.param(CHAT, {"response_format": {"type": "json_object"}}, "response_format", "not supported", id="JSON"),
        pytest.param(CHAT, {"tools": [{"type": "function"}]}, "tools", "not supported", id="tools"),
        pytest.param(CHAT, {"frequency_penalty": 0.5}, "frequency_penalty", "not supported", id="a penalty"),
        pytest.param(CHAT, {"reasoning_effort": "low"}, "reasoning_effort", "not supported", id="reasoning"),
        pytest.param(CHAT, {"temprature": 1}, "temprature", "no field", id="a typing error"),
        pytest.param(CHAT, {"stop": ["a", "b", "c", "d", "e"]}, "stop", "4", id="five stop strings"),
        pytest.param(CHAT, {"stop": [""]}, "stop", "character", id="an empty stop string"),
        pytest.param(CHAT, {"stop": ["a", "b" * 257]}, "stop", "1 to 256 characters", id="a long stop string"),
        pytest.param(CHAT, {"top_p": -1e-9}, "top_p", "0", id="less than no nucleus"),
        pytest.param(CHAT, {"top_p": 1.0000001}, "top_p", "1", id="more than the whole nucleus"),
        pytest.param(CHAT, {"temperature": 2.0000001}, "temperature", "2", id="a little too hot"),
        pytest.param(CHAT, {"min_p": 5e-324}, "min_p", "not supported", id="the smallest min_p"),
        pytest.param(CHAT, {"top_k": 10**30}, "top_k", "not supported", id="a huge top_k"),
        pytest.param(CHAT, {"logit_bias": {"5": 1e308}}, "logit_bias", "not supported", id="a huge bias"),
        pytest.param(CHAT, {"seed": 2**63}, "seed", "", id="a seed of 65 bits"),
        pytest.param(CHAT, {"max_tokens": 10**30}, "messages", "context length", id="a huge limit"),
        pytest.param(CHAT, {"max_tokens": 10**4300 - 1}, "messages", "context length", id="a limit without a text"),
        pytest.param(CHAT, {"logprobs": True}, "logprobs", "does not support", id="what the engine cannot do"),
        pytest.param(CHAT, {"top_logprobs": 2}, "top_logprobs", "logprobs", id="alternatives of nothing"),
        pytest.param(CHAT, {"min_tokens": 9}, "min_tokens", "more than", id="at least more than at most"),
        pytest.param(CHAT, {"stream_options": {}}, "stream_options", "stream", id="stream options without a stream"),
        pytest.param(CHAT, {"timeout": 0}, "timeout", "0", id="no time at all"),
        pytest.param(TEXT, {"prompt": ""}, "prompt", "empty", id="an empty prompt"),
        pytest.param(TEXT, {"prompt": []}, "prompt", "empty", id="no token ids"),
        pytest.param(TEXT, {"prompt": [1, 256]}, "prompt", "vocabulary of 256", id="an unknown token"),
        pytest.param(TEXT, {"prompt": [-1]}, "prompt", "", id="a negative token"),
        pytest.param(
            TEXT,
            {"echo": True, "logprobs": 1, "prompt": "a b"},
            "echo",
            "no log-probabilities of given tokens",
            id="log probabilities of a prompt",
        ),
        pytest.param(TEXT, {"best_of": 3}, "best_of", "not supported", id="best of three"),
    ],
)
def test_refused_with_the_field_and_a_reason(
    path: str, field: dict[str, Any], param: str, words: str, server: RunningServer
) -> None:
    error = refusal(server.ask(4, path, **field), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] is not None
    assert error["param"].startswith(param)
    assert words in error["message"]


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        pytest.param(b"{", JSON, 400, id="half a document"),
        pytest.param(b"", JSON, 400, id="nothing"),
        pytest.param(b"[]", JSON, 400, id="a list"),
        pytest.param(b'{"messages": [{"role": "user", "content": "\\ud800"}]}', JSON, 400, id="half a character"),
        pytest.param(b'{"temperature": NaN, "prompt": "x", "messages": []}', JSON, 400, id="not a number"),
        pytest.param(b"[" * 100_000, JSON, 400, id="a tower of brackets"),
        pytest.param(b"\xff\xfe", JSON, 400, id="not UTF-8"),
        pytest.param(b'{"messages": [], "n": 1e400}', JSON, 400, id="too large a number"),
        pytest.param(b'{"messages": [{"role": "user", "audio": "\xff"}]}', JSON, 400, id="no text"),
        pytest.param(b"{}", {"content-type": "text/plain"}, 415, id="plain text"),
        pytest.param(b"{}", {}, 415, id="no content type"),
        pytest.param(b"{}", JSON | {"content-encoding": "gzip"}, 415, id="compressed"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize"])
def test_invalid_bodies(path: str, content: bytes, headers: dict[str, str], status: int, server: RunningServer) -> None:
    error = refusal(server.client.post(path, content=content, headers=headers), status)
    assert error["type"] == "invalid_request_error"


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(server: RunningServer) -> None:
    error = refusal(server.ask(200_000), 400)
    assert error["code"] == "context_length_exceeded"
    assert "131072" in error["message"]
    assert "200019" in error["message"]  # 19 bytes of rendered prompt
    assert refusal(server.ask(1, TEXT, prompt="x" * 131_072), 400)["code"] == "context_length_exceeded"


def test_an_unknown_model_is_refused_with_the_name_of_the_served_one(server: RunningServer) -> None:
    error = refusal(server.ask(1, model="gpt-4"), 404)
    assert error["code"] == "model_not_found"
    assert "`fake`" in error["message"]


def test_an_unknown_path_and_method(server: RunningServer) -> None:
    message = refusal(server.client.get("/nowhere"), 404)["message"]
    assert all(path in message for path in ("/nowhere", CHAT, TEXT, "/v1/models"))
    response = server.client.get(CHAT)
    refusal(response, 405)
    assert response.headers["allow"] == "POST"


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: RunningServer) -> None:
    large = b'{"prompt": "' + b"x" * (5 * 1024 * 1024) + b'"}'
    announced = refusal(server.client.post(TEXT, content=large, headers=JSON), 413)
    without_length = refusal(server.client.post(TEXT, content=iter([large]), headers=JSON), 413)
    assert announced["message"] == without_length["message"]
    assert "limit of 4194304 bytes" in announced["message"]


def test_the_connection_survives_a_refusal(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url, limits=httpx.Limits(max_connections=1)) as client:
        for _ in range(3):
            assert client.post(CHAT, json={}).status_code == 400
            assert client.post(CHAT, json=body()).status_code == 200
