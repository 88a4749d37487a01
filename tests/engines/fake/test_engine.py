"""The fake engine: exact delays, and the same failures for the same request."""

import asyncio
import itertools
import selectors
from typing import Any

import pytest

from engines.contract.base import GenerateRequest
from engines.contract.errors import EngineError
from engines.fake.engine import GRAIN, FakeEngine, FakeOptions


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it has nothing to do, so that delays can be asserted exactly."""

    def __init__(self) -> None:
        loop = self
        self.now = 0.0

        class Skipping(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                loop.now += timeout or 0
                return super().select(0)

        super().__init__(Skipping())

    def time(self) -> float:
        return self.now


Stamps = list[tuple[float, int]]  # when each chunk came, and its tokens


def stamps(*requests: GenerateRequest, **options: Any) -> list[Stamps]:
    """The answers to requests that arrive together."""
    engine = FakeEngine(None, FakeOptions(**options))
    engine.load()

    async def collect(request: GenerateRequest) -> Stamps:
        clock = asyncio.get_running_loop()
        return [(clock.time(), chunk.tokens) async for chunk in engine.generate(request)]

    async def together() -> list[Stamps]:
        return list(await asyncio.gather(*map(collect, requests)))

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(together())


REQUEST = GenerateRequest("p", tuple(range(10)), 4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [0, 0, 0, 0], id="no delays unless told"),
        pytest.param({"ttft": 0.3, "tpot": 0.02}, [0.3, 0.32, 0.34, 0.36], id="ttft, then tpot for each token"),
        pytest.param({"ttft_per_prompt_token": 0.01}, [0.1, 0.1, 0.1, 0.1], id="longer prompts take longer"),
        pytest.param({"step_per_running": 0.02}, [0.02, 0.04, 0.06, 0.08], id="steps may cost by request alone"),
        pytest.param({"stall_every": 2, "stall": 1.0}, [0, 0, 1, 1], id="a stall before every second token"),
        pytest.param({"tpot": 0.02, "tokens_per_chunk": 2}, [0, 0.04], id="two tokens a chunk take twice as long"),
    ],
)
def test_delays_are_as_told(options: dict[str, Any], expected: list[float]) -> None:
    (got,) = stamps(REQUEST, **options)
    assert [at for at, _ in got] == pytest.approx(expected)
    assert sum(tokens for _, tokens in got) == 4


def test_jitter_stays_within_its_share_and_repeats() -> None:
    request = GenerateRequest("p", (1,), 200)
    (first,) = stamps(request, tpot=0.1, jitter=0.5)
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(first)]
    assert 0.05 <= min(gaps) < 0.06
    assert 0.14 < max(gaps) <= 0.15
    assert stamps(request, tpot=0.1, jitter=0.5) == [first]
    assert stamps(request, tpot=0.1, jitter=0.5, seed=1) != [first]


def test_the_asked_share_of_requests_fails_and_always_the_same_ones() -> None:
    def fails(prompt: int) -> bool:
        try:
            stamps(GenerateRequest("p", (prompt,), 1), fail_rate=0.3)
        except EngineError:
            return True
        return False

    failed = [fails(prompt) for prompt in range(300)]
    assert 60 <= sum(failed) <= 120
    assert [fails(prompt) for prompt in range(300)] == failed


def test_many_requests_share_wake_ups_and_are_hardly_late() -> None:
    requests = [GenerateRequest("p", (number,), 20) for number in range(1000)]
    answers = stamps(*requests, ttft=0.1, tpot=0.05, jitter=0.5)
    alone = [stamps(request, ttft=0.1, tpot=0.05, jitter=0.5)[0] for request in requests[:50]]
    pairs = [both for got, told in zip(answers[:50], alone, strict=True) for both in zip(got, told, strict=True)]
    late = [at - due for (at, _), (due, _) in pairs]
    assert min(late) >= 0
    assert max(late) <= 1000 * GRAIN + 1e-9
    wake_ups = {at for answer in answers for at, _ in answer}
    assert len(wake_ups) < 3000, "of 20 000 tokens"


def test_a_common_batch_gives_everyone_a_token_at_the_end_of_each_step() -> None:
    """Two prompts of 10 tokens join together: 20 + 2 · 2 + 20 · 1 ms, then 24 ms a step, and 22 ms for the last one."""
    longer = GenerateRequest("p", tuple(range(10)), 5)
    four, five = stamps(REQUEST, longer, step=0.02, step_per_running=0.002, step_per_prompt_token=0.001)
    assert [at for at, _ in four] == pytest.approx([0.044, 0.068, 0.092, 0.116])
    assert [at for at, _ in five] == pytest.approx([0.044, 0.068, 0.092, 0.116, 0.138])


def test_a_request_waits_for_a_slot_of_the_batch() -> None:
    first, second = stamps(REQUEST, REQUEST, step=0.1, concurrency=1)
    assert [at for at, _ in first] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert [at for at, _ in second] == pytest.approx([0.5, 0.6, 0.7, 0.8])


def test_an_answer_that_stops_early_leaves_the_batch() -> None:
    """The second word stops it; the third step has begun by then, and from the fourth on the other one runs alone."""
    stopped = GenerateRequest("p", tuple(range(10)), 50, stop=("quick",))
    one, other = stamps(stopped, REQUEST, step=0.1, step_per_running=0.1)
    assert len(one) == 2
    assert [at for at, _ in other] == pytest.approx([0.3, 0.6, 0.9, 1.1])
