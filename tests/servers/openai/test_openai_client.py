"""The official client, unchanged, against a real server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.servers.served import RunningServer, served

if TYPE_CHECKING:
    import openai

QUESTION: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with served("concurrency=1", "tpot=0.001", arguments=("--queue-size", "0")) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as opened:
        yield opened


@pytest.mark.parametrize("dumped", [False, True], ids=["the message itself", "dumped with all its fields"])
def test_a_conversation_of_three_turns(dumped: bool, client: openai.OpenAI) -> None:
    messages: list[Any] = []
    prompt_tokens = []
    for question in ("Who are you?", "And who am I?", "Thanks."):
        messages.append({"role": "user", "content": question})
        answer = client.chat.completions.create(model="fake", messages=messages, max_tokens=3, top_p=0, seed=1)
        message = answer.choices[0].message
        assert message.content == " the quick brown"
        messages.append(message.model_dump() if dumped else message)
        assert answer.usage is not None
        prompt_tokens.append(answer.usage.prompt_tokens)
    # Each turn adds "assistant: the quick brown" and the next question.
    added = [len("user: And who am I?\n" + "assistant:  the quick brown\n"), len("user: Thanks.\n") + 28]
    assert [later - earlier for earlier, later in itertools.pairwise(prompt_tokens)] == added


@pytest.mark.parametrize("include_usage", [True, False])
def test_streamed_chat(client: openai.OpenAI, include_usage: bool) -> None:
    chunks = list(
        client.chat.completions.create(
            model="fake", messages=QUESTION, max_tokens=3, stream=True, stream_options={"include_usage": include_usage}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == " the quick brown"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 3
    assert (chunks[-1].choices == []) is include_usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_clients_own_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="fake", messages=QUESTION, stop=[" fox"]) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert text == final.choices[0].message.content == " the quick brown"
    again: Any = [*QUESTION, final.choices[0].message, {"role": "user", "content": "And?"}]
    assert client.chat.completions.create(model="fake", messages=again, max_tokens=2).choices[0].message.content


def test_each_error_is_of_its_own_class(client: openai.OpenAI, server: RunningServer) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="fake", messages=QUESTION, temperature=9)
    with pytest.raises(openai.NotFoundError, match="no model `gpt-4`"):
        client.chat.completions.create(model="gpt-4", messages=QUESTION)
    with client.chat.completions.create(model="fake", messages=QUESTION, max_tokens=50_000, stream=True) as busy:
        next(iter(busy))
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model="fake", messages=QUESTION)
        assert int(refused.value.response.headers["retry-after"]) >= 1
        assert refused.value.code == "queue_full"
