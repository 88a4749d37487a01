"""Files given by the user: prompts, and pairs of prompt and answer lengths.

A dataset is JSONL or Parquet. Each row has a `prompt` (text) or `messages` (a list of `role` and `content`), and may
have `output_tokens`, the most tokens of its answer. Every process of a run reads the file where it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from loadtests.harness.client.dialects.dialect import Message
from settings.schema import UserMistake

ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user"}
QUESTIONS = Path(__file__).with_name("questions.jsonl")
"""64 questions whose answers have several sentences."""
STEP = 997  # rows between two requests of a user, so that users rarely send the same row


@dataclass(frozen=True, slots=True)
class Row:
    messages: tuple[Message, ...]
    output_tokens: int | None = None


@cache
def dataset(path: str) -> tuple[Row, ...]:
    """Raises `UserMistake`."""
    rows = tuple(_row(path, number, row) for number, row in enumerate(_rows(path), 1))
    if not rows:
        raise UserMistake(f"the dataset {path} is empty.")
    return rows


@cache
def length_pairs(path: str) -> tuple[tuple[int, int], ...]:
    """Prompt and answer lengths, as `prompt_tokens` and `output_tokens` of each row. Raises `UserMistake`.

    The records of a run are such a file: `runs/…/requests-0.jsonl`. Rows without both are left out.
    """
    fields = ("prompt_tokens", "output_tokens")
    found = ([_tokens(row.get(field)) for field in fields] for row in _rows(path))
    pairs = tuple((a, b) for a, b in found if a is not None and b is not None)
    if not pairs:
        raise UserMistake(f"no row of {path} has both prompt_tokens and output_tokens.")
    return pairs


@cache
def order_of(path: str, rows: int, seed: str) -> tuple[int, ...]:
    """The order in which rows are asked: the file's, shuffled."""
    order = list(range(rows))
    Random(f"rows {seed}").shuffle(order)
    return tuple(order)


def row_of(path: str, seed: str, number: int, turn: int) -> Row:
    """What user (or arrival) `number` asks as its request `turn`. Arrivals go through the file row by row."""
    rows = dataset(path)
    return rows[order_of(path, len(rows), seed)[(number + turn * STEP) % len(rows)]]


def checked_dataset(text: str) -> str:
    """The absolute path of a dataset that can be read; nothing stays nothing. Raises `UserMistake`."""
    return _checked(text, dataset)


def checked_pairs(text: str) -> str:
    """The same for a file of lengths."""
    return _checked(text, length_pairs)


def _checked(text: str, read: Any) -> str:
    if not text.strip():
        return ""
    path = str(Path(text.strip()).absolute())
    read(path)
    return path


def _rows(path: str) -> Iterator[dict[str, Any]]:
    try:
        if path.endswith(".parquet"):
            yield from _parquet_rows(path)
            return
        with open(path, encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        row = json.loads(line)
                    except json.JSONDecodeError as error:
                        raise ValueError(f"line {number}: {error.msg}") from None
                    if not isinstance(row, dict):
                        raise ValueError(f"line {number} is not a JSON object")
                    yield row
    except OSError as error:
        raise UserMistake(f"cannot read {path}: {error.strerror or error}.") from None
    except ValueError as error:
        raise UserMistake(f"{path} is not JSONL, with a JSON object in each line ({error}).") from None


def _parquet_rows(path: str) -> Iterator[dict[str, Any]]:
    import polars

    try:
        table = polars.read_parquet(path)
    except polars.exceptions.PolarsError as error:
        raise OSError(f"it is not Parquet ({error})") from None
    yield from table.iter_rows(named=True)


def _row(path: str, number: int, row: dict[str, Any]) -> Row:
    prompt, messages, limit = row.get("prompt"), row.get("messages"), row.get("output_tokens")
    if isinstance(messages, list) and messages:
        said = tuple(_message(path, number, message) for message in messages)
    elif isinstance(prompt, str) and prompt:
        said = (Message("user", prompt),)
    else:
        raise UserMistake(f"row {number} of {path} has neither `prompt` (text) nor `messages` (a list).")
    if limit is not None and _tokens(limit) is None:
        raise UserMistake(
            f"`output_tokens` in row {number} of {path} is not a whole number above 0, or null: {limit!r}."
        )
    return Row(said, _tokens(limit))


def _tokens(value: object) -> int | None:
    """Columns in which numbers are missing are written as floats by some programs."""
    return int(value) if isinstance(value, int | float) and value > 0 and value % 1 == 0 else None


def _message(path: str, number: int, message: Any) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise UserMistake(f"row {number} of {path} has a message without `role` and `content`.")
    content = message.get("content", "")
    role: Any = ROLES.get(message["role"], "assistant")
    return Message(role, content if isinstance(content, str) else "" if content is None else json.dumps(content))
