"""Processes under an engine: their memory and CPU time are counted, and none of them outlives it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from engines.contract.base import GenerateRequest
from engines.contract.errors import EngineCrashed, FatalError
from engines.process.supervisor import ChildEngine
from tests.support.engines.children import QUICK
from tests.support.servers.served import until

ROOT = Path(__file__).parents[3]
ENGINE = """
import os, signal, subprocess, sys, time
from dataclasses import dataclass
from engines.contract.base import BlockingEngine, Chunk, EngineInfo
from engines.contract.errors import FatalError
from enginebench.settings.schema import setting

@dataclass(frozen=True, slots=True)
class Options:
    file: str = setting("", "where to write the pids")

class FamilyEngine(BlockingEngine):
    Options = Options

    def load(self):
        code = "import time; b = bytearray(100_000_000); del b; x = sum(range(3_000_000)); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)
        deaf = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; sleep 600; sleep 600"], stdin=subprocess.DEVNULL)
        with open(self.options.file, "a") as file:
            file.write(f"{os.getpid()} {child.pid} {deaf.pid}\\n")
        return EngineInfo("family", "1", "python", "m", "none", "cpu", "none", 4, 4096)

    def generate_blocking(self, request):
        match request.prompt:
            case "crash":
                print("the last words", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "fatal":
                raise FatalError("the CUDA context is lost.")
        yield Chunk("x", 1, "length")
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "family_engine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    return "family_engine:FamilyEngine"


def pids(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text().split()]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def request(engine: ChildEngine, prompt: str) -> str:
    stream = engine.generate(GenerateRequest(prompt, (1,), 1))
    return "".join([chunk.text async for ready in stream for chunk in ready])


@pytest.mark.parametrize(
    ("prompt", "error", "sentence"),
    [
        pytest.param("crash", EngineCrashed, "SIGSEGV", id="a crash"),
        pytest.param("hang", EngineCrashed, "sent nothing", id="a hang"),
        pytest.param("fatal", FatalError, "the CUDA context is lost", id="an error after which it cannot continue"),
    ],
)
async def test_the_engine_is_replaced_with_all_its_processes(
    prompt: str, error: type[Exception], sentence: str, target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pids"
    engine = ChildEngine("family", None, {"file": str(file)}, watch=QUICK, target=target)
    await engine.start()
    first = pids(file)
    with pytest.raises(error, match=sentence):
        await request(engine, prompt)
    async with asyncio.timeout(20):
        while engine.restarts == 0:
            await asyncio.sleep(0.02)
        await engine.until_ready()
    assert await request(engine, "more") == "x"
    assert all(map(gone, first))
    await engine.stop()
    assert len(pids(file)) == 6
    until(lambda: all(map(gone, pids(file))), "all processes of both engines have ended")
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "the engine's process ended" in told
    assert ("the last words" in told) is (prompt == "crash")


async def test_the_next_engine_waits_for_the_memory_of_killed_processes(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that holds much memory ends some time after its kill; here the kill itself comes late."""
    file, kill = tmp_path / "pids", os.killpg

    def killpg(group: int, signal: int) -> None:
        if signal == 0:
            kill(group, 0)
        else:
            threading.Timer(1.5, kill_if_there, (group, signal)).start()

    def kill_if_there(group: int, signal: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            kill(group, signal)

    monkeypatch.setattr(os, "killpg", killpg)
    engine = ChildEngine("family", None, {"file": str(file)}, watch=QUICK, target=target)
    await engine.start()
    leader, *others = pids(file)
    with pytest.raises(EngineCrashed):
        await request(engine, "crash")
    assert gone(leader)
    assert not any(map(gone, others))
    async with asyncio.timeout(20):
        while engine.restarts == 0:
            assert len(pids(file)) == 3, "the next engine was started beside them"
            await asyncio.sleep(0.02)
    assert all(map(gone, others))
    await engine.until_ready()
    await engine.stop()
    assert all(map(gone, pids(file))), "memory is free when the engine is said to have stopped"


SERVER = """
import sys
from engines.process.supervisor import ChildEngine
from engines.process.supervisor import Watch
from servers.app import create_app
from servers.http.address import listen
from servers.openai.prompts import ByteTokenizer
from servers.serve import run
from servers.settings import ServerSettings
sys.path.insert(0, sys.argv[1])
settings = ServerSettings(port=0)
watch = Watch(stop_grace=1.0)
engine = ChildEngine("family", None, {"file": sys.argv[2]}, watch=watch, target="family_engine:FamilyEngine")
run(create_app(engine, ByteTokenizer(), settings), listen(settings))
"""


@pytest.mark.parametrize("hung", [False, True], ids=["at work", "hung"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "asked to stop"])
def test_nothing_outlives_a_server(end: signal.Signals, hung: bool, target: str, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    command = [sys.executable, "-c", SERVER, str(tmp_path), str(file)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert any(" is ready at " in line for line in server.stderr)
        started = pids(file)
        family = [child.pid for child in psutil.Process(server.pid).children(recursive=True)]
        assert set(started) < set(family), "the engine, what it started, and the guard"
        if hung:
            os.kill(started[0], signal.SIGSTOP)
        server.send_signal(end)
        assert server.wait(30) == (0 if end == signal.SIGTERM else -end)
    until(lambda: all(map(gone, family)), "all processes have ended")


async def test_memory_and_cpu_time_are_those_of_all_processes(target: str, tmp_path: Path) -> None:
    engine = ChildEngine("family", None, {"file": str(tmp_path / "pids")}, watch=QUICK, target=target)
    await engine.start()
    async with asyncio.timeout(30):
        while ((await engine.stats()).memory_peak_bytes or 0) < 110_000_000:
            await asyncio.sleep(0.05)
        while ((stats := await engine.stats()).memory_bytes or 0) > 100_000_000:
            await asyncio.sleep(0.05)
    assert stats.memory_bytes is not None
    assert stats.memory_peak_bytes is not None
    assert stats.memory_bytes < 100_000_000 < stats.memory_peak_bytes < 400_000_000
    assert stats.cpu_seconds is not None
    assert stats.cpu_seconds > 0.05
    await engine.stop()
