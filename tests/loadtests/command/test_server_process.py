"""The port of a served engine, and that nobody else can take it between the choice and the start."""

import io
import socket
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from rich.console import Console

from loadtests.harness.command import measured_run
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.contenders import contenders
from loadtests.harness.command.job import Job
from loadtests.harness.command.measured_run import MeasuredRun, measure
from loadtests.harness.command.run_order import Repeat, prepared
from loadtests.harness.command.scenarios import find_scenario
from loadtests.harness.command.server_process import PORTS, ServerFailed, ServerProcess, listen
from servers.settings import ServerSettings

(FAKE,) = contenders(["fake"], [])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.of(find_scenario("concurrent"), {"runs": str(tmp_path)}, 1, [])


def test_the_first_free_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, listen([taken.getsockname()[1], 0]) as other:
        assert other.getsockname()[1] not in {0, taken.getsockname()[1]}


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerFailed, match=rf"^cannot serve on port {port} \(Address already in use\)\.$"):
            listen([port])


def test_the_server_listens_on_the_port_that_was_bound_for_it(tmp_path: Path) -> None:
    listener = listen([0])
    port = listener.getsockname()[1]
    with ServerProcess("fake", ["tpot=0.001"], None, tmp_path / "server.log", listener) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        with pytest.raises(ServerFailed):
            listen([port])
        server.wait_until_ready(lambda _: None)
        assert httpx.get(f"{server.url}/v1/engine", trust_env=False).json()["name"] == "fake"
    listen([port]).close()  # free again at once


def test_an_engine_is_served_on_port_8000_which_prometheus_and_the_other_commands_expect() -> None:
    targets = Path(__file__).parents[3] / "docker/prometheus/targets/servers.yml"
    assert PORTS[0] == ServerSettings().port == 8000
    assert all(f":{port}" in targets.read_text() for port in PORTS)


def test_the_first_port_is_used_where_it_is_free_and_another_is_said(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    said, urls = io.StringIO(), list[str]()

    def tested(job: Job, one: Any, url: str, folder: Path, *_: Any) -> MeasuredRun:
        urls.append(url)
        return MeasuredRun(folder, complete=True)

    with listen([0]) as first, listen([0]) as second:
        ports = [each.getsockname()[1] for each in (first, second)]
    monkeypatch.setattr(measured_run, "run_against", tested)
    monkeypatch.setattr(measured_run, "PORTS", ports)
    terminal = Terminal(Console(file=said, width=200))
    measure(job, FAKE, Repeat(0, "a"), terminal)
    assert "Port" not in said.getvalue()
    with listen(ports[:1]):
        measure(job, FAKE, Repeat(0, "a"), terminal)
    assert f"Port {ports[0]} is taken: the engine is served on port {ports[1]}." in said.getvalue()
    assert urls == [f"http://127.0.0.1:{port}" for port in ports]


def test_a_server_that_ended_during_the_run_is_said_and_the_run_is_not_complete(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def tested(*_: Any) -> MeasuredRun:
        (server,) = (child for child in psutil.Process().children() if "serve" in child.cmdline())
        server.kill()
        psutil.wait_procs([server])
        return MeasuredRun(tmp_path, complete=True)

    monkeypatch.setattr(measured_run, "run_against", tested)
    said = io.StringIO()
    assert not measure(job, FAKE, Repeat(0, "a"), Terminal(Console(file=said, width=200))).complete
    assert "fake: its server ended during the run; its output: " in said.getvalue()


def test_a_lone_server_of_ours_is_called_by_the_engine_that_it_names(job: Job, tmp_path: Path) -> None:
    with ServerProcess("fake", [], None, tmp_path / "server.log") as server:
        server.wait_until_ready(lambda _: None)
        (named,) = prepared(job, contenders([], [server.url]), 1)
    assert (named.name, named.url) == ("fake", server.url)
