"""Several processes of one engine: who gets a request, what a crash takes with it, and who has which cores."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace

import psutil
import pytest

from enginebench.settings.schema import UserMistake
from engines.contract.base import GenerateRequest
from engines.contract.errors import EngineCrashed
from engines.contract.registry import check_options, engine_class
from engines.fake.engine import FakeEngine
from engines.machine.devices import usable_cores, visible_gpus
from engines.process.replicas import Replicas, Share, load_replicas, shares_of
from engines.process.stream import Stream
from engines.process.supervisor import ChildEngine, Watch
from tests.support.engines.nvml_stand_in import Gpu, install
from tests.support.engines.small_model import small_model
from tests.support.servers.served import served, until

WATCH = Watch(restart_first=0.05)


async def text_of(stream: Stream) -> str:
    return "".join([chunk.text async for ready in stream for chunk in ready])


@pytest.mark.parametrize(
    ("count", "each", "gpus", "cores", "shares"),
    [
        pytest.param(2, 1, [], [0, 1, 2, 3], [Share(cores=(0, 1)), Share(cores=(2, 3))], id="cores are divided"),
        pytest.param(2, 1, [], [0, 1, 4], [Share(cores=(0, 1)), Share(cores=(4,))], id="the first gets one more"),
        pytest.param(3, 1, [], [0, 1], [Share(cores=(0,)), Share(cores=(1,)), Share(cores=(0,))], id="too few cores"),
        pytest.param(2, 1, ["0", "1", "2"], [0], [Share(("0",)), Share(("1",))], id="a GPU each"),
        pytest.param(2, 2, ["4", "5", "6", "7"], [0], [Share(("4", "5")), Share(("6", "7"))], id="two GPUs each"),
    ],
)
def test_what_a_replica_may_use(
    count: int, each: int, gpus: Sequence[str], cores: Sequence[int], shares: list[Share]
) -> None:
    assert shares_of(count, each, gpus, cores) == shares


def test_too_few_gpus_are_refused_with_the_figures() -> None:
    with pytest.raises(ValueError, match="3 replicas with 2 GPUs each need 6; there are 4"):
        shares_of(3, 2, ["0", "1", "2", "3"], [0])


@pytest.mark.parametrize(
    ("device", "nvidia", "shares"),
    [
        pytest.param("cuda", ["4", "5"], [{"CUDA_VISIBLE_DEVICES": "4"}, {"CUDA_VISIBLE_DEVICES": "5"}], id="NVIDIA's"),
        pytest.param("cuda", [], [{"HIP_VISIBLE_DEVICES": "2"}, {"HIP_VISIBLE_DEVICES": "3"}], id="torch for ROCm"),
        pytest.param("rocm", [], [{"HIP_VISIBLE_DEVICES": "2"}, {"HIP_VISIBLE_DEVICES": "3"}], id="Burn for ROCm"),
        pytest.param("cpu", ["4", "5"], [{}, {}], id="an engine for CPUs beside GPUs"),
    ],
)
def test_each_replica_is_alone_on_its_gpu(
    device: str, nvidia: list[str], shares: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMD's, too: on one and the same, two would halve each other's speed, and nothing would say so."""
    monkeypatch.setattr(FakeEngine, "device_of", classmethod(lambda cls, options: device))
    monkeypatch.setattr("engines.process.replicas.visible_gpus", lambda: nvidia)
    monkeypatch.setattr("engines.process.replicas.amd_gpus", lambda: ["2", "3"])
    engine = load_replicas("fake", None, {"replicas": "2"}, WATCH)
    assert isinstance(engine, Replicas)
    assert [child._launch.environment for child in engine._children] == shares


async def test_an_engine_uses_the_gpus_of_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of the machine are not charged to it."""
    install(monkeypatch, [Gpu() for _ in range(5)])
    monkeypatch.setattr(FakeEngine, "device_of", classmethod(lambda cls, options: "cuda"))
    monkeypatch.setattr(FakeEngine, "gpus_of", classmethod(lambda cls, options: 2))
    engine = load_replicas("fake", small_model(), {"replicas": "2"}, WATCH)
    assert isinstance(engine, Replicas)
    assert engine.gpus is None, "before it is loaded"
    await engine.start()
    assert engine.gpus == (), "it computes on none"
    for child in engine._children:
        assert child.info is not None
        child.info = replace(child.info, device="cuda")
    assert engine.gpus == ("0", "1", "2", "3")
    await engine.stop()


def test_replicas_that_would_share_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "device_of", classmethod(lambda cls, options: "vulkan"))
    with pytest.raises(UserMistake, match="fake computes on vulkan here, where replicas cannot be given a GPU each"):
        load_replicas("fake", None, {"replicas": "2"}, WATCH)


@pytest.mark.parametrize(
    ("engine", "options", "on_gpus"),
    [
        ("transformers", {}, True),
        ("transformers", {"device": "cpu"}, False),
        ("fake", {}, False),
        ("mistralrs", {}, False),  # the wheel that is installed here is for the CPU
        ("openvino", {}, False),
        ("lmrs", {}, False),
        ("remote", {"url": "http://127.0.0.1:1/v1"}, False),
    ],
)
def test_engines_that_compute_on_a_cpu_share_its_cores_on_a_machine_with_a_gpu(
    engine: str, options: dict[str, str], on_gpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, [Gpu()])
    parsed = check_options(engine, options).parsed
    assert engine_class(engine).device_of(parsed).startswith("cuda") is on_gpus


@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        ("1,3", ["1", "3"]),
        ("", []),
        ("-1", []),
        ("GPU-ab12", ["GPU-ab12"]),
        ("0,9,1", ["0"]),  # as CUDA, which stops at the first that is none
        ("0,-1,1", ["0"]),
    ],
)
def test_only_visible_gpus_count(given: str, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu()] * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == gpus
    install(monkeypatch, [])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == [], "without a driver there is no GPU, whatever a profile sets"


def test_one_replica_is_the_engine_itself() -> None:
    assert isinstance(load_replicas("fake", None, {"replicas": "1"}, WATCH), ChildEngine)
    with pytest.raises(ValueError, match="option `replicas` is 1 or more, not 0"):
        load_replicas("fake", None, {"replicas": "0"}, WATCH)


def test_what_goes_before_the_command_goes_before_each() -> None:
    engine = load_replicas("fake", None, {"replicas": "2"}, WATCH, ("nice",))
    assert isinstance(engine, Replicas)
    assert [child._launch.prefix for child in engine._children] == [("nice",), ("nice",)]


async def test_requests_go_to_the_replica_with_the_fewest() -> None:
    engine = load_replicas("fake", None, {"replicas": "3", "tpot": "0.02", "concurrency": "4"}, WATCH)
    assert isinstance(engine, Replicas)
    info = await engine.start()
    assert (info.replicas, info.max_concurrency, engine.capacity, engine.replicas_ready) == (3, 12, 12, 3)
    streams = [engine.generate(GenerateRequest("", (number,), 20)) for number in range(7)]
    assert sorted(child.running for child in engine._children) == [2, 2, 3]
    texts = await asyncio.gather(*map(text_of, streams))
    assert len({len(text.split()) for text in texts}) == 1
    assert engine.running == 0
    await engine.stop()


async def test_a_crash_takes_only_the_requests_of_its_replica() -> None:
    engine = load_replicas("fake", None, {"replicas": "2", "tpot": "0.05", "concurrency": "4"}, WATCH)
    assert isinstance(engine, Replicas)
    await engine.start()
    capacities: list[int] = []
    engine.on_change = lambda: capacities.append(engine.capacity)
    first, second = (engine.generate(GenerateRequest("", (number,), 20)) for number in range(2))
    await anext(first)
    await anext(second)
    doomed = engine._children[0].pid
    assert doomed is not None
    os.kill(doomed, signal.SIGKILL)
    with pytest.raises(EngineCrashed):
        await text_of(first)
    assert (engine.state, engine.replicas_ready, capacities) == ("ready", 1, [4])
    third = engine.generate(GenerateRequest("", (3,), 2))  # there is a replica for it
    assert await text_of(third)
    assert await text_of(second)
    async with asyncio.timeout(20):
        while engine.replicas_ready < 2:
            await asyncio.sleep(0.02)
    assert (engine.restarts, capacities[-1]) == (1, 8)
    await engine.stop()
    assert engine.state == "stopped"


async def test_cpu_time_does_not_fall_when_a_replica_is_restarted() -> None:
    """Prometheus would take a lower sum for a counter that started again from 0, and add all of it."""

    async def cpu(engine: Replicas | ChildEngine) -> float:
        found = (await engine.stats()).cpu_seconds
        assert found is not None
        return found

    engine = load_replicas("fake", None, {"replicas": "2"}, WATCH)
    assert isinstance(engine, Replicas)
    await engine.start()
    before, doomed = await cpu(engine), engine._children[0].pid
    assert before > 0.05, "two interpreters have started"
    assert doomed is not None
    os.kill(doomed, signal.SIGKILL)
    async with asyncio.timeout(20):
        while engine.restarts == 0:
            assert await cpu(engine) >= before
            await asyncio.sleep(0.02)
        while engine.replicas_ready < 2:
            await asyncio.sleep(0.02)
    assert 1.2 * before < await cpu(engine) < 2.2 * before, "that of three processes"
    await engine.stop()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux binds processes to cores")
async def test_each_replica_has_its_share_of_the_cores() -> None:
    engine = load_replicas("fake", None, {"replicas": "2"}, WATCH)
    assert isinstance(engine, Replicas)
    await engine.start()
    cores = [psutil.Process(child.pid).cpu_affinity() for child in engine._children]
    assert cores == [list(share.cores) for share in shares_of(2, 1, [], usable_cores())]
    stats = await engine.stats()
    each = [(await child.stats()).memory_bytes or 0 for child in engine._children]
    assert (stats.memory_bytes or 0) > 1.5 * max(each), "that of both together"
    await engine.stop()


def test_a_server_says_how_many_there_are() -> None:
    with served("replicas=2", "concurrency=3") as server:
        info = server.client.get("/v1/engine").json()
        assert (info["replicas"], info["max_concurrency"]) == (2, 6)
        assert server.metric("engine_replicas") == 2
        assert server.ask(2).status_code == 200
        server.engine_process().kill()
        until(lambda: server.metric("engine_restarts_total") == 1, "the loss is noticed")
        assert server.ask(2).status_code == 200
