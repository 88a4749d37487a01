"""An engine's child process: crashes and hangs do not take the parent down."""

import asyncio
import dataclasses
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import psutil
import pytest
import uvloop

from engines.contract.errors import EngineCrashed, EngineUnavailable
from engines.process.supervisor import ChildEngine
from tests.support.engines.children import QUICK, answer, fake, request, until_ready


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 2, "signal 36")])
async def test_a_signal_fails_what_is_running_and_the_engine_comes_back(number: int, name: str) -> None:
    engine = fake(tpot="0.05")
    await engine.start()
    stream = engine.generate(request(1000))
    await anext(stream)
    assert engine.pid is not None
    os.kill(engine.pid, number)
    with pytest.raises(EngineCrashed, match=f"killed by {name}"):
        async for _ in stream:
            pass
    await asyncio.sleep(0.02)
    assert engine.state == "restarting"
    with pytest.raises(EngineUnavailable, match="restarting"):
        engine.generate(request())
    await until_ready(engine)
    assert engine.restarts == 1
    assert await answer(engine) == 5
    await engine.stop()


async def test_an_engine_that_its_first_request_ends_has_not_loaded() -> None:
    engine = fake(crash_after="1")
    engine.warm_up = lambda info: request()
    with pytest.raises(EngineUnavailable, match=r"its first request, .* ended it: .* exited with code 70"):
        await engine.start()
    await engine.stop()


async def test_stopping_while_a_hung_child_is_reaped_ends() -> None:
    """A kill may take effect late, for example while the kernel frees much memory."""
    engine = fake(hang_after="1")
    await engine.start()
    process, killed = engine._process, asyncio.Event()
    assert process is not None
    kill = process.kill

    def kill_late(because: str) -> None:
        killed.set()
        asyncio.get_running_loop().call_later(0.3, kill, because)

    process.kill = kill_late  # type: ignore[method-assign]
    stream = engine.generate(request())
    async with asyncio.timeout(10):
        await killed.wait()
        await engine.stop()
        with pytest.raises(EngineCrashed):
            await anext(stream)
    assert process.exited.done()
    assert not process.exited.cancelled()


async def test_a_busy_engine_is_not_taken_for_hung() -> None:
    engine = fake(ttft="1.5")  # longer than hung_after, but its heart beats
    await engine.start()
    assert await answer(engine) == 5
    assert engine.restarts == 0
    await engine.stop()


async def test_cancel_before_the_first_token_and_after_the_last() -> None:
    engine = fake(ttft="30")
    await engine.start()
    at_once = engine.generate(request())
    at_once.cancel()
    waiting = engine.generate(request())
    await asyncio.sleep(0.1)
    waiting.cancel()
    async with asyncio.timeout(2):
        await at_once.stopped()
        await waiting.stopped()
    assert (at_once.finish_reason, waiting.finish_reason) == ("cancelled", "cancelled")
    waiting.cancel()  # too late, and harmless
    await engine.stop()


async def test_an_engine_that_never_finishes_loading_is_given_up() -> None:
    engine = ChildEngine("fake", None, {"load_time": "600"}, watch=dataclasses.replace(QUICK, load_timeout=1.0))
    with pytest.raises(EngineUnavailable, match=r"not load within 1 s"):
        await engine.start()
    assert (engine.state, engine.pid) == ("failed", None)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_engine_leaves_nothing_open_however_often_it_starts(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def main() -> None:
        open_before = None
        for _ in range(3):
            engine = fake()
            await engine.start()
            assert await answer(engine) == 5
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            await asyncio.sleep(0.02)
            await until_ready(engine)
            await engine.stop()
            await asyncio.sleep(0.02)
            open_before = open_before or psutil.Process().num_fds()
            assert psutil.Process().num_fds() == open_before

    run(main())
