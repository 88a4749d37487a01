"""A real Prometheus scrapes a real server under real load, and answers every question that the dashboard asks.

Two targets: the fake engine behind the whole server, as people run it; and what the same code says on a machine with a
GPU (`gpu_server.py`), because most machines that run this suite have none. Prometheus reads the project's own
configuration and rules, only five times as often.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from grafana.build import TARGET
from tests.support.gpu_server import GPU_ENGINE, GPU_JOULES_PER_TOKEN, gpu_server

DOCKER = Path(__file__).parents[2] / "docker"
BOARD: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
AT_FIRST = {name: VARIABLES[name]["current"]["value"] for name in ("slo_ttft", "slo_e2e")}

# Absent, not zero, without a GPU or where an engine does not tell: these are asked of the second target.
ONLY_WITH_A_GPU = re.compile(r"enginebench_(gpu_|kv_cache_usage_ratio|engine_device_memory_bytes)")

SCRAPES = 10  # one a second
USERS, PLACES, QUEUE = 16, 4, 8  # so four of the users find the queue full
TTFT, TPOT, TOKENS = 0.05, 0.002, 16

Program = Callable[[str], str]


class Load:
    """Users who ask again as soon as they have an answer, one who leaves early, and one who asks wrongly."""

    def __init__(self, server: str) -> None:
        self._url = f"http://{server}/v1/chat/completions"
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        with httpx.Client(
            timeout=30, verify=False
        ) as alone:  # once while there is certainly a place: later it may find none
            self.outcomes[self._leave(alone)] += 1
        users = [self._ask] * USERS + [self._leave, self._ask_wrongly]
        self._threads = [threading.Thread(target=self._repeat, args=(once,), daemon=True) for once in users]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let everybody finish."""
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _repeat(self, once: Callable[[httpx.Client], str]) -> None:
        with httpx.Client(timeout=30, verify=False) as client:
            while not self._over.is_set():
                outcome = once(client)
                with self._lock:
                    self.outcomes[outcome] += 1
                if outcome != "ok":
                    self._over.wait(0.2)

    def _body(self, tokens: int, **fields: Any) -> dict[str, Any]:
        return {
            "messages": [{"role": "user", "content": "How are you?"}],
            "max_tokens": tokens,
            "stream": True,
            "temperature": 0,
        } | fields

    def _ask(self, client: httpx.Client) -> str:
        answer = client.post(self._url, json=self._body(TOKENS))
        return {200: "ok", 429: "rejected"}.get(answer.status_code, f"HTTP {answer.status_code}: {answer.text}")

    def _leave(self, client: httpx.Client) -> str:
        with client.stream("POST", self._url, json=self._body(100_000)) as answer:
            if answer.status_code == 429:
                return "rejected"
            next(answer.iter_lines())
        return "cancelled"

    def _ask_wrongly(self, client: httpx.Client) -> str:
        answer = client.post(self._url, json=self._body(TOKENS, temperature="hot"))
        return "bad_request" if answer.status_code == 400 else f"HTTP {answer.status_code}: {answer.text}"


@dataclass(frozen=True)
class Watched:
    """A Prometheus that saw both targets under load, until `at`; and what the clients counted in the end."""

    api: httpx.Client
    at: float
    server: str
    gpu_server: str
    outcomes: Counter[str]

    def ask(self, expr: str, at: float | None = None) -> list[dict[str, Any]]:
        answer = self.api.get("/api/v1/query", params={"query": expr, "time": at or self.at}).json()
        assert answer["status"] == "success", f"{expr}: {answer}"
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    def value(self, expr: str, at: float | None = None) -> float:
        (series,) = self.ask(expr, at)
        return float(series["value"][1])

    def fill_in(self, expr: str, *, on_gpu: bool) -> str:
        """What Grafana would send while one server is chosen."""
        engine, instance = (GPU_ENGINE, self.gpu_server) if on_gpu else ("fake", self.server)
        chosen = AT_FIRST | {"engine": engine, "instance": instance.replace(".", r"\\."), "__rate_interval": "10s"}
        return re.sub(r"\$(\w+)", lambda match: chosen[match[1]], expr)


@pytest.fixture(scope="module")
def watched(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    prometheus, folder = program("prometheus"), tmp_path_factory.mktemp("prometheus")
    with _server() as server, gpu_server() as on_gpu, _prometheus(prometheus, folder, server, on_gpu) as api:
        scraped = "count_over_time(enginebench_engine_max_concurrency[5m])"
        load = Load(server)
        try:
            _until(lambda: _answers(api, f"{scraped} >= {SCRAPES}") == 2, "Prometheus has scraped both servers")
            at = time.time()
        finally:
            load.stop()
        ended = sum(load.outcomes.values())
        counted = f'sum(enginebench_requests_total{{instance="{server}"}})'
        _until(lambda: _answers(api, f"{counted} >= {ended}") == 1, f"Prometheus has seen all {ended} requests")
        yield Watched(api, at, server, on_gpu, load.outcomes)


@contextmanager
def _server() -> Iterator[str]:
    """The fake engine behind the whole server, as people start it; gives its `host:port`."""
    port = _free_port()
    command = [Path(sys.executable).parent / "enginebench", "serve", "--engine", "fake", "--port", str(port)]
    options = {"ttft": TTFT, "tpot": TPOT, "concurrency": PLACES}
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    command += ["--queue-size", str(QUEUE)]
    with _running(command), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        _until(lambda: _ready(client, "/ready"), "the server is ready")
        yield f"127.0.0.1:{port}"


@contextmanager
def _prometheus(program: str, folder: Path, *targets: str) -> Iterator[httpx.Client]:
    """Prometheus with the project's configuration, but once a second; gives a client for its API."""
    configuration = (DOCKER / "prometheus.yml").read_text()
    for setting in ("scrape_interval: 5s", "scrape_timeout: 4s", "evaluation_interval: 15s"):
        assert setting in configuration
        configuration = configuration.replace(setting, f"{setting.split(':')[0]}: 1s")
    (folder / "prometheus.yml").write_text(configuration)
    (folder / "targets.yml").write_text(json.dumps([{"targets": targets}]))
    shutil.copy(DOCKER / "rules.yml", folder)
    address = f"127.0.0.1:{_free_port()}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with _running(command), httpx.Client(base_url=f"http://{address}", timeout=30) as api:
        _until(lambda: _ready(api, "/-/ready"), "Prometheus is ready")
        yield api


@contextmanager
def _running(command: list[Any]) -> Iterator[None]:
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _ready(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def _answers(api: httpx.Client, expr: str) -> int:
    return len(api.get("/api/v1/query", params={"query": expr}).json()["data"]["result"])


def _until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_query_of_the_dashboard_is_answered_with_data(watched: Watched, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expr = watched.fill_in(target["expr"], on_gpu=bool(ONLY_WITH_A_GPU.search(target["expr"])))
        series = watched.ask(expr)
        assert series, expr
        assert any(math.isfinite(float(one["value"][1])) for one in series), f"{expr}: {series}"
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert all(named <= set(one["metric"]) for one in series), f"{target['legendFormat']}: {series}"


def test_without_a_gpu_its_panels_are_empty_and_not_zero(watched: Watched) -> None:
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    asked = [expr for expr in queries if ONLY_WITH_A_GPU.search(expr)]
    assert len(asked) > 10
    assert [expr for expr in asked if watched.ask(watched.fill_in(expr, on_gpu=False))] == []


def test_two_engines_stand_side_by_side(watched: Watched) -> None:
    expr = PANELS[0]["targets"][0]["expr"]
    both = expr.replace("$engine", f"(fake|{GPU_ENGINE})").replace("$instance", ".+")
    assert {one["metric"]["engine"]: one["value"][1] for one in watched.ask(both)} == {"fake": "1", GPU_ENGINE: "1"}


def test_the_annotation_is_valid_and_marks_nothing_while_no_engine_restarts(watched: Watched) -> None:
    (annotation,) = BOARD["annotations"]["list"]
    assert watched.ask(watched.fill_in(annotation["expr"], on_gpu=False)) == []


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param("engine", {"fake", GPU_ENGINE}, id="every engine can be chosen"),
        pytest.param("instance", {"server", "gpu_server"}, id="every server can be chosen"),
        pytest.param("slo_ttft", {AT_FIRST["slo_ttft"]}, id="the first TTFT threshold is an edge of a bucket"),
        pytest.param("slo_e2e", {AT_FIRST["slo_e2e"]}, id="the first E2E threshold is an edge of a bucket"),
    ],
)
def test_every_variable_offers_choices(watched: Watched, variable: str, expected: set[str]) -> None:
    asked = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[variable]["query"]["query"])
    assert asked is not None
    series = asked[1].replace("$engine", ".+")
    answer = watched.api.get(f"/api/v1/label/{asked[2]}/values", params={"match[]": series}).json()["data"]
    allowed = re.compile(VARIABLES[variable].get("regex", "").strip("/") or ".*")
    choices = {choice for choice in answer if allowed.fullmatch(choice)}
    expected = {str(getattr(watched, name, name)) for name in expected}
    if variable.startswith("slo_"):
        assert expected < choices
        assert all(float(choice) > 0 and math.isfinite(float(choice)) for choice in choices)
    else:
        assert choices == expected


def test_prometheus_counts_every_request_as_the_clients_did(watched: Watched) -> None:
    expr = f'sum by (outcome) (enginebench_requests_total{{instance="{watched.server}"}}) > 0'
    counted = {one["metric"]["outcome"]: int(one["value"][1]) for one in watched.ask(expr, time.time())}
    assert counted == dict(watched.outcomes)
    assert set(counted) == {"ok", "rejected", "cancelled", "bad_request"}


def test_the_numbers_are_those_of_the_engine(watched: Watched) -> None:
    def after(name: str) -> float:
        return watched.value(f'sum({name}{{instance="{watched.server}"}})', time.time())

    ok = watched.outcomes["ok"]
    assert after("enginebench_e2e_request_latency_seconds_count") == ok
    assert after("enginebench_generation_tokens_total") >= ok * TOKENS
    assert after("enginebench_engine_max_concurrency") == PLACES
    assert watched.value(f'max_over_time(enginebench_requests_running{{instance="{watched.server}"}}[30s])') == PLACES
    # The engine is never faster than it was told; how much slower is the machine's affair.
    prefill = after("enginebench_request_prefill_time_seconds_sum")
    assert prefill / after("enginebench_request_prefill_time_seconds_count") >= TTFT
    decode = after("enginebench_request_decode_time_seconds_sum")
    assert decode / ok >= TPOT * (TOKENS - 1) * 0.95


def test_energy_per_token_is_what_the_driver_and_the_engine_say(watched: Watched) -> None:
    (panel,) = [panel for panel in PANELS if panel["title"] == "Energy per output token"]
    joules = watched.value(watched.fill_in(panel["targets"][0]["expr"], on_gpu=True))
    assert joules == pytest.approx(GPU_JOULES_PER_TOKEN, rel=0.02)


def test_every_rule_is_healthy_and_every_record_has_data(watched: Watched) -> None:
    groups = watched.api.get("/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    records = [rule["name"] for rule in rules if rule["type"] == "recording"]
    assert len(records) == 7
    assert [name for name in records if not watched.ask(name)] == []


def test_the_threshold_of_the_alert_is_an_edge_of_a_bucket(watched: Watched) -> None:
    edges = re.findall(r'(\w+_bucket){le="([^"]+)"}', (DOCKER / "rules.yml").read_text())
    assert edges
    assert [edge for edge in edges if not watched.ask(f'{edge[0]}{{le="{edge[1]}"}}')] == []


def test_the_guide_explains_every_alert() -> None:
    alerts = re.findall(r"- alert: (\w+)", (DOCKER / "rules.yml").read_text())
    guide = (DOCKER.parent / "docs" / "observability.md").read_text()
    assert len(alerts) == 9
    assert [alert for alert in alerts if f"`{alert}`" not in guide] == []


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["check", "config", "prometheus.yml"], id="the configuration is valid"),
        pytest.param(["check", "rules", "--lint=all", "rules.yml"], id="the rules are valid and without duplicates"),
        pytest.param(["test", "rules", "rules.test.yml"], id="alerts fire when they should, and only then"),
    ],
)
def test_promtool_agrees(program: Program, arguments: list[str]) -> None:
    done = subprocess.run([program("promtool"), *arguments], cwd=DOCKER, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
