"""How OpenVINO's pipeline is stepped, with a stand-in; with the library itself by `make test-installed`."""

import asyncio
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engines.contract.errors import FatalError
from engines.openvino import Piece, Stepper


class Handle:
    def __init__(self, tokens: int) -> None:
        self.left, self.ready, self.cancelled = tokens, [], False  # type: ignore[var-annotated]

    def can_read(self) -> bool:
        return bool(self.ready)

    def read(self) -> dict[int, Any]:
        return {0: self.ready.pop(0)}

    def cancel(self) -> None:
        self.left, self.cancelled = 0, True


class Pipeline:
    """A token for every request in each step. `threads` are those that touched it."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.threads: set[str] = set()
        self.breaks = False

    def add_request(self, id: int, prompt: Any, config: Any) -> Handle:
        self.threads.add(threading.current_thread().name)
        self.handles.append(Handle(config.max_new_tokens))
        return self.handles[-1]

    def has_non_finished_requests(self) -> bool:
        return any(handle.left for handle in self.handles)

    def step(self) -> None:
        self.threads.add(threading.current_thread().name)
        if self.breaks:
            raise RuntimeError("out of memory")
        for handle in self.handles:
            if handle.left:
                handle.left -= 1
                reason = SimpleNamespace(name="NONE" if handle.left else "LENGTH")
                handle.ready.append(SimpleNamespace(generated_ids=[handle.left], finish_reason=reason))


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    module = ModuleType("openvino")
    module.Tensor = lambda array: array  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino", module)
    return Pipeline()


def wanted(tokens: int) -> Any:
    return SimpleNamespace(max_new_tokens=tokens)


async def answer(stepper: Stepper, tokens: int) -> list[Piece]:
    running = stepper.add((1, 2), wanted(tokens))
    pieces: list[Piece] = []
    while not pieces or pieces[-1][1] == "NONE":
        pieces.append(await running.pieces())
    running.leave()
    return pieces


def test_requests_join_and_leave_between_steps_on_one_thread(pipeline: Pipeline) -> None:
    async def main() -> None:
        stepper = Stepper(pipeline)
        first, second = await asyncio.gather(answer(stepper, 5), answer(stepper, 2))
        assert [ids for ids, _ in first] == [[4], [3], [2], [1], [0]]
        assert [reason for _, reason in second] == ["NONE", "LENGTH"]
        assert await answer(stepper, 1) == [([0], "LENGTH")]
        stepper.stop()
        assert pipeline.threads == {"openvino-steps"}

    asyncio.run(main())


def test_a_request_that_is_left_is_cancelled(pipeline: Pipeline) -> None:
    async def main() -> None:
        stepper = Stepper(pipeline)
        running = stepper.add((1,), wanted(10**9))
        await running.pieces()
        running.leave()
        async with asyncio.timeout(10):
            while not pipeline.handles[0].cancelled:
                await asyncio.sleep(0.001)
        assert await answer(stepper, 1) == [([0], "LENGTH")]
        stepper.stop()

    asyncio.run(main())


def test_a_pipeline_that_fails_ends_every_request(pipeline: Pipeline) -> None:
    async def main() -> None:
        stepper = Stepper(pipeline)
        pipeline.breaks = True
        running = stepper.add((1,), wanted(3))
        with pytest.raises(FatalError, match="OpenVINO failed: out of memory"):
            await running.pieces()
        stepper.stop()

    asyncio.run(main())
