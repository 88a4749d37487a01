"""The engine `remote` against our own server with the fake engine behind it, and against servers that misbehave."""

import asyncio
import http.server
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from engines.contract.base import GenerateRequest, Usage
from engines.contract.errors import BadRequest, EngineError, EngineOverloaded, EngineUnavailable
from engines.process.engine_loading import load_engine
from engines.process.stream import Stream
from engines.remote import RemoteEngine, RemoteOptions, _seconds
from tests.support.servers.odd import Odd, OddServer
from tests.support.servers.served import CHAT, TEXT, RunningServer, body, served, until


@pytest.fixture(scope="module")
def upstream() -> Iterator[RunningServer]:
    with served("ttft=0.01", "tpot=0.005") as server:
        yield server


def ask(url: str, *requests: GenerateRequest, **options: str) -> list[tuple[str, int, str | None, Usage | None]]:
    """Text, tokens, finish reason and usage of each, all at the same time."""

    async def one(stream: Stream) -> tuple[str, int, str | None, Usage | None]:
        chunks = [chunk async for ready in stream for chunk in ready]
        text = "".join(chunk.text for chunk in chunks)
        return text, sum(chunk.tokens for chunk in chunks), stream.finish_reason, stream.usage

    async def main() -> list[tuple[str, int, str | None, Usage | None]]:
        engine = load_engine("remote", None, {"url": f"{url}/v1", **options})
        await engine.start()
        try:
            return await asyncio.gather(*(one(engine.generate(request)) for request in requests))
        finally:
            await engine.stop()

    return asyncio.run(main())


def question(tokens: int = 5, **settings: Any) -> GenerateRequest:
    return GenerateRequest("hello", tuple(b"hello"), tokens, **settings)


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_answers_and_counts_are_those_of_the_server(upstream: RunningServer, api: str) -> None:
    path, shape = (TEXT, "text") if api == "completions" else (CHAT, "message")
    asked = {"prompt": "hello"} if api == "completions" else {"messages": [{"role": "user", "content": "hello"}]}
    direct = upstream.client.post(path, json=body(5, path) | asked).json()
    choice = direct["choices"][0]
    ((text, tokens, finish, usage),) = ask(upstream.url, question(), api=api)
    assert text == (choice["text"] if shape == "text" else choice["message"]["content"])
    assert (tokens, finish) == (5, "length")
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (direct["usage"]["prompt_tokens"], 5)
    assert usage.first_token is not None
    assert usage.first_token >= 0.01


async def test_it_tells_what_is_behind_the_server(upstream: RunningServer) -> None:
    engine = load_engine("remote", None, {"url": f"{upstream.url}/v1/"})
    info = await engine.start()
    await engine.stop()
    assert (info.model, info.context_length, info.options["server"]) == ("fake", 131_072, "fake")


def test_a_short_context_is_warmed_up_too(upstream: RunningServer) -> None:
    with served(f"url={upstream.url}/v1", "context=20", engine="remote") as near:
        answer = near.client.post(TEXT, json={"prompt": "hello", "max_tokens": 5}).json()
        assert answer["usage"]["completion_tokens"] == 5


async def test_a_cancel_closes_the_connection_to_the_server(upstream: RunningServer) -> None:
    before = upstream.metric("requests_total", outcome="cancelled", endpoint="completions") or 0
    engine = load_engine("remote", None, {"url": f"{upstream.url}/v1"})
    await engine.start()
    stream = engine.generate(question(10_000))
    await anext(stream)
    stream.cancel()
    await stream.stopped()
    assert stream.finish_reason == "cancelled"
    await asyncio.to_thread(
        until,
        lambda: upstream.metric("requests_total", outcome="cancelled", endpoint="completions") == before + 1,
        "the server notices",
    )
    assert upstream.metric("requests_running") == 0
    await engine.stop()


def test_a_failure_in_the_middle_of_an_answer_is_passed_on() -> None:
    with (
        served("fail_rate=1", "fail_after=3") as server,
        pytest.raises(EngineError, match=r"the server failed: .*was set to fail this request"),
    ):
        ask(server.url, question(10))


def test_a_key_is_needed_where_the_server_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(environment={"ENGINEBENCH_API_KEY": "secret"}) as server:
        with pytest.raises(EngineUnavailable, match="a key is read from ENGINEBENCH_REMOTE_API_KEY"):
            ask(server.url, question())
        monkeypatch.setenv("ENGINEBENCH_REMOTE_API_KEY", "secret")
        assert ask(server.url, question())[0][1] == 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param({}, "remote needs the address of a server: -o url=", id="no address"),
        pytest.param({"url": "http://127.0.0.1:9/v1"}, "does not list its models", id="nobody listens"),
    ],
)
async def test_a_server_that_is_not_there_gets_a_sentence(options: Mapping[str, str], sentence: str) -> None:
    with pytest.raises(EngineUnavailable, match=sentence):
        await load_engine("remote", None, options).start()


def test_a_model_that_is_not_listed_is_refused_with_the_choices(upstream: RunningServer) -> None:
    with pytest.raises(EngineUnavailable, match="has no model `wibble`; it lists fake"):
        ask(upstream.url, question(), name="wibble")


ANSWER = 'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@contextmanager
def answering(
    status: int,
    content: str,
    headers: Mapping[str, str] = {},
    unknown: str = "?",
    connections: list[object] | None = None,
    closing: bool = False,
) -> Iterator[str]:
    """A server that lists one model, and answers every request in this way, except one with the `unknown` field.
    `closing`: it closes a connection silently at the second request on it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.asked = 0
            if connections is not None:
                connections.append(self.client_address)

        def do_GET(self) -> None:
            self._send(200, json.dumps({"data": [{"id": "m", "max_model_len": 4096}]}), {})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.asked += 1
            if closing and self.asked > 1:
                self.close_connection = True
            elif unknown in asked:
                self._send(400, '{"error": {"message": "Use max_completion_tokens instead."}}', {})
            else:
                self._send(status, content, headers)

        def _send(self, status: int, content: str, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Transfer-Encoding": "chunked", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if content:
                self.wfile.write(f"{len(content):x}\r\n{content}\r\n".encode())
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("closing", [False, True], ids=["the server keeps them", "the server closes them silently"])
async def test_connections_are_used_again(closing: bool) -> None:
    """Opening one, with TLS maybe, would be part of every request's time. Some servers close one after a stream."""
    connections: list[object] = []
    with answering(200, ANSWER, connections=connections, closing=closing) as url:
        engine = load_engine("remote", None, {"url": f"{url}/v1"})
        await engine.start()
        for _ in range(3):
            stream = engine.generate(question())
            assert "".join([chunk.text async for ready in stream for chunk in ready]) == "a"
        await engine.stop()
    assert len(connections) == (3 if closing else 1)


UNFINISHED = 'data: {"choices": [{"text": "a", "finish_reason": ""}]}\n\n'
ABORTED = 'data: {"choices": [{"text": "a", "finish_reason": "abort"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("status", "content", "kind", "words"),
    [
        pytest.param(429, '{"error": {"message": "slow down"}}', EngineOverloaded, "slow down", id="overloaded"),
        pytest.param(400, '{"error": {"message": "no such field"}}', BadRequest, "no such field", id="bad request"),
        pytest.param(422, '{"detail": "n is 1"}', BadRequest, "n is 1", id="another form of error"),
        pytest.param(503, "", EngineUnavailable, "answered 503", id="unavailable, without a word"),
        pytest.param(500, "<html>", EngineError, "answered 500", id="broken"),
        pytest.param(200, 'data: {"choices": [{"text": "a"}]}\n\n', EngineError, "without a finish", id="ends early"),
        pytest.param(200, UNFINISHED, EngineError, "without a finish", id="an empty reason is none"),
        pytest.param(200, "data: {nonsense\n\n", EngineError, "is no JSON", id="not JSON"),
        pytest.param(200, "data: 7\n\n", EngineError, "is no object", id="no object"),
        pytest.param(200, ABORTED, EngineError, "ended this answer with `abort`", id="aborted by the server"),
        pytest.param(401, '{"error": {"message": "who?"}}', EngineError, "a key is read from", id="a wrong key"),
        pytest.param(200, 'data: {"error": "CUDA error: x"}\n\n', EngineError, "CUDA error", id="its GPU, not ours"),
    ],
)
def test_what_a_server_says_is_passed_on(status: int, content: str, kind: type[EngineError], words: str) -> None:
    with answering(status, content, {"Retry-After": "7"}) as url, pytest.raises(kind, match=words) as raised:
        ask(url, question())
    assert raised.type is kind
    assert not isinstance(raised.value, EngineOverloaded) or raised.value.retry_after == 7


@pytest.mark.parametrize("after", ["inf", "nan", "-1", "9" * 400, "²", "Mon, 23 Nov 2026 08:00:00 GMT"])
def test_a_wait_that_is_no_duration_is_left_out(after: str) -> None:
    assert _seconds(after) is None


def test_events_of_other_servers_are_read() -> None:
    """TGI's finish reason, reasoning, comments, `\\r\\n`, usage without a choice, several tokens in one chunk."""
    events = (
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [None], "error": None},
        {"choices": [{"delta": {"content": ["a part", {"type": "text"}]}}]},
        {"choices": [{"delta": {"reasoning_content": "think"}}]},
        {"choices": [{"delta": {"content": " two words"}, "finish_reason": "eos_token"}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}},
    )
    content = ": comment\r\n\r\n" + "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events)
    with answering(200, content + "data: [DONE]\r\n\r\n") as url:
        ((text, tokens, finish, usage),) = ask(url, question(), api="chat")
    assert (text, tokens, finish) == ("think two words", 7, "stop")
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (9, 7)


@pytest.mark.parametrize("count", ["7.0", '"7"', "-7", "NaN", "true", "1" + "0" * 30])
def test_a_count_that_can_be_none_is_left_out_and_harms_no_other_request(count: str) -> None:
    chunk = f'{{"choices":[{{"text":"\\ud83e","finish_reason":"stop"}}],"usage":{{"completion_tokens":{count}}}}}'
    with answering(200, f"data: {chunk}\n\ndata: [DONE]\n\n") as url:
        answers = ask(url, question(), question())
    assert [(text, tokens, finish) for text, tokens, finish, _ in answers] == [("?", 1, "stop")] * 2
    assert [usage.completion_tokens for *_, usage in answers if usage is not None] == [None, None]


def test_models_that_know_only_the_new_name_of_the_limit_are_asked_by_it() -> None:
    done = 'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'
    with answering(200, done, unknown="max_tokens") as url:
        answers = ask(url, question(), question(), api="chat")
    assert [(text, finish) for text, _, finish, _ in answers] == [("a", "length")] * 2


def test_only_what_was_asked_for_is_sent() -> None:
    engine = RemoteEngine(None, RemoteOptions(url="http://x/v1", api="chat"))
    engine._name, engine._context_length, engine._is_guessed = "m", 100, True
    sent = engine.body(GenerateRequest("p", (1,), 4, messages=({"role": "user", "content": "hi"},)))
    assert sent == {
        "messages": [{"role": "user", "content": "hi"}],
        "model": "m",
        "max_tokens": 4,
        "temperature": 0,
        "top_p": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert "max_tokens" not in engine.body(GenerateRequest("p", (1,), 99)), "no limit was given: nor is one here"
    engine._is_guessed = False
    assert engine.body(GenerateRequest("p", (1,), 99))["max_tokens"] == 99, "of a context that is known"


def test_a_chat_is_passed_on_as_it_was_sent(upstream: RunningServer) -> None:
    """Through two servers: the prompt's length is that of the chat as the far one renders it."""
    chat = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]}
    with served(f"url={upstream.url}/v1", "api=chat", engine="remote") as near:
        there, here = (server.client.post(CHAT, json=chat | {"max_tokens": 3}).json() for server in (upstream, near))
        assert here["usage"] == there["usage"]
        assert here["choices"][0]["message"]["content"] == there["choices"][0]["message"]["content"]


def test_the_certificates_of_ssl_cert_file_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with OddServer(Odd(), tls=context) as server:
        with pytest.raises(EngineUnavailable, match="certificate verify failed"):
            ask(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert ask(server.url) == []
