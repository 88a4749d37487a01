"""Servers that a command starts: they get their options, are waited for, and end with their process group."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from enginebench.settings.schema import UserMistake
from enginebench.settings.system import free_port
from loadtests.harness.command.restarted_server import RestartedServer, fill
from loadtests.harness.command.server_process import ServerFailed
from tests.support.servers.served import until

ROOT = Path(__file__).parents[3]
SERVE = f"{sys.executable} -m enginebench serve fake -o ttft={{ttft}} -o tpot=0.001 --port {{port}}"


def is_closed(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", trust_env=False)
    except httpx.ConnectError:
        return True
    return False


def no_longer_than(seconds: float) -> Callable[[float], None]:
    def check(waited: float) -> None:
        assert waited < seconds

    return check


@pytest.mark.parametrize(
    ("command", "options", "filled"),
    [
        ("serve --seqs {seqs} -n {n}", {"seqs": "16", "n": "a b"}, "serve --seqs 16 -n 'a b'"),
        ("""serve --json '{"a": 1}' {n}""", {"n": "2"}, """serve --json '{"a": 1}' 2"""),
    ],
)
def test_options_take_the_places_in_braces(command: str, options: dict[str, str], filled: str) -> None:
    assert fill(command, options) == filled


@pytest.mark.parametrize(
    ("command", "options", "sentence"),
    [
        ("serve {seqs}", {}, "--restart has {seqs}, which no -o seqs=… sets."),
        ("serve", {"n": "1"}, "-o n=… has no effect: write {n} into the command of --restart."),
    ],
)
def test_an_option_without_a_place_is_a_mistake(command: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        fill(command, options)
    assert str(mistake.value) == sentence


@pytest.mark.parametrize("wrapped", ["{}", "{}; true"])
def test_a_command_is_a_server_that_ends_with_the_block(wrapped: str, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = wrapped.format(fill(SERVE, {"ttft": "0.001", "port": str(port)}))
    with RestartedServer(command, url, tmp_path / "server.log") as server:
        server.wait_until_ready(no_longer_than(60))
        started, listening, ready = map(int, server.variables.values())
        assert started < listening <= ready
        assert server.alive
        assert httpx.get(f"{url}/v1/engine", trust_env=False).json()["options"]["ttft"] == 0.001
        with RestartedServer("sleep 60", url, tmp_path / "second.log") as second, pytest.raises(AssertionError):
            second.wait_until_ready(no_longer_than(0.5))  # the answers are those of the first
    assert is_closed(url)


def test_a_command_may_hand_the_server_over(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = fill(SERVE, {"ttft": "0.001", "port": str(port)})
    command = f"setsid {serve} >/dev/null 2>&1 & echo $! > {tmp_path}/pid"
    with RestartedServer(command, url, tmp_path / "server.log") as server:
        server.wait_until_ready(no_longer_than(60))
        assert server.alive
    assert not is_closed(url)
    subprocess.run(["kill", (tmp_path / "pid").read_text().strip()], check=True)


def test_a_failing_command_is_named_with_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with (
        RestartedServer("echo out of memory; exit 3", f"http://127.0.0.1:{free_port()}", log) as server,
        pytest.raises(ServerFailed) as failure,
    ):
        server.wait_until_ready(no_longer_than(10))
    assert not server.alive
    assert str(failure.value) == f"the command of --restart ended with exit code 3: out of memory\n(all output: {log})"


def test_the_group_ends_with_a_killed_starter(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from loadtests.harness.command.restarted_server import RestartedServer\n"
        "with RestartedServer('sleep 300 & echo $!; wait', 'http://127.0.0.1:9', Path(sys.argv[1])):\n"
        "    while not Path(sys.argv[1]).read_text().strip(): pass\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    log = tmp_path / "server.log"
    done = subprocess.run([sys.executable, "-c", code, str(log)], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    child = Path("/proc", log.read_text().strip(), "stat")
    until(lambda: not child.exists() or child.read_text().split()[2] == "Z", "the end of the process", 30)
