"""Many reads taken together give what each of them alone would have given."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from random import Random

import pytest

from loadtests.harness.client.dialects.openai import CompletionAnswer
from loadtests.harness.client.kernel_stamps import TIMESPEC, kernel_stamp, kernel_stamps
from loadtests.harness.client.model_answer import Answer, Moment
from loadtests.harness.client.response import Response

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(body: bytes, size: str = "x") -> bytes:
    return f"{len(body):{size}}\r\n".encode() + body + b"\r\n"


def event(delta: str, rest: str = "") -> bytes:
    return f'data: {{"choices":[{{"index":0,"delta":{delta}}}]{rest}}}\n\n'.encode()


def token(word: str) -> bytes:
    return event(f'{{"content":"{word}"}}')


TOKENS = [token(f" {n}") for n in range(12)]
SPACED = [event(f'{{"content": "{n}", "role": "2"}}') for n in range(12)]
ODD = [
    pytest.param(
        [token(word) for word in ("a", r"\n", r"\"\\", "é☃", r"\u00e9", " ", "b")], id="escapes and other letters"
    ),
    pytest.param([token(r"\u2603")] * 6, id="nothing but escapes"),
    pytest.param([token(r"\ud83e"), token(r"\udd9c"), *TOKENS], id="a character cut in two"),
    pytest.param([event(f'{{"reasoning_content":"{n}"}}') for n in range(9)] + TOKENS, id="thoughts, then an answer"),
    pytest.param(
        [event(f'{{"content":"?","role":"{each}"}}') for each in "?abcdefghi"], id="a mark that is asked with"
    ),
    pytest.param(SPACED, id="a text that something else says too, and spaces"),
    pytest.param([event(f'{{"content":"a","content":"{n}"}}') for n in range(9)], id="the last of two counts"),
    pytest.param([event('{"content":"a","refusal":"b"}')] * 9, id="a text that is hidden by none"),
    pytest.param(
        [event(f'{{"content":"{n}"}}', f',"usage":{{"completion_tokens":{n}}}') for n in range(9)], id="counts"
    ),
    pytest.param([event(f'{{"content":"{n}"}}', ',"usage":{"completion_tokens":9}') for n in range(9)], id="a count"),
    pytest.param([event('{"content":"a"}', f',"created":{n // 6}') for n in range(20)], id="what surrounds it changes"),
    pytest.param([b"event: error\n", *TOKENS], id="an error's name before the event"),
    pytest.param([*TOKENS[:6], b"event: error\n", *TOKENS[6:]], id="the same in the middle"),
    pytest.param([*TOKENS[:6], TOKENS[6].replace(b" 6", b" \n"), *TOKENS[7:]], id="a line end in a text"),
    pytest.param([*TOKENS[:6], TOKENS[6].replace(b" 6", b"\xff"), *TOKENS[7:]], id="no UTF-8"),
    pytest.param([*TOKENS[:6], TOKENS[6].replace(b'" 6"', b"null"), *TOKENS[7:]], id="no text"),
    pytest.param([*TOKENS, b"data: [DONE]\n\n", *TOKENS], id="more after the end"),
    pytest.param(TOKENS, id="nothing but text"),
    pytest.param([*TOKENS[:6], event('{"reasoning":"hm"}'), *TOKENS[6:]], id="a thought among them"),
    pytest.param([*TOKENS[:5], event('{"content":""}'), event("{}"), *TOKENS[5:]], id="events without content"),
    pytest.param([*TOKENS[:7], event('{"content":"a"}', ',"error":{"message":"no"}'), *TOKENS[7:]], id="an error"),
    pytest.param([*TOKENS[:7], b"data: {}},{{\n\n", *TOKENS[7:]], id="no JSON"),
    pytest.param([*TOKENS[:7], TOKENS[0][:-2] + b"," + TOKENS[1][6:], *TOKENS[7:]], id="two documents in an event"),
    pytest.param([*TOKENS[:4], b": comment\n\n", TOKENS[4] + TOKENS[5], *TOKENS[6:]], id="a comment, two events"),
    pytest.param([*TOKENS[:4], TOKENS[4].replace(b"\n", b"\r\n"), *TOKENS[5:]], id="other line ends"),
    pytest.param([*TOKENS[:4], TOKENS[4][:20], TOKENS[4][20:], *TOKENS[5:], b"data: [DONE]\n\n"], id="cut in two"),
]


def moments(count: int) -> list[Moment]:
    return [(10 * n, 10 * n + 1) for n in range(count)]


@pytest.mark.parametrize("bodies", ODD)
def test_answers(bodies: list[bytes]) -> None:
    alone, together = CompletionAnswer(), CompletionAnswer()
    for body, moment in zip(bodies, moments(len(bodies)), strict=True):
        alone.feed(body, moment)
    together.feed_all(bodies, moments(len(bodies)))
    seen = attrgetter(
        "chunks", "output_tokens", "first_chunk_tokens", "kernel", "user", "first_out", "merged_first", "done", "error",
        "error_at", "text", "spoken", "finish_reason",
    )  # fmt: skip
    assert seen(together) == seen(alone)
    assert alone.chunks > 4 or alone.error


@pytest.mark.parametrize(
    ("bodies", "most"),
    [
        pytest.param(TOKENS, 1, id="text"),
        pytest.param([event(f'{{"reasoning":"{n}"}}') for n in range(12)], 1, id="thoughts"),
        pytest.param([token("☃")] * 12, 1, id="as it is"),
        pytest.param([token(r"\u2603")] * 12, 1, id="escaped"),
        pytest.param([event('{"content":"a"}', f',"created":{n // 6}') for n in range(12)], 2, id="after a change"),
    ],
)
def test_of_events_that_differ_in_their_text_only_one_is_read(
    bodies: list[bytes], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Answer] = []
    event = CompletionAnswer.event

    def counted(answer: CompletionAnswer, data: bytes, kind: bytes, moment: Moment) -> None:
        read.append(answer)
        event(answer, data, kind, moment)

    monkeypatch.setattr(CompletionAnswer, "event", counted)
    answer = CompletionAnswer()
    answer.feed(b": it begins\n\n", (1, 1))
    answer.feed_all(bodies, moments(len(bodies)))
    assert answer.chunks == len(bodies)
    assert read.count(answer) == most


@pytest.mark.parametrize("seed", range(40))
def test_chunks_and_reads_of_any_size(seed: int) -> None:
    rng = Random(seed)
    body = b"".join(TOKENS) + b"data: 3\r\nab\r\n\r\n"
    chunks, at = [], 0
    while at < len(body):
        size = rng.choice([len(TOKENS[0]), rng.randint(1, 200)])
        chunks.append(chunk(body[at : at + size], rng.choice(["x", "X", "06x"])))
        at += size
    sent = b"".join([*chunks, LAST])
    if rng.random() < 0.5:
        reads = [*chunks, LAST]
    else:
        cuts = sorted({0, len(sent), *(rng.randint(0, len(sent)) for _ in range(8))})
        reads = [sent[start:end] for start, end in pairwise(cuts)]
    alone, together = Response(), Response()
    alone.feed(HEAD)
    together.feed(HEAD)
    expected = [b"".join(alone.feed(read)) for read in reads]
    assert together.feed_all(reads) == expected
    assert b"".join(expected) == body
    assert together.ended
    assert together.keep_alive
    assert together.malformed is None


def test_what_looks_like_a_chunk_within_another_is_not_taken_for_one() -> None:
    response = Response()
    response.feed(HEAD)
    assert response.feed_all([b"9\r\ndata: 1\n\n\r\n", b"c\r\nab\r\n"]) == [b"data: 1\n\n", b"ab\r\n"]
    assert response.feed_all([b"3\r\ncde\r\n", b"\r\n", b"5\r\nabcde\r\n"]) == [b"3\r\ncde\r\n", b"", b"abcde"]
    assert response.malformed is None


def test_kernel_stamps() -> None:
    stamps = [TIMESPEC.pack(7, nanoseconds) for nanoseconds in range(5)]
    assert kernel_stamps(stamps) == [kernel_stamp(stamp) for stamp in stamps] == [7_000_000_000 + n for n in range(5)]
    assert kernel_stamps([*stamps, b""]) == [*kernel_stamps(stamps), None]
