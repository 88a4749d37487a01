"""The images are built, and the compose file is brought up: server, Prometheus and Locust, hardened as they are.

make test-containers
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.containers import Containers, NoContainers, containers, images
from tests.support.prometheus import answers, until

pytestmark = pytest.mark.containers
IMAGES = {"server": "docker.io/enginebench/server:0.2.0-cpu", "load": "docker.io/enginebench/load:0.2.0"}  # as Compose
SERVER = "http://127.0.0.1:8000"
PROMETHEUS = "http://127.0.0.1:9090"
RUN = "20261122-100000-containers"
LOAD = ["-f", "loadtests/concurrent.py", "--host", "http://server:8000", "--headless", "--only-summary"]
LOAD += ["--stages", "2", "--stage-seconds", "12", "--output-tokens", "8", "--run-id", RUN]
LOAD += ["--exporter", "0.0.0.0:9646"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """With both images under the names that Compose gives them."""
    folder = tmp_path_factory.mktemp("containers")
    try:
        with containers(folder) as found, images(found, folder) as base:
            for target, name in IMAGES.items():
                found.build(target, name, base, EXTRAS="")
            yield found
    except NoContainers as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def up(engine: Containers) -> Iterator[Containers]:
    """Server and Prometheus."""
    try:
        engine.compose("up", "--detach", "--no-build", "server", "prometheus")
        for url in (SERVER, PROMETHEUS):
            path = "/ready" if url == SERVER else "/-/ready"
            with httpx.Client(base_url=url) as client:
                until(lambda client=client, path=path: answers(client, path), f"{url}{path} answers")  # type: ignore[misc]
        yield engine
    finally:
        engine.compose("down", "--volumes", "--remove-orphans", "--timeout", "10")


def inspected(engine: Containers, kind: str, name: str) -> dict[str, Any]:
    (found,) = json.loads(engine.run(kind, "inspect", name))
    document: dict[str, Any] = found
    return document


def container(engine: Containers, service: str) -> str:
    return engine.compose("ps", "--quiet", service).strip()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_a_user_without_rights_and_lists_its_packages(engine: Containers, image: str) -> None:
    config = inspected(engine, "image", IMAGES[image])["Config"]
    assert config["User"] == "10001"
    packages = engine.run("run", "--rm", "--entrypoint", "cat", IMAGES[image], config["Labels"]["enginebench.packages"])
    assert "locust==" in packages
    assert "torch==" not in packages
    who = engine.run("run", "--rm", "--read-only", "--entrypoint", "id", IMAGES[image], "-u")
    assert who.strip() == "10001"


def test_the_rust_engines_of_the_image_answer(engine: Containers) -> None:
    """Built by its own stage: without optimisation where no registry is reached, and so with a model of no size."""
    sizes = ["--prefill", "32", "--generate", "10", "--batch", "1", "--repeat", "1", "--samples", "1", "--warm-up", "0"]
    words = ["bench", "candle", "burn", "--model", "random:llama-3.2-tiny", *sizes, "--json"]
    printed = engine.run("run", "--rm", "--no-healthcheck", IMAGES["server"], *words, timeout=600)
    results = json.loads(printed)["results"]
    assert [(one["engine"], one["failure"]) for one in results] == [("candle", None), ("burn", None)]


def test_a_server_is_healthy_and_answers(up: Containers) -> None:
    until(lambda: _is_healthy(up), "the server is healthy")
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "ignore_eos": True}
    answer = httpx.post(f"{SERVER}/v1/chat/completions", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("service", ["server", "prometheus"])
def test_a_container_is_locked_down(up: Containers, service: str) -> None:
    host = inspected(up, "container", container(up, service))["HostConfig"]
    assert host["ReadonlyRootfs"] is True
    assert "no-new-privileges" in " ".join(host["SecurityOpt"])
    status = up.run("exec", container(up, service), "cat", "/proc/1/status")
    capabilities = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap"))
    assert int(capabilities["CapEff"], 16) == 0


def test_a_load_test_is_seen_by_prometheus_and_leaves_its_records(up: Containers) -> None:
    until(lambda: _is_healthy(up), "the server is healthy, for which the load test waits")
    up.compose("run", "--detach", "--no-deps", "--use-aliases", "--name", "enginebench-load-test", "load", *LOAD)
    with httpx.Client(base_url=PROMETHEUS, timeout=30) as api:
        until(lambda: _value(api, 'up{job="enginebench"}') == 1, "Prometheus scrapes the server")
        until(lambda: _value(api, 'up{job="enginebench-load"}') == 1, "Prometheus scrapes the load test")
        ended = 'sum(enginebench_load_requests_total{outcome="ok"})'
        until(lambda: (_value(api, ended) or 0) > 0, "Prometheus has seen requests end")
        served = 'sum(enginebench_requests_total{outcome="ok"})'
        until(lambda: (_value(api, served) or 0) > 0, "and the server's count of them")
    assert up.run("wait", "enginebench-load-test", timeout=120).strip() == "0", up.run("logs", "enginebench-load-test")
    listed = up.compose("run", "--rm", "--no-deps", "--entrypoint", "cat", "load", f"runs/{RUN}/meta.json")
    assert json.loads(listed)["run_id"] == RUN
    assert json.loads(listed)["engine"]["name"] == "fake"


def _is_healthy(up: Containers) -> bool:
    name = container(up, "server")
    if up.program == "podman":  # its timers are systemd's; elsewhere it checks when it is asked
        up.succeeds("healthcheck", "run", name)
    return bool(inspected(up, "container", name)["State"]["Health"]["Status"] == "healthy")


def _value(api: httpx.Client, expr: str) -> float | None:
    found = api.get("/api/v1/query", params={"query": expr}).json()["data"]["result"]
    return float(found[0]["value"][1]) if found else None
