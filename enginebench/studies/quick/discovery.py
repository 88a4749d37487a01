"""Find a server on this machine, on the ports that engines listen on by default, if the user names none."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from enginebench.settings.schema import UserMistake, from_environment
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.questions import NoAnswer, Questions
from loadtests.harness.client.server_address import Address
from loadtests.harness.scenario import read
from loadtests.harness.settings.run_settings import RunSettings

PORTS: Mapping[int, str] = {
    8000: "vLLM's port, and enginebench's own",
    30000: "SGLang's port",
    8080: "llama.cpp's port, and TGI's",
    11434: "Ollama's port",
    1234: "LM Studio's port",
}
TIMEOUT = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class FoundServer:
    url: str
    port: str  # the engine that listens there by default
    models: tuple[str, ...]


def find_server(ports: Mapping[int, str] = PORTS) -> FoundServer | None:
    """Return the first server, in the order of the ports, that lists a model."""
    with ThreadPoolExecutor(len(ports)) as pool:
        servers = list(pool.map(_query, ports.items()))
    return next((server for server in servers if server is not None), None)


def _query(entry: tuple[int, str]) -> FoundServer | None:
    port, owner = entry
    url = f"http://127.0.0.1:{port}"
    try:
        listed = Questions(Address.parse(url), _access(url)).json("GET", "/v1/models", seconds=TIMEOUT)["data"]
        models = tuple(str(model["id"]) for model in listed)
    except (NoAnswer, KeyError, TypeError):  # nothing is listening, or it is not a model server
        return None
    return FoundServer(url, owner, models) if models else None


def _access(url: str) -> Access:
    """Return the key and the headers that the run will send; none if they are malformed, as the run will say."""
    try:
        settings: RunSettings = read(RunSettings(), from_environment(RunSettings))
        return settings.access(url, "chat")
    except UserMistake:
        return Access()
