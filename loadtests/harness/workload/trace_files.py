"""Traces as files: published ones, access logs by the names of their columns, agents, and folders of runs.

mooncake, azure, burstgpt, columns   tables (`trace_tables.py`)
weka, otel                           sessions of agents (`trace_agents.py`)
sharegpt                             JSON or JSONL: conversations, each a list of {from: human|gpt, value}; no times
requests                             JSONL or Parquet: `prompt`, `messages` (of `role` and `content`), `prompt_tokens`;
                                     optionally `output_tokens`; no times
run                                  the folder of a run: its requests again, when they were due

Files of text may be compressed with gzip. Readers yield `None` for a row that is left out: a request that failed.
"""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from enginebench.records.files import read_requests
from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import Trace, TraceArrival, TraceRequest, in_order
from loadtests.harness.workload.rows import PARQUET, Row, opened, rows
from loadtests.harness.workload.trace_agents import CHARACTERS_A_TOKEN, agent_format, documents, read_otel, read_weka
from loadtests.harness.workload.trace_tables import FORMATS, GRAMMAR, columns_of, format_of, read_table

PROMPTS = ("prompt", "messages", "prompt_tokens")
ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user"}


@cache
def read_trace(path: str, form: str = "auto", columns: str = "") -> Trace:
    """Raises `UserMistake` when there is no such file, or it is not in this format."""
    try:
        form = _guessed(Path(path), columns) if form == "auto" else form
        reader = partial(read_table, columns=columns_of(columns)) if form == "columns" else READERS[form]
        arrivals = list(reader(Path(path)))
    except (OSError, EOFError, zlib.error) as error:  # the last two where what is compressed is cut short or damaged
        raise UserMistake(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    except UnicodeDecodeError:
        raise UserMistake(f"{path} is not text in UTF-8: unpack or convert it first.") from None
    except UserMistake:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, csv.Error) as error:
        raise UserMistake(
            f"{path} is not a trace in the format {form} ({error!r}): name another with --trace-as format=…"
        ) from None
    kept = in_order(arrival for arrival in arrivals if arrival is not None)
    if not kept:
        raise UserMistake(f"{path} has no request with a prompt and an answer.")
    return Trace(kept, len(arrivals) - len(kept))


def _guessed(path: Path, columns: str) -> str:
    """From what the file is and how it begins. Raises `OSError` and `UserMistake`."""
    if columns:
        return "columns"
    if path.is_dir():
        return "run" if list(path.glob("requests*.jsonl")) else _agents(path) or "run"
    with path.open("rb") as raw:
        is_parquet = raw.read(len(PARQUET)) == PARQUET
    if not is_parquet:
        with opened(path, errors="replace") as file:
            begin = file.read(4096)
        if not begin.strip():
            raise UserMistake(f"{path} is empty.")
        if '"conversations"' in begin:
            return "sharegpt"
        if begin.lstrip()[:1] not in {"{", "["}:
            form = format_of(path)
        else:
            form = "mooncake" if '"input_length"' in begin else _requests(path) or _agents(path)
    else:
        form = format_of(path) or _requests(path) or _agents(path)
    if form is None:
        raise UserMistake(
            f"{path} has an unknown format: rows of a dataset, JSONL or Parquet, have {', '.join(PROMPTS[:-1])} or "
            f"{PROMPTS[-1]}; of a trace, name the columns with --trace-as {GRAMMAR}."
        )
    return form


def _requests(path: Path) -> str | None:
    try:
        _, first = next(rows(path), (0, {}))
    except UserMistake:  # a document of several lines
        return None
    return None if first.keys().isdisjoint(PROMPTS) else "requests"


def _agents(path: Path) -> str | None:
    try:
        first = next(documents(path), None)
    except json.JSONDecodeError:
        return None
    return agent_format(first) if isinstance(first, dict) else None


def _sharegpt(path: Path) -> Iterator[TraceArrival]:
    """Every turn of the human, with all that was said before as it was said then."""
    for number, conversation in enumerate(documents(path)):
        said: list[tuple[str, str]] = []
        for turn in conversation["conversations"]:
            if not isinstance(turn["value"], str):
                raise UserMistake(f"conversation {number + 1} of the trace {path} has a turn without text.")
            role = ROLES.get(turn["from"], "assistant")
            if role == "assistant" and said and said[-1][0] == "user":
                tokens = max(1, len(turn["value"]) // CHARACTERS_A_TOKEN)
                session = str(conversation.get("id", number))
                yield TraceArrival(None, (TraceRequest(None, tokens, messages=tuple(said), session=session),))
            said.append((role, turn["value"]))


def _prompts(path: Path) -> Iterator[TraceArrival]:
    for number, row in rows(path):
        yield TraceArrival(None, (_request(f"row {number} of {path}", row),))


def _request(where: str, row: Row) -> TraceRequest:
    prompt, messages = row.get("prompt"), row.get("messages")
    tokens, limit = _tokens(where, row, "prompt_tokens"), _tokens(where, row, "output_tokens")
    if isinstance(messages, list) and messages:
        return TraceRequest(None, limit, messages=tuple(_message(where, message) for message in messages))
    if isinstance(prompt, str) and prompt:
        return TraceRequest(None, limit, messages=(("user", prompt),))
    if tokens is None:
        raise UserMistake(f"{where} has neither `prompt` (text) nor `messages` (a list) nor `prompt_tokens`.")
    return TraceRequest(tokens, limit)


def _tokens(where: str, row: Row, name: str) -> int | None:
    """Columns in which numbers are missing are written as floats by some programs."""
    value = row.get(name)
    if value is None or (isinstance(value, int | float) and value > 0 and value % 1 == 0):
        return None if value is None else int(value)
    raise UserMistake(f"`{name}` in {where} is not a whole number above 0, or null: {value!r}.")


def _message(where: str, message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise UserMistake(f"{where} has a message without `role` and `content`.")
    content = message.get("content") or ""
    parts = content if isinstance(content, list) else [content]
    return ROLES.get(message["role"], "assistant"), "".join(map(_text, parts))


def _text(part: Any) -> str:
    """Of a message's content, or of one of its parts: its text, else the JSON that stands in the file."""
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else json.dumps(part)


def _run(path: Path) -> Iterator[TraceArrival | None]:
    """A retry is not an arrival: the replay has retries of its own."""
    for record in read_requests(path):
        if record.attempt:
            continue
        prompt = record.planned_prompt_tokens or record.prompt_tokens
        output = record.output_tokens or record.planned_output_tokens
        request = TraceRequest(prompt, output, session=record.session) if prompt and output else None
        yield TraceArrival(record.t_sched / 1e9, (request,)) if request else None


READERS: dict[str, Callable[[Path], Iterator[TraceArrival | None]]] = {
    **{form: partial(read_table, columns=columns) for form, columns in FORMATS.items()},
    "weka": read_weka,
    "otel": read_otel,
    "sharegpt": _sharegpt,
    "requests": _prompts,
    "run": _run,
}
