"""`enginebench run --repeat N --keep-loaded`: one server of each engine for all repeats, and none afterwards."""

import io
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from enginebench.records.files import read_meta, read_requests
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.loaded_servers import LoadedServers
from loadtests.harness.command.server_process import ServerProcess
from loadtests.harness.run.options import SERVER_READY, SERVER_STARTED
from tests.support.loadtests.run_command import start_run
from tests.support.servers.served import until

KEPT = ("concurrent", "--engine", "a=fake", "--engine", "b=fake", "-o", "ttft=0.02", "--keep-loaded", "--allow-invalid")


def in_order(runs: Path) -> list[Path]:
    return sorted((path.parent for path in runs.glob("*/meta.json")), key=lambda run: read_meta(run).started_at)


def test_a_server_that_has_died_is_started_again(tmp_path: Path) -> None:
    loading = {SERVER_STARTED, SERVER_READY}

    def start() -> ServerProcess:
        return ServerProcess("fake", [], None, tmp_path / "server.log")

    with LoadedServers(Terminal(Console(file=io.StringIO())), keep=True) as servers:
        with servers.loaded("other", start, "other") as (other, _):
            pass
        with servers.loaded("fake", start, "fake") as (first, variables):
            assert variables.keys() >= loading
        with servers.loaded("fake", start, "fake") as (same, variables):
            assert same is first
            assert not variables.keys() & loading
            assert isinstance(first, ServerProcess)
            process = psutil.Process(first.processes[0])
            process.kill()
            psutil.wait_procs([process], timeout=30)
        with servers.loaded("fake", start, "fake") as (again, variables):
            assert again is not first
            assert variables.keys() >= loading
        assert other.alive
        assert again.alive
    assert not other.alive
    assert not again.alive


def test_all_are_asked_to_end_before_any_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    wait, ask = ServerProcess.__exit__, ServerProcess.terminate

    def waits(self: ServerProcess, *raised: Any) -> None:
        calls.append("waited")
        wait(self, *raised)

    def asks(self: ServerProcess) -> None:
        calls.append("asked")
        ask(self)

    monkeypatch.setattr(ServerProcess, "__exit__", waits)
    monkeypatch.setattr(ServerProcess, "terminate", asks)
    with LoadedServers(Terminal(Console(file=io.StringIO())), keep=True) as servers:
        for name in ("one", "other"):
            with servers.loaded(name, lambda: ServerProcess("fake", [], None, tmp_path / "server.log"), name):
                pass
    assert calls[:3] == ["asked", "asked", "waited"]


def test_stopped_in_the_second_round_it_leaves_no_process_behind_and_keeps_the_records(tmp_path: Path) -> None:
    """SIGTERM becomes Ctrl-C, which goes the same way."""
    process = start_run(*KEPT, "--stages", "2", "--stage-seconds", "2", "--repeat", "2", "--runs", tmp_path)
    until(lambda: len(in_order(tmp_path)) >= 3, "the second round", 120)
    third = in_order(tmp_path)[2]
    until(lambda: sum(record.outcome == "ok" for record in read_requests(third)) >= 3, "three answers in it", 60)
    children = psutil.Process(process.pid).children(recursive=True)
    assert sum("serve" in child.cmdline() for child in children) == 2
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "what was recorded is in" in said
    assert "Traceback" not in said
    assert psutil.wait_procs(children, timeout=60)[1] == []
    outcomes = [record.outcome for record in read_requests(third)]
    assert outcomes.count("ok") >= 3
    assert set(outcomes) <= {"ok", "cut_off"}
