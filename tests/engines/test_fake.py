"""The fake engine: exact delays, and the same failures for the same request."""

import asyncio
import itertools
from typing import Any

import pytest

from engines.contract.base import EngineError, GenerateRequest
from engines.fake import FakeEngine, FakeOptions
from settings_schema import from_text


class VirtualClock:
    """Time that passes only in sleeps, so that delays can be asserted exactly."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def stamps(monkeypatch: pytest.MonkeyPatch, request: GenerateRequest, **options: Any) -> list[tuple[float, int]]:
    """When each chunk came, and its tokens."""
    clock = VirtualClock()
    monkeypatch.setattr("engines.fake.asyncio.get_running_loop", lambda: clock)
    monkeypatch.setattr("engines.fake.asyncio.sleep", clock.sleep)
    engine = FakeEngine(None, FakeOptions(**options))
    engine.load()

    async def collect() -> list[tuple[float, int]]:
        return [(clock.now, chunk.tokens) async for chunk in engine.generate(request)]

    return asyncio.run(collect())


REQUEST = GenerateRequest("p", tuple(range(10)), 4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [0, 0, 0, 0], id="no delays unless told"),
        pytest.param({"ttft": 0.3, "tpot": 0.02}, [0.3, 0.32, 0.34, 0.36], id="ttft, then tpot for each token"),
        pytest.param({"ttft_per_prompt_token": 0.01}, [0.1, 0.1, 0.1, 0.1], id="longer prompts take longer"),
        pytest.param({"stall_every": 2, "stall": 1.0}, [0, 0, 1, 1], id="a stall before every second token"),
        pytest.param({"tpot": 0.02, "tokens_per_chunk": 2}, [0, 0.04], id="two tokens a chunk take twice as long"),
    ],
)
def test_delays_are_as_told(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], expected: list[float]) -> None:
    got = stamps(monkeypatch, REQUEST, **options)
    assert [at for at, _ in got] == pytest.approx(expected)
    assert sum(tokens for _, tokens in got) == 4


def test_jitter_stays_within_its_share_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    request = GenerateRequest("p", (1,), 200)
    first = stamps(monkeypatch, request, tpot=0.1, jitter=0.5)
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(first)]
    assert 0.05 <= min(gaps) < 0.06
    assert 0.14 < max(gaps) <= 0.15
    assert stamps(monkeypatch, request, tpot=0.1, jitter=0.5) == first
    assert stamps(monkeypatch, request, tpot=0.1, jitter=0.5, seed=1) != first


def test_the_asked_share_of_requests_fails_and_always_the_same_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(prompt: int) -> bool:
        try:
            stamps(monkeypatch, GenerateRequest("p", (prompt,), 1), fail_rate=0.3)
        except EngineError:
            return True
        return False

    failed = [fails(prompt) for prompt in range(300)]
    assert 60 <= sum(failed) <= 120
    assert [fails(prompt) for prompt in range(300)] == failed


@pytest.mark.parametrize(
    ("given_text", "sentence"),
    [
        pytest.param({"ttft": "-1"}, "0 or more", id="a negative time"),
        pytest.param({"jitter": "2"}, "1 or less", id="a share over one"),
        pytest.param({"concurrency": "0"}, "1 or more", id="no slot at all"),
        pytest.param({"tokens_per_chunk": "x"}, "a whole number", id="not a number"),
    ],
)
def test_impossible_settings_are_refused(given_text: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        from_text(FakeOptions, given_text)


def test_none_is_a_value_where_it_may_be() -> None:
    assert from_text(FakeOptions, {"crash_after": "none"}).crash_after is None
    assert from_text(FakeOptions, {"crash_after": "3"}).crash_after == 3
