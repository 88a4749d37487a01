import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.harness.client.sse import Event, EventReader


def read_all(pieces: list[bytes]) -> list[Event]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.close()


def by_the_book(stream: bytes) -> list[Event]:
    """The standard's algorithm over the whole stream, line by line: slow, and written without the reader's tricks."""
    events: list[Event] = []
    data: list[bytes] = []
    kind = b""
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in [*lines, b""]:  # a last event without its blank line counts too
        if not line:
            if b"\n".join(data):
                events.append((b"\n".join(data), kind))
            data, kind = [], b""
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
    return events


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [b"a", b"b"], id="LF ends lines"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="CR LF ends lines"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="CR alone ends lines"),
        pytest.param(b"data:a\n\n", [b"a"], id="the space after the colon may be missing"),
        pytest.param(b"data:  a\n\n", [b" a"], id="only one space belongs to the format"),
        pytest.param(b": ping\n\ndata: a\n: more\n\n", [b"a"], id="comments are no events"),
        pytest.param(b"data: a\ndata: b\n\n", [b"a\nb"], id="several data lines make one event"),
        pytest.param(b"data: a\ndata\n\n", [b"a\n"], id="a data line without a colon is an empty line"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [b"a"], id="a byte order mark may stand first"),
        pytest.param(b"id: 7\nretry: 5\ndata: a\n\n", [b"a"], id="ids and retry times pass by"),
        pytest.param(b"\n\n\ndata: a\n\n\n\n", [b"a"], id="blank lines alone are no events"),
        pytest.param(b"data:\n\ndata: \n\ndata: a\n\n", [b"a"], id="empty data is no event"),
        pytest.param(b"data: a\n\ndata: b", [b"a", b"b"], id="the last blank line may be missing"),
        pytest.param(b"data: a\n\ndata: b\n", [b"a", b"b"], id="the last event may lack one line end"),
        pytest.param("data: héllo ☃\n\n".encode(), ["héllo ☃".encode()], id="bytes stay bytes"),
        pytest.param(b"", [], id="nothing gives nothing"),
    ],
)
def test_events_are_split_as_the_standard_says(stream: bytes, events: list[bytes]) -> None:
    assert [data for data, _ in read_all([stream])] == events
    assert [data for data, _ in read_all([bytes([byte]) for byte in stream])] == events


def test_an_event_line_names_only_its_own_event() -> None:
    assert read_all([b"event: error\ndata: a\n\ndata: b\n\n"]) == [(b"a", b"error"), (b"b", b"")]


def test_an_event_belongs_to_the_read_that_ends_it() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a") == []
    assert reader.in_the_middle
    assert reader.feed(b"\n") == []
    assert reader.feed(b"\ndata: b\n\ndata: c") == [(b"a", b""), (b"b", b"")]
    assert reader.in_the_middle
    assert reader.feed(b"\n\n") == [(b"c", b"")]
    assert not reader.in_the_middle


def test_a_carriage_return_ends_the_event_without_waiting_for_what_follows() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\r\n\r") == [(b"a", b"")]
    assert reader.feed(b"\ndata: b\r\n\r\n") == [(b"b", b"")]


PARTS = st.sampled_from(
    [
        *(b"data: ", b"data:", b"data", b"event: error", b"event:", b": comment", b"id: 1"),
        *(b"\xef\xbb\xbf", b" ", b":"),
        *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"data: token\n\n", b'data: {"a": 1}\n\n', b"data: [DONE]\n\n"),
        *("☃".encode(), "🦜".encode(), b"x", b"\x00"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(PARTS, max_size=40), data=st.data())
def test_for_any_split_into_reads_the_events_are_the_same(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = by_the_book(stream)
    assert read_all(pieces) == expected
    assert read_all([stream[n : n + 1] for n in range(len(stream))]) == expected


def test_a_large_event_in_many_small_reads_takes_linear_time() -> None:
    reader = EventReader()
    reader.feed(b"data: ")
    for _ in range(20_000):
        assert reader.feed(b"x" * 100) == []
    assert reader.feed(b"\n\n") == [(b"x" * 2_000_000, b"")]
