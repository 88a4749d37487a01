"""Half a minute of `make soak`, and its checks against good and bad results."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from validation.speed.server_soak import Resources, Soak, soak
from validation.speed.soak_server import CONCURRENCY

IDLE = Resources(descriptors=17, tasks=4, threads=2, children=1)
GOOD = Soak(
    seconds=60.0,
    rate=20.0,
    requests=12,
    kills=2,
    restarts=2,
    seen={"chat ok": 7, "chat cancelled": 3},
    counted={"chat ok": 7, "chat cancelled": 4, "chat engine_error": 1},
    uncertain=2,
    peak_running=CONCURRENCY,
    peak_waiting=6,
    all_slots=CONCURRENCY,
    left_running=0,
    left_waiting=0,
    before=IDLE,
    after=IDLE,
    memory_before=100e6,
    memory_after=104e6,
)


@pytest.mark.alone
def test_half_a_minute_of_all_kinds_of_clients() -> None:
    seen = soak(seconds=32, rate=20, kill_every=10)
    assert [fault for fault in seen.faults() if not fault.startswith("memory")] == [], seen
    assert seen.memory_after < 1.15 * seen.memory_before, "half a minute is warm-up; the whole soak test allows 5 %"
    outcomes = {name.partition(" ")[2] for name in seen.counted}
    assert outcomes == {"ok", "bad_request", "cancelled", "rejected", "timeout", "engine_error", "unavailable"}
    assert seen.kills == 3
    assert seen.uncertain < 0.1 * seen.requests
    assert seen.peak_running == CONCURRENCY
    assert 1 <= seen.peak_waiting <= 6, "the peaks are sampled"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"memory_after": 106e6}, "memory grew by 6.0%"),
        ({"left_running": 1}, "1 requests still run"),
        ({"left_waiting": 2}, "2 wait"),
        ({"all_slots": CONCURRENCY - 1}, "slots can be taken"),
        ({"after": dataclasses.replace(IDLE, descriptors=18)}, "descriptors=18"),
        ({"after": dataclasses.replace(IDLE, tasks=5)}, "tasks=5"),
        ({"after": dataclasses.replace(IDLE, children=2)}, "children=2"),
        ({"restarts": 1}, "restarted 1 times"),
        ({"requests": 13}, "13 requests were made and 12 counted"),
        ({"requests": 11}, "11 requests were made and 12 counted"),
        (
            {"counted": {"chat ok": 6, "chat cancelled": 5, "chat engine_error": 1}},
            "`chat ok`: clients saw 7, the server counted 6",
        ),
        ({"counted": {"chat ok": 10, "chat cancelled": 2}}, "`chat ok`: clients saw 7, the server counted 10"),
    ],
)
def test_each_fault_has_its_sentence(change: dict[str, Any], sentence: str) -> None:
    assert GOOD.faults() == []
    faults = dataclasses.replace(GOOD, **change).faults()
    assert any(sentence in fault for fault in faults), faults
