"""Files given by the user: prompts, and pairs of prompt and answer lengths.

A dataset is JSONL or Parquet. Each row has a `prompt` (text) or `messages` (a list of `role` and `content`), and may
have `output_tokens`, the most tokens of its answer. Every process of a run reads the file where it is.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from loadtests.harness.client.dialects.dialect import Message
from loadtests.harness.workload.rows import Row, rows
from settings.schema import UserMistake

ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user"}
QUESTIONS = Path(__file__).with_name("questions.jsonl")
"""64 questions whose answers have several sentences."""


@dataclass(frozen=True, slots=True)
class DatasetRow:
    messages: tuple[Message, ...]
    output_tokens: int | None = None


@cache
def dataset(path: str) -> tuple[DatasetRow, ...]:
    """Raises `UserMistake`."""
    found = tuple(_row(path, number, row) for number, row in enumerate(_rows(path), 1))
    if not found:
        raise UserMistake(f"the dataset {path} is empty.")
    return found


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


class DatasetRows:
    """The rows that one of several processes sends, whichever of its users asks for one and in whichever stage.

    The file is shuffled by `seed` and dealt in parts to pairs of processes. The two of a pair begin at the ends of
    their part and go through it towards each other and on, so that together they have sent every row of it once before
    they send any twice, also where one of them sends more than the other. So it is exact with one or two processes, and
    with more up to the difference in the number of requests between pairs.
    """

    def __init__(self, path: str, seed: str, process: int, processes: int) -> None:
        rows, first = list(dataset(path)), process - process % 2
        Random(f"rows {seed}").shuffle(rows)
        begin, end = (len(rows) * border // processes for border in (first, min(first + 2, processes)))
        part = rows[begin:end] or rows
        self._rows = part[::-1] if process % 2 else part
        self._taken = 0
        self._returned: list[DatasetRow] = []

    def take(self) -> DatasetRow:
        if self._returned:
            return self._returned.pop()
        self._taken += 1
        return self._rows[(self._taken - 1) % len(self._rows)]

    def give_back(self, row: DatasetRow) -> None:
        """It was taken and not sent."""
        self._returned.append(row)

    def untake(self, count: int) -> None:
        """The last `count` rows taken were not sent."""
        self._taken -= count


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


def _rows(path: str) -> Iterator[Row]:
    try:
        yield from (row for _, row in rows(Path(path), with_csv=False))
    except (OSError, EOFError, zlib.error) as error:
        raise UserMistake(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    except UnicodeDecodeError:
        raise UserMistake(f"{path} is not text in UTF-8: unpack or convert it first.") from None


def _row(path: str, number: int, row: Row) -> DatasetRow:
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
    return DatasetRow(said, _tokens(limit))


def _tokens(value: object) -> int | None:
    """Columns in which numbers are missing are written as floats by some programs."""
    return int(value) if isinstance(value, int | float) and value > 0 and value % 1 == 0 else None


def _message(path: str, number: int, message: Any) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise UserMistake(f"row {number} of {path} has a message without `role` and `content`.")
    content = message.get("content", "")
    role: Any = ROLES.get(message["role"], "assistant")
    return Message(role, content if isinstance(content, str) else "" if content is None else json.dumps(content))
