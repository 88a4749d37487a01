"""Every dialect: what it sends, and that the same answer reads the same in each of them, stamp by stamp."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from enginebench.records.request import RequestRecord
from enginebench.settings.schema import UserMistake
from loadtests.harness.client.authentication import access_to
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from loadtests.harness.client.dialects.dialect import Message, ModelRequest, merged
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.sampling import Sampling, checked_object
from tests.support.loadtests.asking import due
from tests.support.servers.dialect_answers import (
    ANSWERS,
    CACHED_TOKENS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    THOUGHT,
    WORDS,
    aws_frame,
)
from tests.support.servers.wire_script import END, Step, WireServer, frame

REQUEST = ModelRequest(
    "a:model", (Message("system", "Be brief."), Message("user", "Who?")), 64, sampling=Sampling(temperature=0.5), seed=3
)
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
PAUSE = 0.05
SLACK = 2_000_000  # nanoseconds
EVERY = pytest.mark.parametrize("endpoint", sorted(ANSWERS))


@pytest.fixture(autouse=True)
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def ask(endpoint: Endpoint, *script: Step, streamed: bool = True) -> tuple[RequestRecord, str, bytes]:
    """What was observed, the text that a conversation goes on from, and the request as the server got it."""
    seen, text, server = served(endpoint, script, streamed)
    return seen, text, server.requests[0]


def served(endpoint: Endpoint, script: Sequence[Step], streamed: bool) -> tuple[RequestRecord, str, WireServer]:
    dialect, request = DIALECTS[endpoint], replace(REQUEST, streamed=streamed)
    with WireServer(script) as server:
        access = access_to(server.url, endpoint, (), {})
        client = Client(server.url, access=access)
        call = Call(dialect.path(request), msgspec.json.encode(dialect.body(request)), streamed, dialect)
        seen = client.request(due(time.monotonic_ns(), call))
        client.close()
        server.finish_writing()
        return seen, client.answer_text, server


@pytest.mark.alone  # a client that gets no core between two writes reads both at once
@EVERY
def test_a_streams_chunks_are_stamped_when_they_come(endpoint: Endpoint) -> None:
    spoken = ANSWERS[endpoint]
    words = [step for word in spoken.words for step in (PAUSE, frame(word))]
    opening = (spoken.head, frame(spoken.before), PAUSE, frame(spoken.thought))
    seen, text, server = served(endpoint, (*opening, *words, PAUSE, frame(spoken.after) + END), True)
    assert (seen.outcome, seen.detail, seen.finish_reason) == ("ok", None, "length")
    _, _, thought, first_word, _, last_word, end = server.writes[0]
    stamps = (seen.t_first, seen.t_first_out, seen.t_last, seen.t_end)
    for stamp, write in zip(stamps, (thought, first_word, last_word, end), strict=True):
        assert stamp is not None
        assert write.before - SLACK <= stamp <= write.after + SLACK
    assert (seen.chunks, len(seen.icl)) == (4, 3)
    assert (seen.prompt_tokens, seen.cached_tokens) == (PROMPT_TOKENS, CACHED_TOKENS)
    assert (seen.output_tokens, seen.token_source, seen.unseen_tokens) == (OUTPUT_TOKENS, "usage", 0)
    assert text == "".join(WORDS), "a conversation goes on without the reasoning"


@EVERY
def test_an_answer_in_one_piece_says_the_same(endpoint: Endpoint) -> None:
    seen, text, request = ask(endpoint, ANSWERS[endpoint].whole, streamed=False)
    assert (seen.outcome, seen.detail, seen.finish_reason, seen.chunks) == ("ok", None, "length", 0)
    assert (seen.prompt_tokens, seen.output_tokens, seen.cached_tokens) == (
        PROMPT_TOKENS, OUTPUT_TOKENS, CACHED_TOKENS,
    )  # fmt: skip
    assert text == "".join(WORDS)
    assert b'"stream":true' not in request
    streamed, _, _ = ask(endpoint, *_at_once(endpoint))
    assert seen.answer_digest == streamed.answer_digest, "reasoning and text together"


def _at_once(endpoint: str) -> tuple[Step, ...]:
    spoken = ANSWERS[endpoint]
    return spoken.head, frame(spoken.before + spoken.thought + b"".join(spoken.words) + spoken.after) + END


@EVERY
def test_any_cut_of_the_bytes_into_reads_reads_the_same(endpoint: Endpoint) -> None:
    spoken = ANSWERS[endpoint]
    body = spoken.before + spoken.thought + b"".join(spoken.words) + spoken.after
    for size in (1, 7, 64, len(body)):
        answer = DIALECTS[endpoint].answer()
        for at in range(0, len(body), size):
            answer.feed(body[at : at + size], (None, at))
        answer.close((None, len(body)))
        assert (answer.error, answer.chunks, answer.spoken) == (None, 4, "".join(WORDS))
        assert (answer.text, answer.finish_reason) == (THOUGHT + "".join(WORDS), "length")
        assert answer.done is not None


@EVERY
def test_an_error_in_a_stream_is_a_bad_stream_with_its_sentence(endpoint: Endpoint) -> None:
    spoken = ANSWERS[endpoint]
    seen, _, _ = ask(endpoint, spoken.head, frame(spoken.words[0]), frame(spoken.error) + END)
    assert (seen.outcome, seen.chunks) == ("bad_stream", 1)
    assert "too busy" in (seen.detail or "")


@EVERY
def test_a_stream_that_ends_early_is_disconnected(endpoint: Endpoint) -> None:
    spoken = ANSWERS[endpoint]
    seen, _, _ = ask(endpoint, spoken.head, frame(spoken.before), frame(spoken.words[0]), END)
    assert (seen.outcome, seen.chunks) == ("disconnected", 1)


BODIES: list[Any] = [
    pytest.param(
        "chat", "/v1/chat/completions",
        {"model": "a:model", "max_tokens": 64, "temperature": 0.5, "seed": 3, "stream": True,
         "stream_options": {"include_usage": True},
         "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]},
        id="chat",
    ),
    pytest.param(
        "completions", "/v1/completions",
        {"model": "a:model", "max_tokens": 64, "temperature": 0.5, "seed": 3, "stream": True,
         "stream_options": {"include_usage": True}, "prompt": "Be brief.\n\nWho?"},
        id="completions",
    ),
    pytest.param(
        "responses", "/v1/responses",
        {"model": "a:model", "max_output_tokens": 64, "temperature": 0.5, "stream": True, "store": False,
         "instructions": "Be brief.", "input": [{"role": "user", "content": "Who?"}]},
        id="responses",
    ),
    pytest.param(
        "messages", "/v1/messages",
        {"model": "a:model", "max_tokens": 64, "temperature": 0.5, "stream": True, "system": "Be brief.",
         "messages": [{"role": "user", "content": "Who?"}]},
        id="messages",
    ),
    pytest.param(
        "bedrock", "/model/a%3Amodel/converse-stream",
        {"inferenceConfig": {"maxTokens": 64, "temperature": 0.5}, "system": [{"text": "Be brief."}],
         "messages": [{"role": "user", "content": [{"text": "Who?"}]}]},
        id="bedrock",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("endpoint", "path", "body"), BODIES)
def test_what_is_sent(endpoint: Endpoint, path: str, body: dict[str, Any]) -> None:
    dialect = DIALECTS[endpoint]
    assert (dialect.path(REQUEST), dialect.body(REQUEST)) == (path, body)
    plain = dialect.body(replace(REQUEST, sampling=Sampling(temperature=None)))
    assert "temperature" not in json.dumps(plain)
    assert '"seed"' not in json.dumps(plain)


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [
        ("chat", {"ignore_eos": True, "logprobs": True}),
        ("completions", {"ignore_eos": True, "logprobs": 1}),
        ("responses", {}),
        ("messages", {}),
        ("bedrock", {}),
    ],
)
def test_sampling_has_the_apis_names(endpoint: Endpoint, asked: dict[str, Any]) -> None:
    extra = '{"top_k": 4, "max_tokens": null}'
    sampling = Sampling(temperature=None, ignore_eos="yes", extra_body=extra, logprobs=True)
    body = json.loads(DIALECTS[endpoint].written(replace(REQUEST, sampling=sampling)))
    options = body.get("inferenceConfig", body)
    assert {name: value for name, value in options.items() if name in {"ignore_eos", "logprobs"}} == asked
    assert (body["top_k"], "temperature" in options, "max_tokens" in body) == (4, False, False)


def test_models_that_want_max_completion_tokens_get_it_in_the_chat_api() -> None:
    body = DIALECTS["chat"].body(replace(REQUEST, max_tokens_field="max_completion_tokens"))
    assert (body["max_completion_tokens"], "max_tokens" in body) == (64, False)


def test_token_ids_go_to_text_completions_and_nowhere_else() -> None:
    ids = replace(REQUEST, prompt=(1, 2, 3))
    assert DIALECTS["completions"].body(ids)["prompt"] == [1, 2, 3]
    for endpoint, dialect in DIALECTS.items():
        if endpoint != "completions":
            with pytest.raises(ValueError, match="--endpoint completions"):
                dialect.body(ids)


@pytest.mark.parametrize(
    ("endpoint", "environment", "headers"),
    [
        pytest.param("chat", {"OPENAI_API_KEY": "k"}, {"Authorization": "Bearer k"}, id="OpenAI's key"),
        pytest.param("chat", {"OPENAI_API_KEY": "k", "ENGINEBENCH_API_KEY": "mine"}, {"Authorization": "Bearer mine"},
                     id="ours counts first"),
        pytest.param("chat", {}, {}, id="no key"),
        pytest.param("messages", {"ANTHROPIC_API_KEY": "k"}, {"x-api-key": "k", "anthropic-version": "2023-06-01"},
                     id="Anthropic's key"),
        pytest.param("messages", {"OPENAI_API_KEY": "k"}, {"anthropic-version": "2023-06-01"},
                     id="one API's key does not go to another"),
        pytest.param("bedrock", {"AWS_BEARER_TOKEN_BEDROCK": "k"}, {"Authorization": "Bearer k"}, id="Bedrock's key"),
    ],
)  # fmt: skip
def test_keys_come_from_the_environment(
    endpoint: Endpoint, environment: dict[str, str], headers: dict[str, str]
) -> None:
    access = access_to("http://127.0.0.1:1", endpoint, (), environment)
    assert (dict(access.headers), access.signer) == (headers, None)
    assert "'k'" not in repr(access)


@pytest.mark.parametrize("key", ["…", "two words", "k\n"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="OPENAI_API_KEY is not an API key") as refused:
        access_to("http://127.0.0.1:1", "chat", (), {"OPENAI_API_KEY": key})
    assert key not in str(refused.value)


def test_a_damaged_frame_is_a_bad_stream() -> None:
    spoken = ANSWERS["bedrock"]
    damaged = bytearray(aws_frame({"delta": {"text": "x"}}, event_type="contentBlockDelta"))
    damaged[-8] ^= 1
    seen, _, _ = ask("bedrock", spoken.head, frame(spoken.words[0]), frame(bytes(damaged)), END)
    assert (seen.outcome, seen.chunks) == ("bad_stream", 1)
    assert "a frame is damaged (Checksum mismatch" in (seen.detail or "")


@pytest.mark.parametrize(
    ("body", "patch", "result"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="adds"),
        pytest.param({"a": 1}, {"a": None}, {}, id="null removes"),
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="objects are merged"),
        pytest.param({"a": [1]}, {"a": [2]}, {"a": [2]}, id="lists are replaced"),
        pytest.param({}, {"a": {"b": None}}, {"a": {}}, id="null in a new object"),
    ],
)
def test_extra_fields_are_merged_as_rfc_7396_says(
    body: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert merged(body, patch) == result


@pytest.mark.parametrize(
    ("endpoint", "chunks"),
    [
        pytest.param(
            "chat",
            [
                '{"choices":[{"delta":{"content":"a b"},"logprobs":{"content":['
                '{"token":"a","logprob":-0.5},{"token":" b","logprob":-1}]}}]}',
                '{"choices":[{"delta":{"content":"c"},"logprobs":{"content":[{"token":"c","logprob":-2.5}]}}]}',
                '{"choices":[{"delta":{},"logprobs":{"content":[{"token":"d","logprob":NaN}]},"finish_reason":"stop"}]}',
            ],
            id="chat: an object for each token",
        ),
        pytest.param(
            "completions",
            [
                '{"choices":[{"text":"a b","logprobs":{"tokens":["a"," b"],"token_logprobs":[-0.5,-1]}}]}',
                '{"choices":[{"text":"c","logprobs":{"tokens":["c"],"token_logprobs":[-2.5]}}]}',
            ],
            id="text completions: lists",
        ),
    ],
)
def test_log_probabilities_are_read(endpoint: Endpoint, chunks: list[str]) -> None:
    answer = DIALECTS[endpoint].answer()
    bodies = [f"data: {chunk}\n\n".encode() for chunk in [*chunks, "[DONE]"]]
    answer.feed_all(bodies, [(None, 1)] * len(bodies))
    assert (answer.text, answer.token_ends, answer.logprobs) == ("a bc", (1, 3, 4), (-0.5, -1.0, -2.5))


def test_a_token_that_reads_error_is_no_error_of_anthropics_api() -> None:
    answer = DIALECTS["messages"].answer()
    delta = {"delta": {"text": "error"}, "type": "content_block_delta", "index": 0}
    answer.feed(f"data: {json.dumps(delta)}\n\n".encode(), (None, 1))
    assert (answer.error, answer.text) == (None, "error")


@pytest.mark.parametrize("endpoint", ["chat", "responses", "messages"])
def test_an_error_in_a_stream_needs_no_type(endpoint: Endpoint) -> None:
    answer = DIALECTS[endpoint].answer()
    answer.feed(b'data: {"error": {"message": "out of memory"}}\n\n', (None, 1))
    assert answer.error == "out of memory"


def test_a_response_may_end_without_its_output() -> None:
    answer = DIALECTS["responses"].answer()
    last = {"type": "response.completed", "response": {"status": "completed", "output": None}}
    answer.feed(f"data: {json.dumps(last)}\n\n".encode(), (None, 1))
    assert (answer.error, answer.finish_reason, answer.done) == (None, "stop", (None, 1))


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        pytest.param('{"n": 1, "best_of": null, "top_k": 1}', None, id="one answer"),
        pytest.param('{"n": 2}', "n", id="two"),
        pytest.param('{"n": "2"}', "n", id="two as text"),
        pytest.param('{"n": 0}', "n", id="none"),
        pytest.param('{"best_of": 3}', "best_of", id="one of three"),
    ],
)
def test_a_request_has_one_answer(text: str, refused: str | None) -> None:
    if refused is None:
        assert checked_object(text) == text
        return
    with pytest.raises(UserMistake) as mistake:
        checked_object(text)
    assert str(mistake.value) == (
        f"`{refused}` in --extra-body asks for several answers to one request, and their tokens would be measured as "
        "one answer's: leave it out, and test more users or a higher rate instead."
    )
