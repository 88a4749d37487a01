"""A real Prometheus with the project's own configuration and rules, at intervals of one second."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from enginebench.settings.system import free_port

CONFIGURATION = Path(__file__).parents[2] / "docker" / "prometheus"
SERIES = re.compile(r"- series: (\w[\w:]*)\{(.*)\}\n +values: (\S+)$", re.MULTILINE)
VALUES = re.compile(r"([\d.]+)(?:\+([\d.]+))?x\d+")


@contextmanager
def prometheus(
    program: str, folder: Path, shown: Mapping[str, str] = {}, /, **targets: list[str]
) -> Iterator[httpx.Client]:
    """Scrape `targets`, by the names of the files in targets/, once a second; yield a client for Prometheus' API.
    `shown` are the labels `instance` of addresses that should not show their port."""
    shutil.copytree(CONFIGURATION / "rules", folder / "rules")
    for rules in (folder / "rules").rglob("*.yml"):
        rules.write_text(rules.read_text().replace("interval: 5s", "interval: 1s"))
    configuration = (CONFIGURATION / "prometheus.yml").read_text()
    for setting in ("scrape_interval: 5s", "scrape_timeout: 4s", "evaluation_interval: 15s"):
        assert setting in configuration
        configuration = configuration.replace(setting, f"{setting.split(':')[0]}: 1s")
    (folder / "prometheus.yml").write_text(configuration)
    (folder / "targets").mkdir()
    for name, addresses in targets.items():
        described = [{"targets": [one], "labels": {"instance": shown.get(one, one)}} for one in addresses]
        (folder / "targets" / f"{name}.yml").write_text(json.dumps(described))
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with running(command), httpx.Client(base_url=f"http://{address}", timeout=30) as api:
        until(lambda: answers(api, "/-/ready"), "Prometheus is ready")
        yield api


class SeriesOfRuleTests(Collector):
    """The input series of the rule tests as a page to scrape, so that both use the same names and labels."""

    def __init__(self, *files: str) -> None:
        self._since = time.monotonic()
        found = [SERIES.findall((CONFIGURATION / "tests" / file).read_text()) for file in files]
        self._series = [row for rows in found for row in rows if not row[0].startswith("enginebench_")]

    def collect(self) -> Iterator[Metric]:
        elapsed = time.monotonic() - self._since
        families: dict[str, Metric] = {}
        for name, text, values in self._series:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
            kind = "counter" if name.endswith("_total") else "gauge"
            family = families.setdefault(name, Metric(name.removesuffix("_total"), name, kind))
            first, step = VALUES.fullmatch(values).groups()  # type: ignore[union-attr]
            described = {key: value for key, value in labels.items() if key not in {"job", "instance"}}
            family.add_sample(name, described, float(first) + float(step or 0) * elapsed)
        yield from families.values()


@contextmanager
def running(command: list[Any]) -> Iterator[None]:
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def until(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)
