"""A real server: `enginebench serve` in a separate process, on a free port."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.support.forked import POSSIBLE, Forked

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "enginebench", "serve", "--port", "0")
HELD = ("typer", "uvloop", "httptools", "servers.cli", "servers.app", "servers.serve", "servers.openai.prompts")
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


@dataclass
class RunningServer:
    """`client` sends requests to the server; `process` is the server's own."""

    url: str
    process: subprocess.Popen[str] | Forked
    client: httpx.Client

    def ask(self, tokens: int = 4, path: str = CHAT, **fields: Any) -> httpx.Response:
        """Return an answer that is not streamed."""
        return self.client.post(path, json=body(tokens, path, **fields))

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the value of a scraped sample by its name and some of its labels; `None` if it is missing."""
        for family in text_string_to_metric_families(self.client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == f"enginebench_{name}" and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return None

    def connect(self) -> socket.socket:
        """Return a plain socket, for requests that a well-behaved client would not send."""
        return socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), timeout=20)

    def engine_process(self) -> psutil.Process:
        """Return the engine's process. A process that has just been started has no command line of its own yet."""
        for _ in range(100):
            children = psutil.Process(self.process.pid).children()  # the other child is the guard of its process group
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    if "engines.process.worker" in child.cmdline():
                        return child
            time.sleep(0.05)
        raise AssertionError("there is no process of the engine")

    def stop(self, timeout: float = 20) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


def body(tokens: int = 4, path: str = CHAT, **fields: Any) -> dict[str, Any]:
    question = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    return question | {"max_tokens": tokens, "temperature": 0} | fields


def served(
    *options: str, engine: str = "fake", arguments: tuple[str, ...] = (), environment: Mapping[str, str] = {}
) -> AbstractContextManager[RunningServer]:
    """Return a server with the fake engine that is ready for requests: `served("ttft=0.3")` sets an option."""
    settings = [part for option in options for part in ("-o", option)]
    return running([*COMMAND, engine, *settings, *arguments], environment)


@contextmanager
def running(command: list[str], environment: Mapping[str, str] = {}, cwd: Path = ROOT) -> Iterator[RunningServer]:
    """Start any program that serves, and prints its address as `enginebench serve` does."""
    with started(command, environment, cwd) as (server, _):
        yield server


@contextmanager
def started(
    command: list[str], environment: Mapping[str, str] = {}, cwd: Path = ROOT
) -> Iterator[tuple[RunningServer, str]]:
    """Do the same, and also yield the standard error up to the line that says that the server is ready."""
    process = _begun(command, os.environ | environment, cwd)
    try:
        assert process.stderr is not None
        output = ""
        for line in process.stderr:
            output += line
            if address := re.search(r"http://\S+", line):
                url = address[0]
            if "ready at" in line:
                break
        else:
            raise AssertionError(f"the server ended: {output}")
        with httpx.Client(base_url=url, timeout=30, verify=False) as client:
            yield RunningServer(url, process, client), output
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        if process.stderr is not None:
            process.stderr.close()


def _begun(command: list[str], environment: Mapping[str, str], cwd: Path) -> subprocess.Popen[str] | Forked:
    if POSSIBLE and command[1:3] == ["-m", "enginebench"]:
        return Forked(HELD, command[1:], cwd, environment)
    return subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True)


def until(condition: Any, what: str, seconds: float = 15) -> None:
    """Wait until `condition()` is true; fail with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
