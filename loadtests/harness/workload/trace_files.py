"""Files of recorded requests: published traces, datasets, and runs. The rows of a file show its format.

mooncake, azure, burstgpt   tables (`trace_tables.py`)
requests, sharegpt          rows with texts (`trace_requests.py`)
lines                       a file called *.txt, with a prompt in each line
run                         the folder of a run: its requests again, when they were due

Text may be compressed with gzip. Readers leave out requests that failed and conversations without an answer, and yield
`None` in their place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from enginebench.records.files import read_requests, request_files
from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import Trace, TraceArrival, TraceRequest, in_order
from loadtests.harness.workload.rows import Rows, lines, rows
from loadtests.harness.workload.trace_requests import (
    REQUEST_COLUMNS,
    read_conversation,
    read_request,
    unsent_columns,
)
from loadtests.harness.workload.trace_tables import FORMATS, format_of

Arrivals = Iterator[TraceArrival | None]

BY_ROW: dict[str, Callable[[Any, str], Arrivals]] = {
    "requests": read_request,
    "sharegpt": read_conversation,
    "lines": read_request,
}
FORMAT_ROWS = 100  # first rows, one of which must show the format
UNREADABLE = (LookupError, TypeError, AttributeError, ValueError, OverflowError)


@cache
def read_trace(path: str) -> Trace:
    """Raise `UserMistake` if the file is missing or has no known format."""
    try:
        form, first, numbered = _begun(Path(path))
        arrivals = list(_run(Path(path)) if form == "run" else _arrivals(path, form, numbered))
    except (OSError, EOFError, zlib.error) as error:  # the last two for damaged compressed files
        raise UserMistake(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    except UnicodeDecodeError:
        raise UserMistake(f"{path} is not text in UTF-8: unpack or convert it first.") from None
    kept = list(_in_sessions([arrival for arrival in arrivals if arrival is not None], path))
    if not kept:
        raise UserMistake(f"{path} has no request with a prompt and an answer.")
    if len(kept) == 1 and kept[0].at is None and len(kept[0].requests) > 1:  # a single session begins at once
        kept = [replace(kept[0], at=0.0)]
    untimed = [arrival.requests[0].row for arrival in kept if arrival.at is None]
    if 0 < len(untimed) < len(kept):
        raise UserMistake(f"{untimed[0]} of {path}: it has no time, and other rows have one.")
    return Trace(in_order(kept), arrivals.count(None), unsent_columns(first) if form == "requests" else ())


def _begun(path: Path) -> tuple[str, Any, Rows]:
    """Return the format, the first row, and all rows. Raises `OSError` and `UserMistake`."""
    if request_files(path):
        return "run", None, iter(())
    is_text = path.name.removesuffix(".gz").endswith(".txt")
    numbered = lines(path) if is_text else rows(path)
    first = list(islice(numbered, FORMAT_ROWS))
    if not first:
        raise UserMistake(f"{path} is empty, or has nothing but a header.")
    return "lines" if is_text else _guessed(path, first), first[0][1], chain(first, numbered)


def _arrivals(path: str, form: str, numbered: Rows) -> Arrivals:
    """Raise `OSError` and `UserMistake`."""
    read = BY_ROW[form] if form in BY_ROW else FORMATS[form].read
    for place, row in numbered:
        try:
            yield from read(row, place)
        except UserMistake as error:
            raise UserMistake(f"{place} of {path}: {error}.") from None
        except UNREADABLE as error:
            raise UserMistake(f"{place} of {path} is not in the format {form} ({error!r}).") from None


def _guessed(path: Path, first: Sequence[tuple[str, Any]]) -> str:
    """Return the format of the first row that shows one. Raises `UserMistake`."""
    form = next(filter(None, (_format_of(row) for _, row in first)), None)
    if form is not None:
        return form
    place, row = first[0]
    has = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
    raise UserMistake(
        f"{path} has an unknown format: rows of a dataset have prompt, messages or prompt_tokens, rows of a trace "
        f"timestamp, input_length and output_length, and {place} has {has or 'nothing'}."
    )


def _format_of(row: Any) -> str | None:
    if isinstance(row, str):
        return "requests"
    if not isinstance(row, Mapping):
        return None
    if "conversations" in row or isinstance(row.get("conversation"), list):
        return "sharegpt"
    named = row.keys() & REQUEST_COLUMNS
    texts = any(not str(row[name]).isdecimal() for name in named - {"prompt_tokens"})  # not a log's count of tokens
    lengths = "requests" if "prompt_tokens" in named else None
    return "requests" if texts else format_of(row) or lengths


def _in_sessions(arrivals: list[TraceArrival], path: str) -> Iterable[TraceArrival]:
    """Join the rows of each session that has delays; the session arrives with its first row."""
    delayed = {request.session for arrival in arrivals for request in arrival.requests if request.pause is not None}
    if not delayed:
        return arrivals
    joined: dict[object, TraceArrival] = {}
    for arrival in arrivals:
        (request,) = arrival.requests
        begun = joined.get(request.session)
        if request.session not in delayed:
            joined[id(arrival)] = arrival
        elif begun is None:
            if request.pause:
                raise UserMistake(f"{request.row} of {path}: it has a delay and is the first of its session.")
            joined[request.session] = replace(arrival, requests=(replace(request, pause=None),))
        elif request.pause is None:
            raise UserMistake(f"{request.row} of {path}: it has no delay, and others of its session have one.")
        else:
            joined[request.session] = replace(begun, requests=(*begun.requests, request))
    return joined.values()


def _run(path: Path) -> Arrivals:
    """Read a run's requests without its retries: the replay has its own."""
    for record in read_requests(path):
        if record.attempt:
            continue
        prompt = record.planned_prompt_tokens or record.prompt_tokens
        output = record.output_tokens or record.planned_output_tokens
        request = TraceRequest(prompt, output, session=record.session) if prompt and output else None
        yield TraceArrival(record.t_sched / 1e9, (request,)) if request else None
