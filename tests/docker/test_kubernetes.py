"""The manifests fit Kubernetes' published schemas, and each other: what one names, another one has."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docker" / "kubernetes"
ROOT = FOLDER.parents[1]
VERSIONS = ("1.29", "1.33")  # of Kubernetes
KUSTOMIZE = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]  # the same code in both
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
Document = dict[str, Any]


def documents(folder: str) -> Iterator[Document]:
    for file in sorted((FOLDER / folder).glob("*.yaml")):
        if file.name != "kustomization.yaml":
            yield from yaml.safe_load_all(file.read_text())


BASE = list(documents("base"))
BY_NAME = {(document["kind"], document["metadata"]["name"]): document for document in BASE}
OF_KUBERNETES = [document for document in BASE if document["kind"] != "PodMonitor"]  # that is Prometheus' operator's
WORKLOADS = [document for document in BASE if document["kind"] in {"Deployment", "Job"}]
every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda document: document["metadata"]["name"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "document", OF_KUBERNETES, ids=lambda document: f"{document['kind']} {document['metadata']['name']}"
)
def test_a_document_fits_its_schema(document: Document, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_the_schema_would_have_refused_a_typo() -> None:
    misspelt = {**BY_NAME["Service", "server"], "spec": {"selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelt, VERSIONS[-1], strict=True)


def test_every_file_belongs_to_a_kustomization() -> None:
    for folder in ("base", *(f"overlays/{name}" for name in OVERLAYS)):
        kustomization = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())
        patches = [patch["path"] for patch in kustomization.get("patches", ())]
        named = {name for name in [*kustomization["resources"], *patches] if name.endswith(".yaml")}
        assert named == {path.name for path in (FOLDER / folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert all((FOLDER / folder / name).exists() for name in kustomization["resources"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_patch_changes_what_there_is(overlay: str) -> None:
    for patch in documents(f"overlays/{overlay}"):
        changed = BY_NAME[patch["kind"], patch["metadata"]["name"]]
        if patch["kind"] == "Deployment":
            (container,) = patch["spec"]["template"]["spec"]["containers"]
            assert container["name"] in {one["name"] for one in _pod(changed)["containers"]}


@every_workload
def test_a_container_is_locked_down_and_has_its_share_of_the_node(workload: Document) -> None:
    pod = _pod(workload)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
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
                assert ("PersistentVolumeClaim", claim["claimName"]) in BY_NAME


def test_services_policies_and_monitors_find_their_pods_and_ports() -> None:
    labels = {_label(workload): _ports(workload) for workload in WORKLOADS}
    for document in BASE:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            ports = labels[spec["selector"]["app.kubernetes.io/name"]]
            assert {port["targetPort"]: port["port"] for port in spec["ports"]}.items() <= ports.items()
        if document["kind"] == "PodMonitor":
            ports = labels[spec["selector"]["matchLabels"]["app.kubernetes.io/name"]]
            assert {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]} <= set(ports)
    named = re.findall(r"app\.kubernetes\.io/name(?:: (\S+) }|, operator: In, values: \[(.*?)\])", _text("network"))
    assert {name for one, several in named for name in (one or several).split(", ")} == set(labels)


def test_the_master_expects_as_many_workers_as_there_are() -> None:
    arguments = _pod(BY_NAME["Job", "load-master"])["containers"][0]["args"]
    workers = BY_NAME["Job", "load-workers"]["spec"]
    assert arguments[arguments.index("--expect-workers") + 1] == str(workers["parallelism"])
    assert workers["completions"] == workers["parallelism"]
    assert arguments[1] == _pod(BY_NAME["Job", "load-workers"])["containers"][0]["args"][1]
    assert (ROOT / arguments[1]).exists()


def test_monitors_use_the_names_of_jobs_that_rules_expect() -> None:
    configured = set(re.findall(r"job_name: (\S+)", (ROOT / "docker/prometheus/prometheus.yml").read_text()))
    given = set(re.findall(r"targetLabel: job, replacement: (\S+) }", _text("monitors") + _overlay_texts()))
    assert {"enginebench", "enginebench-load", "engines"} == given <= configured


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_images_have_a_version_of_their_own(overlay: str) -> None:
    images = yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text())["images"]
    images += yaml.safe_load((FOLDER / "overlays" / overlay / "kustomization.yaml").read_text()).get("images", [])
    assert {image["name"] for image in images} == {_pod(workload)["containers"][0]["image"] for workload in WORKLOADS}
    assert all(re.fullmatch(r"v?\d+\.\d+\.\d+(-\w+)?", image["newTag"]) for image in images)


@pytest.mark.skipif(
    shutil.which(KUSTOMIZE[0]) is None, reason="neither `kustomize` nor a `kubectl` of 2021 or newer is installed"
)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_builds_the_overlay(overlay: str) -> None:
    command = [*KUSTOMIZE, str(FOLDER / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    assert len(built) == len(BASE)
    for document in built:
        if document["kind"] != "PodMonitor":
            kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def _pod(workload: Document) -> Document:
    pod: Document = workload["spec"]["template"]["spec"]
    return pod


def _label(workload: Document) -> str:
    name: str = workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]
    return name


def _ports(workload: Document) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in _pod(workload)["containers"][0].get("ports", ())}


def _text(name: str) -> str:
    return (FOLDER / "base" / f"{name}.yaml").read_text()


def _overlay_texts() -> str:
    return "".join(file.read_text() for file in (FOLDER / "overlays").glob("*/*.yaml"))
