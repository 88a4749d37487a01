"""Profilers inside the engine's process, asked for by the protocol."""

import asyncio
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from engines.contract.errors import EngineError
from engines.contract.protocol import Profile, Profiled, decode_to_child, decode_to_parent, encode
from engines.process.loading import load_engine
from engines.process.own_profile import start
from loadtests.harness.profiling.profilers import PROFILERS
from tests.support.engines.children import answer

TORCH, MEMRAY = (next(one for one in PROFILERS if one.name == name) for name in ("torch", "memray"))


def test_the_messages_are_lines() -> None:
    for asked in (Profile("torch", Path("/tmp/x")), Profile("torch", Path("/tmp/x"), on=False)):
        assert decode_to_child(encode(asked)) == asked
    for answered in (Profiled(), Profiled("it failed.")):
        assert decode_to_parent(encode(answered)) == answered


def test_torch_sees_what_other_threads_compute(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    counted = iter([100, 110])
    end = start("torch", tmp_path / "it", lambda: next(counted))
    thread = threading.Thread(target=lambda: [torch.ones(64, 64) @ torch.ones(64, 64) for _ in range(20)])
    thread.start()
    thread.join()
    end()
    hot = {one.name: one for one in TORCH.read(tmp_path / "it").hot}
    assert hot["aten::mm"].calls == 2.0  # 20 in 10 tokens


def test_an_engine_profiles_itself_while_it_answers_and_goes_on(tmp_path: Path) -> None:
    if find_spec("memray") is None:
        pytest.skip("memray is not installed")

    async def profiled() -> int:
        engine = load_engine("fake")
        await engine.start()
        try:
            await engine.profile("memray", tmp_path / "it", on=True)
            await answer(engine)
            await engine.profile("memray", tmp_path / "it", on=False)
            with pytest.raises(EngineError, match="there is no profiler called gprof"):
                await engine.profile("gprof", tmp_path / "it", on=True)
            return await answer(engine)
        finally:
            await engine.stop()

    assert asyncio.run(profiled())
    seen = MEMRAY.read(tmp_path / "it")
    assert seen.unit == "B"
    assert seen.total > 0
