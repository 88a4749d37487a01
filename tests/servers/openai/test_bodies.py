"""Bodies: what is accepted, what is refused and where, and that large ones delay no other request for long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servers.http.api_errors import ApiError
from servers.openai.bodies import ChatRequest, CompletionRequest, read, read_messages, read_prompt
from servers.openai.decoding import decoded_array
from validation.speed.worst_bodies import FOUR, bodies, measure

CONTEXT = 1000


def chat(**fields: Any) -> list[dict[str, str]]:
    return read_messages(read(json.dumps(fields).encode(), ChatRequest, CONTEXT).messages)


def prompt(given: Any) -> str | list[int]:
    return read_prompt(read(json.dumps({"prompt": given}).encode(), CompletionRequest, CONTEXT).prompt, CONTEXT)


USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"content": "Yes", "refusal": None}, id="as this server sends it"),
        pytest.param({"content": "Yes", "refusal": None, "annotations": [], "audio": None}, id="as OpenAI sends it"),
        pytest.param({"content": "Yes", "function_call": None, "tool_calls": None}, id="as the client dumps it"),
        pytest.param({"content": "Yes", "tool_calls": [], "reasoning_content": None}, id="as vLLM sends it"),
        pytest.param({"content": [{"type": "text", "text": "Y"}, {"type": "text", "text": "es"}]}, id="in parts"),
    ],
)
def test_a_responses_message_can_be_sent_back(answer: dict[str, Any]) -> None:
    messages = chat(messages=[USER, {"role": "assistant", **answer}, USER])
    assert messages == [USER, {"role": "assistant", "content": "Yes"}, USER]


def test_only_an_assistants_message_may_be_without_content() -> None:
    assert chat(messages=[{"role": "assistant", "content": None}]) == [{"role": "assistant", "content": ""}]
    with pytest.raises(ApiError, match=r"`messages\.1\.content` is required"):
        chat(messages=[USER, {"role": "user", "content": None}])


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        pytest.param(
            {"role": "assistant", "content": None, "tool_calls": [CALL]}, "messages.1.tool_calls", id="a call"
        ),
        pytest.param({"role": "tool", "tool_call_id": "call_1", "content": "4"}, "messages.1.role", id="a result"),
        pytest.param({"tool_call_id": "call_1", "role": "tool", "content": "4"}, "messages.1.role", id="its id first"),
        pytest.param({"role": "tool", "content": "4"}, "messages.1.role", id="a result without the call's id"),
        pytest.param({"role": "user", "content": "4", "tool_call_id": "x"}, "messages.1.tool_call_id", id="an id"),
    ],
)
def test_calls_of_tools_and_their_results_are_refused(message: dict[str, Any], param: str) -> None:
    """Templates that know no tools would leave them out."""
    with pytest.raises(ApiError, match=f"^`{param}`") as refused:
        chat(messages=[USER, message])
    assert (refused.value.status, refused.value.param) == (400, param)


def test_an_unknown_field_of_a_message_has_its_place() -> None:
    with pytest.raises(ApiError, match=r"There is no field `messages\.1\.content\.0\.detail`") as refused:
        chat(messages=[USER, {"role": "user", "content": [{"type": "text", "text": "x", "detail": 1}]}])
    assert refused.value.param == "messages.1.content.0.detail"


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        pytest.param("a", "a", id="text"),
        pytest.param(["a"], "a", id="text in an array"),
        pytest.param([1, 2], [1, 2], id="token ids"),
        pytest.param([[1, 2]], [1, 2], id="token ids in an array"),
        pytest.param([], [], id="no token ids"),
        pytest.param([7] * CONTEXT, [7] * CONTEXT, id="as many token ids as the context has"),
    ],
)
def test_prompts(given: Any, read_as: str | list[int]) -> None:
    assert prompt(given) == read_as


@pytest.mark.parametrize(
    ("given", "param", "sentence"),
    [
        pytest.param(["a", "b"], "prompt", "several prompts", id="two prompts"),
        pytest.param(["a", 1], "prompt", "several prompts", id="text and an id"),
        pytest.param([1, "a"], "prompt.1", "Expected `integer`, got `string`", id="an id and text"),
        pytest.param([[["a"]]], "prompt.0", "Expected `integer`, got `array`", id="nested once more"),
        pytest.param([7] * (CONTEXT + 1), "prompt", "1000 tokens", id="more token ids than the context"),
        pytest.param([7] * (4 * CONTEXT), None, "3999 commas", id="many more token ids"),
        pytest.param({"a": 1}, "prompt", "a string or an array", id="an object"),
    ],
)
def test_prompts_that_are_refused(given: Any, param: str | None, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence) as refused:
        prompt(given)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_an_array_is_read_element_by_element() -> None:
    """Strings that look like structure, nested values and white space: as in one call."""
    element = {"a": ['}],"[{\\', {"b": []}, {}], "c": '\\" ,', "d": {"e": [[1, 2], "]"]}, "f": None}
    for count in (0, 1, 3000):
        text = json.dumps([element] * count, indent=1).encode()
        assert decoded_array(text, dict, "x") == [element] * count


def test_an_error_in_a_large_array_has_its_place() -> None:
    messages = [USER] * 3000 + [{"role": "user", "content": [{"type": "text", "text": 5}]}]
    content = json.dumps({"messages": messages}).encode()
    with pytest.raises(ApiError, match="Expected `string`, got `integer`") as refused:
        read_messages(read(content, ChatRequest, 10_000).messages)
    assert refused.value.param == "messages.3000.content.0.text"


@pytest.mark.alone
def test_the_worst_bodies_neither_stall_another_stream_nor_fill_the_memory() -> None:
    """A reader that validated every element first blocked the stream for 32 s and took 2.8 GB.

    `validation/speed/worst_bodies.py` has all bodies and the figures of a quiet machine.
    """
    names = {
        "ids and strings",
        "escapes",
        "one word",
        "messages that are read",
        "empty messages",
        "parts that are read",
    }
    chosen = [body for body in bodies() if body.name in names]
    results = measure(chosen)
    assert [result.name for result in results] == [*(body.name for body in chosen), FOUR]
    assert len(results) == len(names) + 1
    for result in results:
        assert result.status == 400
        assert result.gap < (0.5 if result.name == FOUR else 0.3), result
        assert result.peak_memory < 150e6, result
