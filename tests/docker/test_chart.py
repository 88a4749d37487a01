"""The Helm chart renders manifests that fit Kubernetes' published schemas, and each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "docker" / "chart"
VERSIONS = ("1.29", "1.33")  # of Kubernetes
NAME = "app.kubernetes.io/name"
Document = dict[str, Any]
VALUES: dict[str, list[str]] = {
    "cpu": [],
    "nvidia": ["--values", str(CHART / "values-nvidia.yaml")],
    "vllm": ["--values", str(CHART / "values-vllm.yaml")],
    "target": [
        *("--set", "target=https://models.example:8443", "--set", "scenario=capacity", "--set", "workers=7"),
        *("--set", "slo={ttft_p95=500ms,tpot_p95=40ms}", "--set", "load.image=registry.example/load:7.1.0"),
        *("--set-json", 'load.resources={"cpu": "2", "memory": "3Gi"}'),
        *("--set-json", 'load.env=[{"name": "ENGINEBENCH_API_KEY", "value": "secret"}]'),
        *("--set-json", 'arguments=["--by", "users"]'),
    ],
}
OPERATOR = ("--api-versions", "monitoring.coreos.com/v1")
pytestmark = pytest.mark.deployment
every_set_of_values = pytest.mark.parametrize("values", VALUES)


def test_the_linter_accepts_the_chart() -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in _helm("lint", "--strict", str(CHART))


@every_set_of_values
def test_every_document_fits_its_schema(values: str) -> None:
    documents = [document for document in _documents(values) if document["kind"] != "PodMonitor"]  # the operator's
    assert len(documents) == (11 if values != "target" else 6)
    for document in documents:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


@every_set_of_values
def test_a_container_is_locked_down_and_has_its_share_of_the_node(values: str) -> None:
    documents = _by_name(values)
    for workload in _workloads(values):
        pod = _pod(workload)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"] == container["resources"]["limits"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        for volume in pod["volumes"]:
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in documents


@every_set_of_values
def test_services_policies_and_monitors_select_pods_and_ports_of_the_release(values: str) -> None:
    ports = {_labels(workload)[NAME]: _ports(workload) for workload in _workloads(values)}
    assert set(ports) == {"load-master", "load-worker"} | ({"server"} if values != "target" else set())
    for document in _documents(values):
        spec = document["spec"]
        if document["kind"] == "Service":
            named = {port["targetPort"]: port["port"] for port in spec["ports"]}
            assert named.items() <= ports[spec["selector"][NAME]].items()
        if document["kind"] == "PodMonitor":
            endpoints = {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]}
            assert endpoints <= set(ports[spec["selector"]["matchLabels"][NAME]])
        if document["kind"] == "NetworkPolicy":
            text = yaml.dump(spec, default_flow_style=True, width=10_000)
            names = re.findall(r"app\.kubernetes\.io/name: ([\w-]+)", text)
            names += re.findall(r"\w[\w-]*", ", ".join(re.findall(r"name, operator: In, values: \[(.*?)\]", text)))
            assert names
            assert set(names) <= set(ports)
            assert text.count(NAME) == text.count("app.kubernetes.io/instance")
    for workload in _workloads(values):
        assert _labels(workload)["app.kubernetes.io/instance"] == "tried"


def test_an_engine_is_served_unless_there_is_a_target() -> None:
    def images_and_host(values: str) -> tuple[dict[str, str], str]:
        images = {_labels(workload)[NAME]: _container(workload)["image"] for workload in _workloads(values)}
        arguments = _container(_by_name(values)["Job", "tried-load-master-1"])["args"]
        return images, arguments[arguments.index("--host") + 1]

    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    load = {"load-master": f"enginebench/load:{version}", "load-worker": f"enginebench/load:{version}"}
    served = "http://tried-server:8000"
    assert images_and_host("cpu") == (load | {"server": f"enginebench/server:{version}-cpu"}, served)
    assert images_and_host("nvidia") == (load | {"server": f"enginebench/server:{version}-cuda"}, served)
    (vllm,) = re.findall(r"^FROM (\S+) AS library-vllm$", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE)
    assert images_and_host("vllm") == (load | {"server": vllm}, served)
    own = {"load-master": "registry.example/load:7.1.0", "load-worker": "registry.example/load:7.1.0"}
    assert images_and_host("target") == (own, "https://models.example:8443")


def test_the_values_reach_master_and_workers() -> None:
    documents = _by_name("target")
    master, workers = (documents["Job", f"tried-load-{role}-1"] for role in ("master", "workers"))
    assert _container(master)["args"] == [
        *("-f", "loadtests/capacity.py", "--headless", "--master", "--expect-workers", "7"),
        *("--host", "https://models.example:8443", "--exporter", "0.0.0.0:9646"),
        *("--slo", "ttft_p95=500ms", "--slo", "tpot_p95=40ms", "--by", "users"),
    ]
    assert _container(workers)["args"] == [
        *("-f", "loadtests/capacity.py", "--worker", "--master-host", "tried-load-master"),
    ]
    assert workers["spec"]["parallelism"] == workers["spec"]["completions"] == 7
    for workload in (master, workers):
        assert _container(workload)["resources"]["limits"] == {"cpu": "2", "memory": "3Gi"}
        assert _container(workload)["env"] == [{"name": "ENGINEBENCH_API_KEY", "value": "secret"}]


def test_a_gpu_and_shared_memory_are_asked_for() -> None:
    server = _by_name("vllm")["Deployment", "tried-server"]
    assert _container(server)["resources"]["limits"] == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}
    assert _container(server)["readinessProbe"]["httpGet"]["path"] == "/health"
    (shared,) = (volume for volume in _pod(server)["volumes"] if volume["name"] == "shm")
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Gi"}


def test_monitors_are_made_for_the_operator_and_have_job_names_that_rules_expect() -> None:
    configured = set(re.findall(r"job_name: (\S+)", (ROOT / "docker/prometheus/prometheus.yml").read_text()))
    names = {
        values: [
            document["spec"]["podMetricsEndpoints"][0]["relabelings"][0]["replacement"]
            for document in _documents(values)
            if document["kind"] == "PodMonitor"
        ]
        for values in VALUES
    }
    own = ["enginebench-load", "enginebench"]
    assert {values: sorted(jobs, reverse=True) for values, jobs in names.items()} == {
        "cpu": own,
        "nvidia": own,
        "vllm": ["engines", "enginebench-load"],
        "target": ["enginebench-load"],
    }
    assert {name for jobs in names.values() for name in jobs} <= configured
    assert "PodMonitor" not in _helm("template", "tried", str(CHART))


def _helm(*arguments: str) -> str:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    program = shutil.which("helm", path=path)
    assert program is not None, "helm is not installed: `make test-deployment` builds it"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def _documents(values: str) -> list[Document]:
    return list(yaml.safe_load_all(_helm("template", "tried", str(CHART), *OPERATOR, *VALUES[values])))


def _by_name(values: str) -> dict[tuple[str, str], Document]:
    return {(document["kind"], document["metadata"]["name"]): document for document in _documents(values)}


def _workloads(values: str) -> list[Document]:
    return [document for document in _documents(values) if document["kind"] in {"Deployment", "Job"}]


def _pod(workload: Document) -> Document:
    pod: Document = workload["spec"]["template"]["spec"]
    return pod


def _container(workload: Document) -> Document:
    container: Document = _pod(workload)["containers"][0]
    return container


def _labels(workload: Document) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def _ports(workload: Document) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in _container(workload).get("ports", ())}
