"""A plan's figures as Prometheus reads them, and what is no address."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from analysis.plan.publish import parse_address
from simulations.batching_server import Asked, BatchingServer, rates, write_run
from tests.support.prometheus import answers, free_port, until

COMMAND = [str(Path(sys.executable).parent / "enginebench"), "plan"]
PLAN = ["--peak", "30req/s", "--slo", "ttft_p95=0.3", "--peak-seconds", "30", "--price", "2", "--spares", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    server = BatchingServer(jitter=0.02)
    return write_run(tmp_path_factory.mktemp("publish") / "open", server, rates(3, 6, 9), Asked(), window=30.0)


def test_figures_are_served_until_it_is_interrupted(run: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [*COMMAND, run, *PLAN, "--publish", address], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        with httpx.Client(base_url=f"http://{address}") as client:
            until(lambda: answers(client, "/metrics"), "the plan is published", seconds=120)
            text = client.get("/metrics").text
            assert client.get("/other").status_code == 404
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {sample.name.removeprefix("enginebench_plan_"): sample.value for sample in samples}
    assert set(found) == {
        *("safe_load", "replicas", "replicas_with_spare", "attainment_ratio", "ttft_seconds"),
        "cost_usd_per_million_tokens",
    }
    assert found["replicas_with_spare"] == found["replicas"] + 1
    assert found["attainment_ratio"] >= 0.95
    assert 0 < found["ttft_seconds"] <= 0.3
    assert 3 <= found["safe_load"] <= 10
    assert all({"engine", "model"} <= set(sample.labels) for sample in samples)
    (unit,) = {sample.labels["unit"] for sample in samples if "unit" in sample.labels}
    assert unit == "req/s"


@pytest.mark.parametrize("text", ["9647", "127.0.0.1:", ":9647", "localhost:x", "localhost:70000"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="give HOST:PORT"):
        parse_address(text)
