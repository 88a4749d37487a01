"""What a server says of itself before a run, and what is said where it is none."""

import json
import logging
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from loadtests.harness.client.authentication import Access
from loadtests.harness.client.dialects.dialect import Message, ModelRequest
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.sampling import Sampling
from loadtests.harness.run.fitting import fitted
from loadtests.harness.run.model_prompts import prompt_source_for
from loadtests.harness.run.target import Target, UnreachableServer
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings
from tests.support.servers import odd
from tests.support.servers.odd import Odd, OddServer
from tests.support.servers.odd import Script as OddScript
from tests.support.servers.scripted import Script, ScriptedServer
from tests.support.servers.wire_script import json_answer


def target(url: str) -> Target:
    return Target(url, Access())


CHAT = DIALECTS["chat"]


def not_tried(text: str) -> int | None:
    raise AssertionError("the tokenizer tells")


def test_the_servers_own_tokenizer_says_how_many_words_make_a_prompt() -> None:
    with ScriptedServer() as server, target(server.url) as asked:
        # The scripted tokenizer counts words and adds seven for a template; the instruction has eight words.
        source = prompt_source_for(asked, "scripted-model", "chat", "words", None, not_tried)
        assert (source.template, source.instruction, source.length_measured) == (8, 8, True)
        assert {cost for _, cost in source.words} == {1}
        assert asked.model(None, CHAT) == "scripted-model"
        assert asked.model("another", CHAT) == "another"
        assert asked.engine() == {"name": "scripted", "features": ["ignore_eos"]}


@pytest.mark.parametrize(("endpoint", "template"), [("chat", 11), ("completions", 1)])
def test_a_server_without_the_extra_pages_will_do(endpoint: Endpoint, template: int) -> None:
    with ScriptedServer(Script(tokenizes=False, engine=None)) as server, target(server.url) as asked:
        source = prompt_source_for(asked, "scripted-model", endpoint, "words", None, lambda text: None)
        assert (source.template, source.length_measured) == (template, False)
        assert asked.engine() is None


PAGES = ("/v1/models", "/tokenize", "/v1/engine")
NO_PAGE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
DEADLINE = 0.3
odd_pages = pytest.mark.parametrize(  # more of them: client/test_questions.py
    ("page", "is_slow"),
    [
        pytest.param(odd.closes, False, id="closes"),
        pytest.param([NO_PAGE], False, id="404"),
        pytest.param([NO_PAGE, "close"], False, id="404 and the end of the connection"),
        pytest.param(odd.hangs, True, id="hangs"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<!doctype"], False, id="a web page"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1, 2]"], False, id="a list in place of an object"),
    ],
)


@odd_pages
def test_a_server_whose_model_is_named_needs_no_other_page(
    page: OddScript, is_slow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("loadtests.harness.client.questions.DEADLINE", DEADLINE)
    caplog.set_level(logging.INFO)
    with OddServer(Odd(routes=dict.fromkeys(PAGES, page))) as server, target(server.url) as asked:
        began = time.monotonic()
        workload, engine = fitted(asked, Scenario(), RunSettings(model="mine"))
        assert time.monotonic() - began < 10
        assert (workload.model, workload.source.template, engine) == ("mine", 7, None)
        (chat,) = server.asked_at("/v1/chat/completions")
        assert json.loads(chat.body)["model"] == "mine"
        if is_slow:  # each of them is asked once
            late = [f"{server.url}{path}: no answer within {DEADLINE} s; the run goes on without it." for path in PAGES]
            assert sorted(message for message in caplog.messages if "within" in message) == sorted(late)


@odd_pages
def test_a_server_that_lists_no_model_in_time_asks_for_one(
    page: OddScript, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtests.harness.client.questions.DEADLINE", DEADLINE)
    with OddServer(Odd(routes=dict.fromkeys(PAGES, page))) as server, target(server.url) as asked:
        with pytest.raises(UnreachableServer, match="with --model") as refused:
            asked.model(None, CHAT)
        if is_slow:
            assert str(refused.value).startswith(
                f"{server.url}/v1/models gave no answer (no answer within {DEADLINE} s): if an OpenAI-compatible"
            )


@pytest.mark.parametrize("script", [odd.hangs, odd.closes, odd.endless_continue, odd.endless_tokens])
def test_a_first_request_without_an_answer_is_left_to_the_run(
    script: OddScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtests.harness.client.questions.DEADLINE", DEADLINE)
    with OddServer(Odd(chat=script)) as server, target(server.url) as asked:
        assert asked.try_out(ASKED, CHAT).prompt_tokens is None


def test_a_server_that_is_not_there_gets_a_sentence_though_its_model_is_named() -> None:
    with target("http://127.0.0.1:9") as asked, pytest.raises(UnreachableServer, match=r"cannot reach .*refused"):
        fitted(asked, Scenario(), RunSettings(model="mine"))


@pytest.mark.parametrize(
    ("path", "tried", "way_out", "status"),
    [
        pytest.param("/x", "/x/v1/chat/completions", ", or give the endpoint's full address", 404, id="a base path"),
        pytest.param(
            "/api/v4", "/api/v4/chat/completions", ", or give the endpoint's full address", 405, id="a version"
        ),
        pytest.param("/d/chat/completions?a=b", "/d/chat/completions?a=b", "", 404, id="a full address"),
    ],
)
def test_the_address_that_was_tried_is_shown(path: str, tried: str, way_out: str, status: int) -> None:
    missing = b"HTTP/1.1 %d No\r\nContent-Length: 4\r\n\r\nnope" % status
    with OddServer(Odd(path=tried.partition("?")[0], chat=[missing])) as server, target(server.url + path) as asked:
        said = f"{server.url}{tried} answers {status} (nope): choose another --endpoint or --model{way_out}."
        with pytest.raises(UnreachableServer, match=f"^{re.escape(said)}$"):
            fitted(asked, Scenario(), RunSettings(model="mine"))


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([b"HTTP/1.1 400 Bad Request\r\n\r\n"], id="it answers in plain http"),
        pytest.param([b"", b"HTTP/1.1 404 Not Found\r\n\r\n"], id="it closes, and answers to plain http"),
    ],
)
def test_https_to_a_server_without_it_is_told_so(answers: list[bytes]) -> None:
    def answer_once(server: socket.socket, answer: bytes) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        served = [pool.submit(answer_once, server, answer) for answer in answers]
        port = server.getsockname()[1]
        with (
            target(f"https://127.0.0.1:{port}") as asked,
            pytest.raises(UnreachableServer, match=f"speaks plain http, not https: give http://127.0.0.1:{port}"),
        ):
            asked.model(None, CHAT)
        for each in served:
            each.result(5)


MOVED = b"HTTP/1.1 308 Moved\r\nLocation: https://x/v1\r\nContent-Length: 0\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<!doctype html>"


@pytest.mark.parametrize(
    ("answer", "listed", "sentence"),
    [
        pytest.param(PAGE, True, "is a web page: is there an OpenAI-compatible server", id="a web page"),
        pytest.param(json_answer("200 OK", {"data": []}), True, "lists no model .*with --model", id="no model"),
        pytest.param(MOVED, True, "redirects to https://x/v1: give the final address", id="the list redirects"),
        pytest.param(MOVED, False, "redirects to https://x/v1: give the final address", id="the endpoint does"),
    ],
)
def test_another_address_is_told_from_a_server_without_models(answer: bytes, listed: bool, sentence: str) -> None:
    with (
        OddServer(Odd(chat=[answer], routes={"/v1/models": [answer]})) as server,
        target(server.url) as asked,
        pytest.raises(UnreachableServer, match=sentence),
    ):
        asked.model(None, CHAT) if listed else asked.try_out(ASKED, CHAT)


ASKED = ModelRequest("m", (Message("user", "the"),), 16)


@pytest.mark.parametrize(
    ("refuses", "becomes"),
    [
        pytest.param({}, ("max_tokens", 0.0), id="a server that takes everything"),
        pytest.param({"max_tokens": "use 'max_completion_tokens' instead"}, ("max_completion_tokens", 0.0),
                     id="another name for the limit"),
        pytest.param({"temperature": "'temperature' does not support 0.0 with this model"}, ("max_tokens", None),
                     id="no temperature"),
        pytest.param({"max_tokens": "use 'max_completion_tokens'", "temperature": "no temperature"},
                     ("max_completion_tokens", None), id="neither"),
    ],
)  # fmt: skip
def test_what_a_model_refuses_is_left_out(refuses: dict[str, str], becomes: tuple[str, float | None]) -> None:
    with ScriptedServer(Script(refuses=refuses)) as server, target(server.url) as asked:
        trial = asked.try_out(ASKED, CHAT)
    assert (trial.request.max_tokens_field, trial.request.sampling.temperature) == becomes
    assert trial.prompt_tokens == 8


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        pytest.param(401, "set OPENAI_API_KEY or ENGINEBENCH_API_KEY", id="no key"),
        pytest.param(403, "set OPENAI_API_KEY", id="a key that is not enough"),
    ],
)
def test_what_stands_in_the_way_of_every_request_is_said_before_the_run(status: int, sentence: str) -> None:
    with (
        ScriptedServer(Script(statuses=[status])) as server,
        target(server.url) as asked,
        pytest.raises(UnreachableServer, match=sentence),
    ):
        asked.try_out(ASKED, CHAT)


def test_a_key_that_the_server_quotes_is_not_repeated() -> None:
    script = Script(refusal=404, refuses={"model": "no such model for Bearer a-secret-key"})
    access = Access({"Authorization": "Bearer a-secret-key"})
    with (
        ScriptedServer(script) as server,
        Target(server.url, access) as asked,
        pytest.raises(UnreachableServer, match=r"answers 404 \(no such model for Bearer \*\*\*\)"),
    ):
        asked.try_out(ASKED, CHAT)


def test_a_server_without_stream_options_is_asked_for_streams_without_them(caplog: pytest.LogCaptureFixture) -> None:
    """The tokens of a prompt are then learned from a whole answer."""
    refuses = {"stream_options": "body.stream_options: Extra inputs are not permitted"}
    with ScriptedServer(Script(refusal=422, refuses=refuses, engine=None)) as server, target(server.url) as asked:
        assert asked.try_out(ASKED, CHAT).prompt_tokens == 8
        found, _ = fitted(asked, Scenario(), RunSettings())
    assert [body.get("stream") for body in server.bodies] == [True, True, None] * 2
    assert "The server accepts no stream_options (body.stream_options: Extra inputs are not permitted)" in caplog.text
    body = json.loads(found.requests_of(0).next({}).body)
    assert (body["stream"], "stream_options" in body) == (True, False)


@pytest.mark.parametrize("no_stream", [False, True])
def test_a_server_is_tried_as_the_run_asks_it(no_stream: bool) -> None:
    with ScriptedServer(Script(engine=None)) as server, target(server.url) as asked:
        fitted(asked, replace(Scenario(), no_stream=no_stream), RunSettings())
    (tried,) = server.bodies
    assert tried.get("stream") is (None if no_stream else True)


def test_a_server_that_is_busy_is_left_to_the_run() -> None:
    with ScriptedServer(Script(statuses=[503])) as server, target(server.url) as asked:
        assert asked.try_out(replace(ASKED, sampling=Sampling(extra_body='{"top_k": 1}')), CHAT).prompt_tokens is None
        assert server.bodies[0]["top_k"] == 1


@pytest.mark.parametrize(
    ("script", "obeys"),
    [
        pytest.param(Script(owner="vllm", tokens=16), True, id="vLLM"),
        pytest.param(Script(owner="llamacpp", tokens=16), True, id="llama.cpp"),
        pytest.param(Script(owner="vllm", tokens=3), False, id="shorter all the same"),
        pytest.param(Script(owner="sglang", tokens=16, refuses={"ignore_eos": "no ignore_eos"}), False, id="refused"),
        pytest.param(Script(owner="openai", tokens=16), False, id="a server that is not known to take it"),
    ],
)
def test_who_takes_ignore_eos_is_recognised(script: Script, obeys: bool) -> None:
    script.engine = None
    with ScriptedServer(script) as server, target(server.url) as asked:
        found, _ = fitted(asked, Scenario(), RunSettings())
        assert found.sampling.to_full_length is obeys
        assert server.bodies[0].get("ignore_eos") is (None if script.owner == "openai" else True)
