"""Figures of plans as Prometheus reads them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from analysis.plan.answer import Plan, make_plan
from analysis.plan.money.prices import read_prices
from analysis.plan.publish import Published, distinct, published, registry_of
from analysis.plan.settings import PlanSettings
from analysis.run.load import RunData, load_run
from analysis.verdict.summary import summarise
from loadtests.harness.run.host import free_port
from records.load import Rate
from records.slo import parse_objectives
from tests.support.prometheus import answers, until
from validation.plan.batching_server import Asked, BatchingServer, rates, write_run

COMMAND = [str(Path(sys.executable).parent / "enginebench"), "plan"]
PLAN = ["--peak", "30req/s", "--slo", "ttft_p95=0.3", "--peak-seconds", "30", "--price", "2", "--spares", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    server = BatchingServer(jitter=0.02)
    return write_run(tmp_path_factory.mktemp("publish") / "open", server, rates(3, 6, 9), Asked(), window=30.0)


@pytest.fixture(scope="module")
def loaded(run: Path) -> RunData:
    return load_run(run)


@pytest.fixture(scope="module")
def plan(loaded: RunData) -> Plan:
    slo = parse_objectives(["ttft_p95=0.3"])
    settings = PlanSettings(peak=Rate(20.0), slo=slo, peak_seconds=20.0)
    return make_plan("scripted", [loaded], [summarise(loaded, slo)], settings)


def samples_of(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_figures_are_served_until_it_is_interrupted(run: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [*COMMAND, run, *PLAN, "--publish", address], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        with httpx.Client(base_url=f"http://{address}") as client:
            until(lambda: answers(client, "/metrics"), "the plan is published", seconds=120)
            text = client.get("/metrics").text
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    samples = samples_of(text)
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
    assert {sample.labels["gpu"] for sample in samples} == {"any"}
    (unit,) = {sample.labels["unit"] for sample in samples if "unit" in sample.labels}
    assert unit == "req/s"


def test_every_engine_and_gpu_type_has_series_of_its_own(plan: Plan) -> None:
    several = [
        Published(plan, "vllm", "m", "H100"),
        Published(plan, "vllm", "m", "L4"),
        Published(plan, "x", "m", "L4"),
    ]
    replicas = [
        sample
        for sample in samples_of(generate_latest(registry_of(several)).decode())
        if sample.name == "enginebench_plan_replicas"
    ]
    assert [(one.labels["engine"], one.labels["gpu"]) for one in replicas] == [
        ("vllm", "H100"),
        ("vllm", "L4"),
        ("x", "L4"),
    ]
    assert {one.value for one in replicas} == {plan.replicas.count}


def test_of_plans_with_the_same_labels_the_first_is_published(plan: Plan) -> None:
    first, second = Published(plan, "vllm", "m", "H100"), Published(plan, "vllm", "m", "H100")
    kept, left_out = distinct([first, second, Published(plan, "vllm", "m", "L4")])
    assert [one.gpu for one in kept] == ["H100", "L4"]
    assert kept[0] is first
    assert [one is second for one in left_out] == [True]


@pytest.mark.parametrize(
    ("given", "label"),
    [
        pytest.param((), "any", id="no GPU was named"),
        pytest.param((("", "h100"),), "H100", id="named for all, and written as in the price list"),
        pytest.param((("other", "L4"), ("scripted", "A100")), "A100", id="named for this engine"),
    ],
)
def test_a_gpu_is_called_as_in_the_price_list(
    plan: Plan, loaded: RunData, given: tuple[tuple[str, str], ...], label: str
) -> None:
    one = published(plan, loaded.meta, PlanSettings(gpu=given), read_prices(None))
    assert one.labels == {"engine": "scripted", "model": "simulated", "gpu": label}


def test_a_gpu_that_the_price_list_does_not_have_is_no_label(plan: Plan, loaded: RunData) -> None:
    with pytest.raises(ValueError, match="no GPU called `mine`; it has H100"):
        published(plan, loaded.meta, PlanSettings(gpu=(("", "mine"),)), read_prices(None))
