"""The port of a served engine, and that nobody else can take it between the choice and the start."""

import socket
from pathlib import Path

import httpx
import pytest

from loadtests.harness.command.server_process import ServerProcess, listen
from settings.schema import UserMistake


def test_the_first_free_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, listen([taken.getsockname()[1], 0]) as other:
        assert other.getsockname()[1] not in {0, taken.getsockname()[1]}


def test_a_chosen_port_that_is_taken_is_a_mistake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserMistake, match=rf"cannot serve on port {port} \(Address already in use\): give another"):
            listen([port])


def test_the_server_listens_on_the_port_that_was_bound_for_it(tmp_path: Path) -> None:
    listener = listen([0])
    port = listener.getsockname()[1]
    with ServerProcess("fake", ["tpot=0.001"], None, tmp_path / "server.log", listener) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        with pytest.raises(UserMistake):
            listen([port])
        server.wait_until_ready(lambda _: None)
        assert httpx.get(f"{server.url}/v1/engine", trust_env=False).json()["name"] == "fake"
    listen([port]).close()  # free again at once
