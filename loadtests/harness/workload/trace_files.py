"""Readers of traces: published ones, access logs by the names of their columns, and folders of runs.

mooncake   JSONL: timestamp (ms), input_length, output_length, and optionally hash_ids of blocks of 512 tokens
           (Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake, FAST25-release/traces)
azure      CSV: TIMESTAMP, ContextTokens, GeneratedTokens; the traces of 2023 and of 2024
           (Patel et al., ISCA 2024; Stojkovic et al., HPCA 2025; github.com/Azure/AzurePublicDataset)
burstgpt   CSV: Timestamp (s), Request tokens, Response tokens, and since 2.0 Session ID; failed requests have no
           response tokens and are left out (Wang et al., 2024; github.com/HPMLL/BurstGPT)
sharegpt   JSON: a list of conversations, each a list of {from: human|gpt, value}. It has no times
run        the folder of a run: its requests again, when they were due
columns    CSV or JSONL with a header of your own: time=COLUMN,prompt=COLUMN,output=COLUMN[,session=COLUMN]

Each file may be compressed with gzip. Readers yield `None` for a row that is left out: a request that failed.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from loadtests.harness.schedule.trace import Trace, TraceRequest, in_order
from records.files import read_requests
from settings.schema import UserMistake

MOONCAKE_BLOCK = 512  # tokens
GZIP = b"\x1f\x8b"  # first bytes of a compressed file
CHARACTERS_A_TOKEN = 4  # of the answers that ShareGPT has as text
UNITS = {"time": 1.0, "time_ms": 1e-3, "time_ns": 1e-9}
AZURE = {"time": "TIMESTAMP", "prompt": "ContextTokens", "output": "GeneratedTokens"}
BURSTGPT = {"time": "Timestamp", "prompt": "Request tokens", "output": "Response tokens", "session": "Session ID"}
COLUMNS = "time=COLUMN,prompt=COLUMN,output=COLUMN[,session=COLUMN], with time_ms or time_ns for other units"


@cache
def read_trace(path: str, form: str = "auto", columns: str = "") -> Trace:
    """Raises `UserMistake` when there is no such file, or it is not in this format."""
    try:
        form = _guessed(Path(path), columns) if form == "auto" else form
        rows = list(READERS[form](Path(path), columns))
    except (OSError, EOFError, zlib.error) as error:  # the last two where what is compressed is cut short or damaged
        raise UserMistake(f"cannot read the trace {path}: {getattr(error, 'strerror', None) or error}.") from None
    except UnicodeDecodeError:
        raise UserMistake(f"the trace {path} is not text in UTF-8: unpack or convert it first.") from None
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, csv.Error) as error:
        raise UserMistake(
            f"{path} is not a trace in the format {form} ({error!r}): name another with --trace-as format=…"
        ) from None
    requests = in_order(row for row in rows if row is not None)
    if not requests:
        raise UserMistake(f"the trace {path} has no request with a prompt and an answer.")
    return Trace(requests, MOONCAKE_BLOCK if form == "mooncake" else 0, len(rows) - len(requests))


def parse_columns(text: str) -> dict[str, str]:
    """`time=ts,prompt=in,output=out` → by what they are for. Raises `UserMistake`."""
    named = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if not {"prompt", "output"} <= named.keys() or len(named.keys() & UNITS.keys()) != 1:
        raise UserMistake(f"the columns of a trace are given as {COLUMNS}, not `{text}`.")
    return named


def _opened(path: Path, errors: str = "strict") -> TextIO:
    """As text, unpacked where it is compressed. Raises `OSError`."""
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    opened = gzip.open if packed else open
    return opened(path, "rt", encoding="utf-8-sig", errors=errors, newline="")


def _guessed(path: Path, columns: str) -> str:
    """From what the file is and how it begins. Raises `OSError`, and `ValueError` with a sentence."""
    if columns:
        return "columns"
    if path.is_dir():
        return "run"
    with _opened(path, errors="replace") as file:
        begin = file.read(4096)
    head = begin.partition("\n")[0]
    if "ContextTokens" in head:
        return "azure"
    if "Request tokens" in head:
        return "burstgpt"
    if '"input_length"' in head:
        return "mooncake"
    if '"conversations"' in begin:
        return "sharegpt"
    raise UserMistake(f"{path} has an unknown format: name its columns with --trace-as {COLUMNS}.")


def _mooncake(row: Mapping[str, Any]) -> TraceRequest:
    """Other traces have the same fields with times in seconds, or with blocks of another size."""
    prompt, blocks = max(1, int(_number(row["input_length"]))), tuple(row.get("hash_ids") or ())
    if blocks and len(blocks) != math.ceil(prompt / MOONCAKE_BLOCK):
        raise UserMistake(
            f"it has {len(blocks)} hash_ids for {prompt} tokens, not one for each {MOONCAKE_BLOCK}: "
            "use --trace-as time=timestamp,prompt=input_length,output=output_length (or time_ms), without its blocks"
        )
    at, output = _number(row["timestamp"]) / 1e3, max(1, int(_number(row["output_length"])))
    return TraceRequest(at, prompt, output, blocks)


def _by_name(named: Mapping[str, str]) -> Callable[[Mapping[str, Any]], TraceRequest | None]:
    """Rows without tokens in prompt or answer are requests that failed: `None`."""
    (unit,) = named.keys() & UNITS.keys()

    def request(row: Mapping[str, Any]) -> TraceRequest | None:
        prompt, output = (int(_number(row[named[which]] or 0)) for which in ("prompt", "output"))
        if prompt <= 0 or output <= 0:
            return None
        session = row.get(named["session"]) if "session" in named else None
        at = _seconds(row[named[unit]], UNITS[unit])
        return TraceRequest(at, prompt, output, session=None if session in (None, "") else str(session))

    return request


def _number(value: Any) -> float:
    """Raises `UserMistake`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"`{value}` is no number")
    return number


def _seconds(value: Any, unit: float) -> float:
    """A number, or a date and time, in which UTC is taken where no zone is named. Raises `UserMistake`."""
    try:
        return _number(value) * unit
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"`{value}` is no time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _sharegpt(path: Path, _: str) -> Iterator[TraceRequest]:
    """Every turn of the human, with all that was said before as it was said then."""
    with _opened(path) as file:
        conversations = json.load(file)
    for number, conversation in enumerate(conversations):
        said: list[tuple[str, str]] = []
        for turn in conversation["conversations"]:
            if not isinstance(turn["value"], str):
                raise UserMistake(f"conversation {number + 1} of the trace {path} has a turn without text.")
            role = {"human": "user", "user": "user", "system": "system"}.get(turn["from"], "assistant")
            if role == "assistant" and said and said[-1][0] == "user":
                tokens = max(1, len(turn["value"]) // CHARACTERS_A_TOKEN)
                session = str(conversation.get("id", number))
                yield TraceRequest(None, None, tokens, messages=tuple(said), session=session)
            said.append((role, turn["value"]))


def _run(path: Path, _: str) -> Iterator[TraceRequest | None]:
    """A retry is not an arrival: the replay has retries of its own."""
    for record in read_requests(path):
        if record.attempt:
            continue
        prompt = record.planned_prompt_tokens or record.prompt_tokens
        output = record.output_tokens or record.planned_output_tokens
        yield TraceRequest(record.t_sched / 1e9, prompt, output, session=record.session) if prompt and output else None


def _requests(path: Path, request: Callable[[Mapping[str, Any]], TraceRequest | None]) -> Iterator[TraceRequest | None]:
    """What `request` makes of each row. Raises `UserMistake` with the number of the first line that is wrong."""
    for line, row in _rows(path):
        try:
            yield request(row)
        except KeyError as error:
            raise UserMistake(
                f"line {line} of the trace {path} has no {error.args[0]}, only {', '.join(map(str, row))}: "
                f"name its columns with --trace-as {COLUMNS}."
            ) from None
        except ValueError as error:
            raise UserMistake(f"line {line} of the trace {path} cannot be read: {error}.") from None


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Of a JSONL file or a CSV file with a header, each with the number of its line."""
    with _opened(path) as file:
        first = file.readline()
        lines = chain([first], file)
        if first[:1] not in {"{", "["}:
            rows = csv.DictReader(lines)
            yield from ((rows.line_num, row) for row in rows)
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise UserMistake(f"line {number} of the trace {path} is not JSON ({error.msg}).") from None
                if not isinstance(row, dict):
                    raise UserMistake(f"line {number} of the trace {path} is not a JSON object.")
                yield number, row


def _own(path: Path, columns: str) -> Iterator[TraceRequest | None]:
    """Rows may lack a session, but not all of them. Raises `UserMistake`."""
    named = parse_columns(columns)
    session, anyone = named.get("session"), False
    for request in _requests(path, _by_name(named)):
        anyone = anyone or (request is not None and request.session is not None)
        yield request
    if session and not anyone:
        raise UserMistake(f"no line of the trace {path} has a {session}: name its column of sessions, or leave it out.")


READERS: dict[str, Callable[[Path, str], Iterator[TraceRequest | None]]] = {
    "mooncake": lambda path, _: _requests(path, _mooncake),
    "azure": lambda path, _: _requests(path, _by_name(AZURE)),
    "burstgpt": lambda path, _: _requests(path, _by_name(BURSTGPT)),
    "sharegpt": _sharegpt,
    "run": _run,
    "columns": _own,
}
