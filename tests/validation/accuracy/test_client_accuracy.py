"""The comparison of load testers: known errors go in, the same errors come out."""

from __future__ import annotations

from typing import Any

import pytest

from validation.accuracy.client_accuracy import Row, compared
from validation.peers.tools import Load, Seen, ToolFailed
from validation.processes import Sample, between

LOAD = Load(users=2, tokens=11, itl=0.02, seconds=10.0)
MS = 1_000_000


def truth(number: int) -> dict[str, Any]:
    """A request every 100 ms: 200 ms to the first token, 20 ms to each of the ten others."""
    received = number * 100 * MS
    first, last = received + 200 * MS, received + 400 * MS
    return {
        "user": f"r{number}",
        "prompt_id": f"r{number}",
        "answer": f"a{number}",
        "received": received,
        "first_before": first,
        "last_before": last,
        "last_after": last,
        "tokens": 11,
    }


TRUTHS = [truth(number) for number in range(101)]
SAMPLES = [
    Sample(at * 250 * MS, tree=at * 0.125, machine=at * 0.25, memory=at * 10**6) for at in range(60)
]  # half a core of one


def row(seen: list[Seen], key: str = "enginebench") -> Row:
    return compared(key, 1, LOAD, seen, TRUTHS, SAMPLES, server_cpu=2.5, load_average=0.1, command=["tool"])


def test_what_a_tool_reports_too_much_is_its_error() -> None:
    one = row([Seen(f"r{n}", ttft=0.203, tpot=0.0201) for n in range(101)])
    assert one.ttft.bias == pytest.approx(0.003)
    assert one.ttft.p99 == pytest.approx(0.003)
    assert one.tpot.p99 == pytest.approx(0.0001)
    assert one.nominal == pytest.approx(55)  # two streams of 11 tokens in 0.4 s
    assert one.memory == 59_000_000
    assert one.requests == 81  # those of the first two seconds count for nobody
    assert one.unmatched == 0


def test_requests_are_known_by_the_name_that_the_tool_can_give() -> None:
    seen = [Seen(f"a{n}", 0.2, 0.02) for n in range(101)]
    assert row(seen, "guidellm").requests == 81
    with pytest.raises(ToolFailed, match="the server knows 0"):
        row(seen, "aiperf")


def test_cpu_is_counted_over_the_tokens_of_the_same_time() -> None:
    one = row([Seen(f"r{n}", 0.2, 0.02) for n in range(101)])
    assert one.achieved == pytest.approx(110, rel=0.05)  # ten answers a second of 11 tokens
    assert one.cores == pytest.approx(0.5)
    assert one.cpu_per_token == pytest.approx(0.5 / one.achieved)
    assert one.cores_of_others == pytest.approx(1.0 - 0.5 - 2.5 / 10.4, abs=0.01)


def test_between_two_samples_lies_a_straight_line() -> None:
    assert between(SAMPLES, 0, 1000 * MS, "tree") == pytest.approx(0.5)
    assert between(SAMPLES, 125 * MS, 375 * MS, "tree") == pytest.approx(0.125)
    assert between(SAMPLES, 14_750 * MS, 99_000 * MS, "tree") == 0.0  # nothing is known after the last
