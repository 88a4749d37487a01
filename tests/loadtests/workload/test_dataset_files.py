"""Files of requests as people have them: each row is sent as it stands there, or refused with its place and reason."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from enginebench.settings.schema import UserMistake
from loadtests.harness.run.duration import duration_of
from loadtests.harness.scenario import Scenario, read, users
from loadtests.harness.schedule.trace import TraceArrival, TraceRequest
from loadtests.harness.workload.datasets import dataset
from loadtests.harness.workload.trace_files import read_trace
from tests.loadtests.workload.test_workload import PLAIN, asks

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SEEN = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]}]
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
CALLED = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
TURNS = [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "I am."}]
SPOKEN = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I am."}]


def text(prompt: str, limit: int | None = None, system: str = "", **more: Any) -> TraceRequest:
    messages = ((("system", system),) if system else ()) + (("user", prompt),)
    return TraceRequest(None, limit, messages=messages, **more)


def jsonl(*rows: Any) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


WHO, WHAT = text("Who?"), text("What?")
ANSWERED = text("Who?", 1, session="row 1")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param('{"prompt": "a\u2028b\u0085c\x0cd"}\n{"prompt": "What?"}\n'.encode(),
                     [text("a\u2028b\u0085c\x0cd"), WHAT], id="separators of lines inside a text"),
        pytest.param(json.dumps({"conversations": [{"from": "human", "value": "a\u2028b"}, TURNS[1]]},
                                ensure_ascii=False).encode() + b"\n" + jsonl({"conversations": TURNS}),
                     [text("a\u2028b", 1), text("Who?", 1)], id="separators of lines inside a conversation"),
        pytest.param(b'\n \n  {"prompt": "Who?"}\r\n\r\n{"prompt": "What?"}', [WHO, WHAT],
                     id="blank and indented first lines, CRLF, no last newline"),
        pytest.param(b'\xef\xbb\xbf[{"prompt": "Who?"},\n {"prompt": "What?"}]', [WHO, WHAT], id="an array"),
        pytest.param(b'["Who?", "What?"]', [WHO, WHAT], id="an array of texts"),
        pytest.param(b'[\n  "Who?",\n  "What?"\n]\n', [WHO, WHAT], id="an array of texts, over lines"),
        pytest.param(b'{\n "prompt": "Who?"\n}\n', [WHO], id="one object over lines"),
        pytest.param(gzip.compress(jsonl({"prompt": "Who?"})), [WHO], id="compressed"),
        pytest.param(b'\xef\xbb\xbfprompt,output_tokens\r\n"Who,\nwhere?",7\r\nWhat?,\r\n',
                     [text("Who,\nwhere?", 7), WHAT], id="CSV with a byte-order mark, quotes and a missing number"),
        pytest.param(jsonl({"prompt": "x" * 300_000}), [text("x" * 300_000)], id="a long line"),
        pytest.param(b"prompt\n" + b"x" * 300_000 + b"\n", [text("x" * 300_000)], id="a long cell"),
        pytest.param(jsonl({"text": "Who?"}, {"question": "What?", "answer": "That."}), [WHO, WHAT],
                     id="other names of a prompt"),
        pytest.param(jsonl({"instruction": "Add.", "input": "1 2", "output": "3"},
                           {"instruction": "Who?", "input": "", "output": ""}),
                     [text("Add.\n\n1 2"), WHO], id="Alpaca"),
        pytest.param(jsonl({"instruction": "Who?", "context": "It is I.", "response": "I"}),
                     [text("Who?\n\nIt is I.")], id="Dolly"),
        pytest.param(jsonl({"system_prompt": "Be brief.", "question": "Who?", "response": "I"}),
                     [text("Who?", system="Be brief.")], id="OpenOrca"),
        pytest.param(jsonl({"prompt": "Who?", "prompt_id": "7", "messages": SPOKEN}),
                     [TraceRequest(None, None, messages=(("user", "Who?"), ("assistant", "I am.")))], id="UltraChat"),
        pytest.param(jsonl({"messages": [{"role": "system", "content": "Be brief."}, SPOKEN[0]]}),
                     [text("Who?", system="Be brief.")], id="messages"),
        pytest.param(jsonl({"prompt": SPOKEN[:1], "completion": SPOKEN[1:]}), [WHO], id="TRL"),
        pytest.param(jsonl({"prompt": "Who?", "max_tokens": 9}, {"prompt": "Who?", "output_tokens": "9"}),
                     [text("Who?", 9)] * 2, id="other names and forms of a limit"),
        pytest.param(jsonl({"prompt": "Who?", "score": float("nan")}), [WHO], id="NaN in another column"),
        pytest.param(jsonl({"padding": "x" * 5000, "conversations": TURNS}), [ANSWERED],
                     id="conversations that begin late"),
        pytest.param(jsonl({"conversation": SPOKEN}), [ANSWERED], id="ShareGPT with roles"),
        pytest.param(jsonl({"conversations": TURNS, "system": "Be brief."}),
                     [text("Who?", 1, "Be brief.", session="row 1")], id="ShareGPT with a system prompt"),
        pytest.param(jsonl({"messages": SEEN, "output_tokens": 5}),
                     [TraceRequest(None, 5, fields={"messages": SEEN})], id="an image"),
        pytest.param(jsonl({"messages": CALLED, "tools": TOOLS, "tool_choice": "auto"}),
                     [TraceRequest(None, None, fields={"messages": CALLED, "tools": TOOLS, "tool_choice": "auto"})],
                     id="tools, their calls and their results"),
        pytest.param(jsonl({"prompt": "Who?", "tools": TOOLS}, {"prompt": "What?", "tools": []}),
                     [text("Who?", fields={"tools": TOOLS}), WHAT], id="tools with a prompt"),
        pytest.param(jsonl({"messages": [{"role": "developer", "content": "Be brief."}, SPOKEN[0]]}),
                     [TraceRequest(None, None, fields={
                         "messages": [{"role": "developer", "content": "Be brief."}, SPOKEN[0]]})],
                     id="a role of one API"),
        pytest.param(jsonl({"input_length": 40, "output_length": 5}), [TraceRequest(40, 5, block_tokens=512)],
                     id="Mooncake without times"),
        pytest.param(b"ContextTokens,GeneratedTokens\n40,5\n", [TraceRequest(40, 5)], id="Azure without times"),
        pytest.param(b"Request tokens,Response tokens\n40,5\n9,0\n", [TraceRequest(40, 5)],
                     id="BurstGPT without times"),
        pytest.param(b"prompt_tokens,output_tokens\n40,5\n", [TraceRequest(40, 5)], id="lengths as CSV"),
    ],
)  # fmt: skip
def test_a_row_is_sent_as_it_stands(tmp_path: Path, data: bytes, expected: list[TraceRequest]) -> None:
    path = tmp_path / "rows.data"
    path.write_bytes(data)
    found = list(dataset(str(path)).requests)
    assert [replace(request, session=None) for request in found] == [
        replace(wanted, session=None) for wanted in expected
    ]


@pytest.mark.parametrize("name", ["rows.txt", "rows.txt.gz"])
def test_each_line_of_a_text_file_is_a_prompt(tmp_path: Path, name: str) -> None:
    path, data = tmp_path / name, b"Who?\n\n  What?\r\n"
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert list(dataset(str(path)).requests) == [WHO, text("  What?")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "PATH is empty, or has nothing but a header.", id="nothing"),
        pytest.param(b" \n\n", "PATH is empty, or has nothing but a header.", id="blank lines"),
        pytest.param(b"prompt\n", "PATH is empty, or has nothing but a header.", id="a header alone"),
        pytest.param(b"[]", "PATH is empty, or has nothing but a header.", id="an empty array"),
        pytest.param('{"prompt": "é"}'.encode("latin-1"),
                     "PATH is not text in UTF-8: unpack or convert it first.", id="another encoding"),
        pytest.param(b'{"prompt": "a"}\n\n{"prompt": "b"',
                     "line 3 of PATH is not JSON (Expecting ',' delimiter).", id="a row cut short"),
        pytest.param(b'[\n{"prompt": "a"},\n{"prompt" "b"}]',
                     "line 3 of PATH is not JSON (Expecting ':' delimiter).", id="an array with a mistake"),
        pytest.param(b'{"prompt": "a"}, {"prompt": "b"}\n', "line 1 of PATH is not JSON (Extra data).",
                     id="two rows in a line"),
        pytest.param(b'["a"]\n["b"]\n',
                     "line 1 of PATH is a JSON array, and others follow: write an object in each line.",
                     id="arrays in lines"),
        pytest.param(b'[["a"]]', "PATH has an unknown format: ", id="an array of arrays"),
        pytest.param(b'{"prompt": "a"}\n7\n', "row 2 of PATH: it is not a JSON object.", id="a number"),
        pytest.param(b'{"prompt": "a"}\nnull\n', "row 2 of PATH: it is not a JSON object.", id="null"),
        pytest.param(b'{"prompt": "a", "prompt": "b"}',
                     "line 1 of PATH cannot be read: an object has `prompt` twice.", id="a name that stands twice"),
        pytest.param(b"[" * 100_000, "line 1 of PATH has JSON that is nested too deeply.", id="deep JSON"),
        pytest.param(b'{"prompt": "half of \\ud83d"}',
                     "row 1 of PATH: it cannot be sent as JSON ('utf-8' codec can't encode character '\\ud83d' in "
                     "position 20: surrogates not allowed).", id="half a character"),
        pytest.param(jsonl({"messages": [{"role": "user", "content": "a", "top": float("inf")}]}),
                     "row 1 of PATH: it cannot be sent as JSON (Out of range float values are not JSON compliant).",
                     id="infinity in a message"),
        pytest.param(jsonl({"prompt": "a"}, {"prompt": ""}), "row 2 of PATH: its `prompt` is empty.",
                     id="an empty prompt"),
        pytest.param(jsonl({"prompt": [1, 2]}), "row 1 of PATH: message 1 is not a JSON object.",
                     id="a prompt of token ids"),
        pytest.param(jsonl({"prompt": 7.5}), "row 1 of PATH: its `prompt` is not text.", id="a prompt of 7.5"),
        pytest.param(jsonl({"prompt": "a"}, {"answer": "b"}),
                     "row 2 of PATH: it has neither `prompt` (text) nor `messages` (a list) nor `prompt_tokens`, only "
                     "answer.", id="a row of something else"),
        pytest.param(jsonl({"text": "a", "question": "b"}),
                     "row 1 of PATH: it has both `text` and `question`: leave one of them in the file.",
                     id="two prompts"),
        pytest.param(jsonl({"prompt": "a", "messages": SPOKEN}),
                     "row 1 of PATH: its `messages` do not have the text of its `prompt`: leave one of them in the "
                     "file.", id="another prompt than its messages"),
        pytest.param(jsonl({"prompt": "a", "output_tokens": float("nan")}),
                     "row 1 of PATH: `output_tokens` is not a whole number from 1 to 10,000,000, or null: "
                     "nan.", id="NaN"),
        pytest.param(jsonl({"prompt": "a", "output_tokens": 2.5}),
                     "row 1 of PATH: `output_tokens` is not a whole number from 1 to 10,000,000, or null: "
                     "2.5.", id="half a token"),
        pytest.param(jsonl({"prompt": "a", "max_tokens": 2**63 - 1}),
                     "row 1 of PATH: `max_tokens` is not a whole number from 1 to 10,000,000, or null: "
                     "9223372036854775807.", id="no limit"),
        pytest.param(b'{"prompt": "a", "session_id": "\\ud83d"}',
                     "row 1 of PATH: its session '\\ud83d' is not text.", id="a session of half a character"),
        pytest.param(jsonl({"prompt": "a", "output_tokens": 2, "max_tokens": 3}),
                     "row 1 of PATH: its `output_tokens` and `max_tokens` differ.", id="two limits"),
        pytest.param(jsonl({"messages": []}), "row 1 of PATH: its `messages` are not a list of messages.",
                     id="no message"),
        pytest.param(jsonl({"messages": [SPOKEN[0], {"role": "user"}]}),
                     "row 1 of PATH: message 2 is without `role` and `content`.", id="a message of nothing"),
        pytest.param(jsonl({"messages": [{"role": "user", "content": ["a"]}]}),
                     "row 1 of PATH: message 1 has a content whose parts are not objects.", id="parts that are texts"),
        pytest.param(jsonl({"conversations": TURNS}, {"conversations": [{"from": "human"}, TURNS[1]]}),
                     "row 2 of PATH: turn 1 has no text.", id="a turn without a value"),
        pytest.param(jsonl({"conversations": [TURNS[0], {"from": "observation", "value": "b"}]}),
                     "row 1 of PATH: turn 2 is from `observation`, not one of system, user, assistant, human, gpt, "
                     "chatgpt, bing, bard, model.", id="a turn of a tool"),
        pytest.param(jsonl({"conversations": "a"}), "row 1 of PATH: its conversation is not a list of turns.",
                     id="a conversation of text"),
        pytest.param(jsonl({"conversations": []}), "PATH has no request with a prompt and an answer.",
                     id="only rows without conversations"),
        pytest.param(b"prompt,output_tokens\na,7\nb,7,9\n", "line 3 of PATH has 3 values for 2 columns; "
                     "a text file with a prompt in each line is called *.txt.",
                     id="CSV with too many values"),
        pytest.param(b'prompt\na\n"b\n', "line 3 of PATH is not CSV (unexpected end of data).",
                     id="CSV with an open quote"),
        pytest.param(b"prompt,prompt\na,b\n", "line 1 of PATH names a column twice.", id="CSV, a name twice"),
        pytest.param(b"input_length,output_length,hash_ids\n1000,5,[]\n",
                     "line 2 of PATH: `hash_ids` is not a list.", id="blocks as text"),
        pytest.param(jsonl({"input_length": 9.5, "output_length": 5}),
                     "row 1 of PATH: `9.5` is no whole number up to 10,000,000.", id="half a token of a prompt"),
        pytest.param(jsonl({"prompt": "a", "timestamp": 1}, {"prompt": "b"}),
                     "row 2 of PATH: it has no time, and other rows have one.", id="a prompt without its time"),
        pytest.param(jsonl({"prompt": "a", "session_id": "s"}, {"prompt": "b", "session_id": "s", "delay": 5}),
                     "row 2 of PATH follows another after a delay, which a dataset does not keep: replay it with "
                     "--trace.", id="a delay between turns"),
        pytest.param(jsonl({"session_id": "s", "input_length": 9, "output_length": 5, "delay": 5}),
                     "row 1 of PATH: it has a delay and is the first of its session.", id="a delay before a session"),
        pytest.param(jsonl({"session_id": "s", "turns": [{"text": "a"}, {"text": "b", "delay": 5}]}),
                     "PATH has an unknown format: rows of a dataset have prompt, messages or prompt_tokens, rows of a "
                     "trace timestamp, input_length and output_length, and row 1 has session_id, turns.",
                     id="a session in a row"),
        pytest.param(b"PAR1, cut", "cannot read PATH: it is not Parquet", id="Parquet that is none"),
    ],
)  # fmt: skip
def test_a_row_is_refused_with_its_place_and_the_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "rows.data"
    path.write_bytes(data)
    with pytest.raises(UserMistake) as refused:
        dataset(str(path))
    assert str(refused.value).replace(str(path), "PATH").startswith(reason)


@pytest.mark.parametrize(
    ("row", "sent"),
    [
        pytest.param({"messages": SEEN}, {"messages": SEEN}, id="an image"),
        pytest.param({"messages": CALLED, "tools": TOOLS}, {"messages": CALLED, "tools": TOOLS}, id="tools"),
    ],
)
def test_the_body_has_the_fields_of_the_row(tmp_path: Path, row: dict[str, Any], sent: dict[str, Any]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(jsonl(row))
    (ask, *_) = asks(PLAIN, count=2, dataset=dataset(str(path)))
    body = json.loads(ask.body)
    assert {name: body[name] for name in sent} == sent
    assert ask.record.prompt_id != asks(PLAIN, count=1)[0].record.prompt_id


@pytest.mark.parametrize(
    ("row", "endpoint", "what"),
    [
        pytest.param({"messages": SEEN}, "completions", "`messages`", id="an image for text completions"),
        pytest.param({"messages": CALLED, "tools": TOOLS}, "messages", "`messages` and `tools`", id="tools elsewhere"),
    ],
)
def test_what_only_one_api_takes_is_refused_elsewhere(
    tmp_path: Path, row: dict[str, Any], endpoint: str, what: str
) -> None:
    path = tmp_path / "rows.jsonl"
    given = {"dataset": str(path), "endpoint": endpoint}
    path.write_bytes(jsonl({"prompt": "a"}, row))
    with pytest.raises(UserMistake) as refused:
        read(Scenario(), given).recorded()
    assert str(refused.value) == (
        f"row 2 of {path} has {what} in a form that only --endpoint chat accepts, such as images or tools."
    )
    assert len(read(Scenario(), given | {"endpoint": "chat"}).recorded().arrivals) == 2


def test_parquet_has_conversations_messages_and_tools(tmp_path: Path) -> None:
    """Every object of a column has the fields of all others; what is null was not there."""

    def read(*rows: dict[str, Any]) -> Sequence[TraceRequest]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pl.DataFrame(rows).write_parquet(path)
        return list(dataset(str(path)).requests)

    assert read({"id": "a", "conversations": TURNS}) == [text("Who?", 1, session="a")]
    seen, called = read({"messages": [SPOKEN[0]], "tools": None}, {"messages": CALLED, "tools": TOOLS})
    assert seen == text("Who?")
    without_null = [CALLED[0], {"role": "assistant", "tool_calls": [CALL]}, CALLED[2]]
    assert called == TraceRequest(None, None, fields={"messages": without_null, "tools": TOOLS})
    part = {"type": "image", "image": b"\x89PNG"}
    with pytest.raises(UserMistake, match=r"row 1 of .*: it cannot be sent as JSON .*bytes is not JSON serializable"):
        read({"messages": [{"role": "user", "content": [part]}]})


def test_columns_that_are_not_sent_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        jsonl({"id": 7, "prompt": "Who?", "text": "b", "context": "c", "output_tokens": 5, "tools": TOOLS})
    )
    scenario = Scenario(stages=users("16"), stage_seconds=30, dataset=str(path))
    told = "This takes at least 30 s: 30 s at 16 users; columns that are not sent: id, text, context."
    assert duration_of(scenario).sentence() == told


def test_conversations_without_an_answered_turn_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(jsonl({"id": 7}, {"conversations": TURNS}, {"conversations": []}, {"conversations": TURNS[:1]}))
    trace = dataset(str(path))
    assert (len(trace.arrivals), trace.left_out) == (1, 3)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"messages": SPOKEN[:1], "output_length": 5}, id="messages"),
        pytest.param({"input_length": 40, "output_length": 5}, id="lengths"),
    ],
)
def test_a_session_is_played_with_its_delays(tmp_path: Path, row: dict[str, Any]) -> None:
    """Rows of two sessions, one after the other's."""
    rows = [
        {"session_id": "a", "timestamp": 1000, **row},
        {"session_id": "b", "timestamp": 3000, **row},
        {"session_id": "a", "delay": 1500, **row},
        {"session_id": "a", "delay": 0, **row},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(jsonl(*rows))
    one, other = read_trace(str(path)).arrivals
    assert (one.at, other.at, len(other.requests)) == (0.0, 2.0, 1)
    assert [request.pause for request in one.requests] == [None, 1.5, 0.0]


def test_times_of_prompts_are_milliseconds_or_dates(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    times = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (0, 2)]
    pl.DataFrame({"prompt": ["Who?", "What?"], "timestamp": times}).write_parquet(path)
    assert read_trace(str(path)).arrivals == (TraceArrival(0.0, (WHO,)), TraceArrival(2.0, (WHAT,)))
