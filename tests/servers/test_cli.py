"""`enginebench serve`: its messages and exit codes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess

import psutil
import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.settings.schema import table
from engines.contract.base import Launch
from engines.process.supervisor import Watch
from servers.settings import ServerSettings, server_settings
from tests.support.servers.served import COMMAND, ROOT, body, served, until


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(("vlm",), "no engine called `vlm`; did you mean `vllm`?", id="an unknown engine"),
        pytest.param(("fake", "-o", "ttft"), "setting is name=value", id="an option without a value"),
        pytest.param(("fake", "-o", "tpott=1"), "no option called `tpott`", id="an unknown option"),
        pytest.param(("fake", "-o", "ttft=soon"), "`ttft` is a number", id="an option of the wrong kind"),
        pytest.param(("fake", "-o", "ttft=-1"), "0 or more", id="an option out of range"),
        pytest.param(("fake", "--port", "70000"), "--port is 65535 or less, not 70000", id="a high port"),
        pytest.param(("fake", "--hung-after", "0"), "--hung-after is 1 or more, not 0", id="no patience"),
        pytest.param(("fake", "--host", "192.0.2.1"), "choose another --host", id="an address of others"),
        pytest.param(("transformers", "--model", "./nowhere"), "no model at ./nowhere", id="a model that is not there"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_two(arguments: tuple[str, ...], sentence: str) -> None:
    done = CliRunner().invoke(app, [*COMMAND[3:], *arguments])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_engines_own_server_counts_gpus_as_the_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    variables: dict[str, str] = {}

    def become(program: str, command: tuple[str, ...], environment: dict[str, str]) -> None:
        variables.update(environment)
        raise SystemExit(0)

    launch = Launch(("true",), environment={"UNWANTED": None, "WANTED": "2"})
    monkeypatch.setenv("UNWANTED", "1")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setattr("os.execve", become)
    monkeypatch.setattr("engines.models.fetch.fetch_and_show", lambda *given: None)
    monkeypatch.setattr("engines.process.engine_loading.own_server", lambda *given: launch)
    done = CliRunner().invoke(app, ["serve", "fake", "--own-server", "--port", "0"])
    assert done.exit_code == 0
    assert (variables.get("UNWANTED"), variables["WANTED"]) == (None, "2")
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_what_an_engine_lacks_is_said_before_a_model_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(
        "engines.transformers.TransformersEngine.why_not_here", classmethod(lambda cls: "it needs the moon.")
    )
    monkeypatch.setattr("engines.models.fetch.fetch_and_show", fetched)
    done = CliRunner().invoke(app, ["serve", "transformers", "--port", "0"])
    assert done.exit_code == 2
    assert done.stderr == "transformers cannot run here: it needs the moon.\n"


def test_a_port_in_use_is_reported_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*COMMAND, "fake", "--port", str(port), "-o", "load_time=50"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use); choose another --port" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("victim", "blow", "code", "sentence"),
    [
        pytest.param("engine", signal.SIGKILL, 2, "fake could not be loaded: ", id="an engine that dies while loading"),
        pytest.param("server", signal.SIGINT, 0, "stopping", id="a server that is stopped before it is ready"),
        pytest.param("server", signal.SIGKILL, -9, "loading fake", id="a server that is killed"),
    ],
)
def test_an_end_while_loading(victim: str, blow: signal.Signals, code: int, sentence: str) -> None:
    command = [*COMMAND, "fake", "-o", "load_time=60"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    server = psutil.Process(process.pid)
    engines: list[psutil.Process] = []

    def started() -> bool:  # beside it there is the guard of its process group
        engines[:] = [child for child in server.children() if "engines.process.worker" in child.cmdline()]
        return len(engines) == 1

    until(started, "the engine's process has been started")
    (engine,) = engines
    (engine if victim == "engine" else server).send_signal(blow)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == code, said
    assert sentence in said
    assert "Traceback" not in said
    until(lambda: not engine.is_running(), "the engine's process is gone")


def test_it_prints_its_address_and_stops_at_once_when_it_is_idle() -> None:
    with served() as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.url)
        assert server.client.get("/v1/models").json()["data"][0]["id"] == "fake"
        assert server.ask(1, model="fake").json()["model"] == "fake"
        assert server.ask(1, model="another").status_code == 404
        engine = server.engine_process()
        assert server.stop() == 0
        until(lambda: not engine.is_running(), "the engine's process is gone")


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with served(arguments=("--host", "::1")) as server:
        assert server.url.startswith("http://[::1]:")
        assert server.client.post("/v1/chat/completions", json=body()).status_code == 200


def test_the_key_comes_from_the_environment_and_is_removed_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEBENCH_API_KEY", " the-key ")
    settings = server_settings({})
    assert settings.api_key == "the-key"
    assert "ENGINEBENCH_API_KEY" not in os.environ
    assert "the-key" not in repr(settings)
    assert server_settings({}).api_key is None
    monkeypatch.setenv("ENGINEBENCH_API_KEY", "two words")
    with pytest.raises(ValueError, match="without spaces"):
        server_settings({})


def test_flags_count_before_variables_and_those_before_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEBENCH_PORT", "1")
    monkeypatch.setenv("ENGINEBENCH_QUEUE_SIZE", "2")
    settings = server_settings({"port": "3", "host": None})
    assert (settings.port, settings.queue_size, settings.host) == (3, 2, "127.0.0.1")


def test_the_documentation_lists_every_setting() -> None:
    documented = (ROOT / "docs/server.md").read_text()
    for declared in (ServerSettings, Watch):
        for row in table(declared).splitlines():
            assert row in documented
