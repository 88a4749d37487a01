"""Which other process holds the CPUs."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from loadtests.harness.recording.cpu_holder import CpuTimes, ProcessTime

ME, MASTER, WORKER, SERVER, SHELL = 10, 9, 11, 20, 1


def processes(forked: bool, **cpu: float) -> dict[int, ProcessTime]:
    """This process, which a master of the same name forked or a shell started; another worker; and a server."""
    parent = ProcessTime("locust", SHELL, 9, cpu.get("master", 0.0)) if forked else ProcessTime("bash", 0, 1, 0.0)
    return {
        MASTER: parent,
        ME: ProcessTime("locust", MASTER, 9, cpu.get("me", 0.0)),
        WORKER: ProcessTime("locust", MASTER, 9, cpu.get("worker", 0.0)),
        SERVER: ProcessTime("vllm", SHELL, 20, cpu.get("server", 0.0)),
    }


@pytest.mark.parametrize(
    ("forked", "used", "expected"),
    [
        pytest.param(True, {"me": 9.0, "master": 8.0, "worker": 8.0, "server": 3.0}, ("vllm", 1.5), id="not our own"),
        pytest.param(False, {"me": 9.0, "worker": 8.0, "server": 3.0}, ("locust", 4.0), id="another load test's"),
        pytest.param(True, {"me": 9.0, "server": 0.1}, None, id="none used much"),
    ],
)
def test_the_other_process_that_used_the_most(
    monkeypatch: pytest.MonkeyPatch, forked: bool, used: dict[str, float], expected: tuple[str, float] | None
) -> None:
    monkeypatch.setattr("os.getpid", lambda: ME)
    monkeypatch.setattr("os.getppid", lambda: MASTER)
    before, after = CpuTimes(100.0, processes(forked)), CpuTimes(102.0, processes(forked, **used))
    assert after.holder_since(before) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="other processes are read in /proc")
def test_a_process_that_spins_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            first = CpuTimes.read()
            seen = first.processes[spinning.pid]
            while (now := CpuTimes.read().processes[spinning.pid]).cpu < seen.cpu + 0.05:
                pass
        finally:
            spinning.kill()
    assert now.name.startswith("python")


@pytest.mark.skipif(sys.platform != "linux", reason="other processes are read in /proc")
def test_without_a_free_descriptor_no_other_process_is_seen() -> None:
    """As in a run that took them all: its telemetry goes on."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        seen = CpuTimes.read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert seen.processes == {}
    assert CpuTimes.read().holder_since(seen) is None
