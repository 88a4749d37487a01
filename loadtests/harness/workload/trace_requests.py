"""Rows that are requests: prompts, messages and conversations.

A row is sent as it is in the file, or refused: `UserMistake` names the mistake, and the reader of the file adds the
row. Content that is more than text, such as images, tool calls and their results, becomes a field of the body, which
only the API that it was written for accepts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import TraceArrival, TraceRequest
from loadtests.harness.workload.lengths import MAX_TOKENS
from loadtests.harness.workload.trace_tables import Row, following, number_of, seconds_of, session_name

ABOUT = ("input", "context")  # text that an instruction or a question refers to: Alpaca, Dolly
TEXTS: Mapping[str, tuple[str, ...]] = {
    "prompt": (), "text": (), "text_input": (), "question": ABOUT, "instruction": ABOUT,
}  # fmt: skip
SYSTEMS = ("system", "system_prompt")
LIMITS = ("output_tokens", "output_length", "max_tokens", "max_completion_tokens", "max_output_tokens")
SENT = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format")
EXPECTED = "expected_answer"
KEPT = ("session_id", "delay", "timestamp", EXPECTED)
REQUEST_COLUMNS = {*TEXTS, "messages", "prompt_tokens"}

CONVERSATIONS = ("conversations", "conversation")
CHARACTERS_A_TOKEN = 4  # ratio in answers that were recorded as text
ROLES = ("system", "user", "assistant")
SPEAKERS = {"human": "user", **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "model"), "assistant")}

Texts = tuple[tuple[str, str], ...]


def read_request(row: Any, place: str) -> Iterator[TraceArrival]:
    """Read a text, or an object with one of `REQUEST_COLUMNS`."""
    row = {"prompt": row} if isinstance(row, str) else _object(row, "it")
    texts, fields = _prompt(row)
    prompt_tokens = None if texts or fields else _count(row, "prompt_tokens")
    if not (texts or fields or prompt_tokens):
        raise UserMistake(
            "it has neither `prompt` (text) nor `messages` (a list) nor `prompt_tokens`, only "
            + (", ".join(map(str, row)) or "nothing")
        )
    fields |= {name: row[name] for name in SENT if row.get(name) not in (None, "", [])}
    session = following(row, "session_id", "delay")
    timestamp = None if "pause" in session else row.get("timestamp")
    expected = None if row.get(EXPECTED) in (None, "") else str(row[EXPECTED])
    request = TraceRequest(
        prompt_tokens, _limit(row), messages=texts, fields=fields, row=place, expected=expected, **session
    )
    yield TraceArrival(None if timestamp in (None, "") else seconds_of(timestamp, 1e-3), (_sendable(request),))


def unsent_columns(row: Any) -> tuple[str, ...]:
    """Return the columns of a row that `read_request` does not send."""
    texts = ("prompt",) if "prompt" in row else (*TEXTS, *ABOUT)
    read = {*texts, *REQUEST_COLUMNS - set(TEXTS), *SYSTEMS, *LIMITS, *SENT, *KEPT}
    return tuple(str(name) for name in row if name not in read) if isinstance(row, Mapping) else ()


def read_conversation(row: Any, place: str) -> Iterator[TraceArrival | None]:
    """Yield every answered turn of the human with all turns before it; `None` for a row without one."""
    row = _object(row, "it")
    turns: Any = next((row[name] for name in CONVERSATIONS if row.get(name)), [])
    if not isinstance(turns, list):
        raise UserMistake("its conversation is not a list of turns")
    if row.get("tools"):
        raise UserMistake("its `tools` are in a form that no API takes")
    session = place if row.get("id") is None else session_name(row["id"])
    before = [("system", str(row["system"]))] if row.get("system") else []
    answered = False
    for number, value in enumerate(turns, 1):
        turn = _object(value, f"turn {number}")
        speaker, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
        if not isinstance(text, str):
            raise UserMistake(f"turn {number} has no text")
        if "delay" in turn:
            raise UserMistake(
                f"turn {number} has a `delay`: write a row with `session_id` and `delay` for each request"
            )
        role = str(speaker) if speaker in ROLES else SPEAKERS.get(str(speaker))
        if role is None:
            raise UserMistake(f"turn {number} is from `{speaker}`, not one of {', '.join((*ROLES, *SPEAKERS))}")
        if role == "assistant" and before and before[-1][0] == "user":
            answered, tokens = True, max(1, len(text) // CHARACTERS_A_TOKEN) if text else None
            request = TraceRequest(None, tokens, messages=tuple(before), row=place, session=session)
            yield TraceArrival(None, (_sendable(request),))
        before.append((role, text))
    if not answered:
        yield None


def _prompt(row: Row) -> tuple[Texts, dict[str, Any]]:
    """Return the texts of a row, or its messages as a field of the body if they are more than text."""
    named = [name for name in TEXTS if row.get(name) is not None]
    name = "prompt" if "prompt" in named else next(iter(named), "prompt")
    prompt, messages = row.get(name), row.get("messages")
    if len(named) > 1 and name != "prompt":
        raise UserMistake(f"it has both `{named[0]}` and `{named[1]}`: leave one of them in the file")
    if isinstance(prompt, list) and messages is None:  # a prompt of messages, as in datasets for the library TRL
        prompt, messages = None, prompt
    fields: dict[str, Any] = {}
    if messages is not None:
        texts, fields = _conversation(messages)
        if prompt is not None and prompt not in [message.get("content") for message in messages]:
            raise UserMistake(f"its `messages` do not have the text of its `{name}`: leave one of them in the file")
    elif prompt is None:
        return (), {}
    elif not isinstance(prompt, str) or not prompt:
        raise UserMistake(f"its `{name}` is {'empty' if prompt == '' else 'not text'}")
    else:
        about = next((str(row[more]) for more in TEXTS[name] if row.get(more)), None)
        texts = (("user", prompt if about is None else f"{prompt}\n\n{about}"),)
    system = next((str(row[name]) for name in SYSTEMS if row.get(name)), None)
    if system is not None and fields:
        fields["messages"] = [{"role": "system", "content": system}, *fields["messages"]]
    elif system is not None:
        texts = (("system", system), *texts)
    return texts, fields


def _conversation(messages: Any) -> tuple[Texts, dict[str, Any]]:
    """Return the (role, text) of messages that are only text; otherwise the messages as a field of the body."""
    if not isinstance(messages, list) or not messages:
        raise UserMistake("its `messages` are not a list of messages")
    for number, value in enumerate(messages, 1):
        message = _object(value, f"message {number}")
        content = message.get("content", "" if len(message) > 1 else 0)  # a tool call has none
        parts = content if isinstance(content, list) else ()
        if not isinstance(message.get("role"), str) or not isinstance(content, str | list | None):
            raise UserMistake(f"message {number} is without `role` and `content`")
        if not all(isinstance(part, Mapping) for part in parts):
            raise UserMistake(f"message {number} has a content whose parts are not objects")
    if any(set(message) != {"role", "content"} or message["role"] not in ROLES for message in messages):
        return (), {"messages": messages}
    texts = tuple((message["role"], message["content"]) for message in messages)
    return (texts, {}) if all(isinstance(text, str) for _, text in texts) else ((), {"messages": messages})


def _object(value: Any, what: str) -> Row:
    if not isinstance(value, Mapping):
        raise UserMistake(f"{what} is not a JSON object")
    return value


def _limit(row: Row) -> int | None:
    """Return the maximum of the answer's tokens."""
    limits = {name: limit for name in LIMITS if (limit := _count(row, name)) is not None}
    if len(set(limits.values())) > 1:
        raise UserMistake(f"its {' and '.join(f'`{name}`' for name in limits)} differ")
    return next(iter(limits.values()), None)


def _count(row: Row, name: str) -> int | None:
    """Read a whole number from a float, which columns with missing numbers have, or from text, which CSV has."""
    value = row.get(name)
    if value is None or value == "":
        return None
    try:
        number = number_of(value)
    except UserMistake:
        number = 0.0
    if isinstance(value, bool) or not 0 < number <= MAX_TOKENS or number % 1:
        raise UserMistake(f"`{name}` is not a whole number from 1 to {MAX_TOKENS:,}, or null: {value!r}")
    return int(number)


def _sendable(request: TraceRequest) -> TraceRequest:
    """Check that the request can be sent: Parquet has values that JSON lacks, and JSON can have half characters."""
    try:
        json.dumps([request.messages, request.fields], ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UserMistake(f"it cannot be sent as JSON ({error})") from None
    return request
