"""The image's recipe and the compose files hold together. No Docker engine is needed: the files are what is checked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines.libraries.vllm import VllmEngine

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()

Program = Callable[[str], str]
Composition = Callable[..., dict[str, Any]]


@pytest.fixture
def composition(program: Program) -> Composition:
    """The services as Docker Compose understands the files, with every profile and all variables filled in."""
    compose = program("docker-compose")

    def read(*files: str, **variables: str) -> dict[str, Any]:
        arguments = [argument for file in files for argument in ("-f", str(DOCKER / file))]
        unset = {"ENGINE", "EXTRAS", "SCENARIO", "TARGET", "MODEL"} - set(variables)
        environment = {name: value for name, value in os.environ.items() if name not in unset} | variables
        command = [compose, *arguments, "--profile", "*", "config", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        services: dict[str, Any] = json.loads(done.stdout)["services"]
        return services

    return read


def test_the_linter_has_nothing_to_say_about_the_dockerfile(program: Program) -> None:
    done = subprocess.run([program("hadolint"), str(DOCKER / "Dockerfile")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    allowed = set(re.findall(r"^!(.+)$", (DOCKER / "Dockerfile.dockerignore").read_text(), re.MULTILINE))
    assert copied == allowed
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_image_holds_every_room_of_the_wheel() -> None:
    wheel = _pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    for room in wheel:
        assert re.search(rf"^COPY .*\b{re.escape(room)}\b", DOCKERFILE, re.MULTILINE), room


def test_the_image_does_not_run_as_root() -> None:
    _build, base, *images = DOCKERFILE.split("\nFROM ")[1:]
    assert re.findall(r"^USER (.+)$", base, re.MULTILINE) == ["10001"]
    assert "useradd --uid 10001" in base
    assert [image.split("\n")[0] for image in images] == ["base AS load", "base AS server"]
    assert not any("USER" in image for image in images)


def test_torch_has_a_version_that_the_dockerfile_finds_in_the_lock() -> None:
    found = re.findall(r"^torch==[0-9.]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(found) == 1
    assert "grep -oE '^torch==[0-9.]+' requirements.lock" in DOCKERFILE


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "compose.gpu.yaml")], ids=" and ".join)
def test_every_port_is_published_on_loopback_only(composition: Composition, files: tuple[str, ...]) -> None:
    services = composition(*files)
    ports = {
        name: [(port["host_ip"], port["published"]) for port in service["ports"]] for name, service in services.items()
    }
    assert ports == {
        "server": [("127.0.0.1", "8000")],
        "prometheus": [("127.0.0.1", "9090")],
        "grafana": [("127.0.0.1", "3000")],
        "load": [("127.0.0.1", "8089")],
        "vllm": [("127.0.0.1", "8001")],
    }


def test_every_file_that_is_mounted_exists(composition: Composition) -> None:
    services = composition("compose.yaml")
    mounted = [
        volume["source"]
        for service in services.values()
        for volume in service.get("volumes", ())
        if volume["type"] == "bind"
    ]
    assert len(mounted) == 5
    assert [source for source in mounted if not Path(source).exists()] == []


def test_foreign_images_have_a_version_of_their_own(composition: Composition) -> None:
    images = [service["image"] for service in composition("compose.yaml").values() if "image" in service]
    assert len(images) == 3
    assert all(re.fullmatch(r"[a-z]+/[a-z-]+:v?\d+\.\d+\.\d+", image) for image in images), images


def test_vllms_image_is_the_version_that_the_engine_installs() -> None:
    assert VllmEngine.environment.cuda is not None
    (pinned,) = VllmEngine.environment.cuda.packages
    version = pinned.removeprefix("vllm==")
    assert f"image: vllm/vllm-openai:v{version}" in (DOCKER / "compose.yaml").read_text()
    assert f"newTag: v{version}\n" in (DOCKER / "kubernetes/overlays/vllm/kustomization.yaml").read_text()


def test_every_container_is_locked_down(composition: Composition) -> None:
    for name, service in composition("compose.yaml").items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name


@pytest.mark.parametrize(
    ("variables", "extras", "engine"),
    [
        pytest.param({}, "transformers mistralrs", "mistralrs", id="a real engine unless told otherwise"),
        pytest.param(
            {"ENGINE": "transformers"}, "transformers mistralrs", "transformers", id="another one in the same image"
        ),
        pytest.param({"ENGINE": "fake", "EXTRAS": ""}, "", "fake", id="the fake engine needs nothing"),
    ],
)
def test_the_image_holds_the_engine_that_is_served(
    composition: Composition, variables: dict[str, str], extras: str, engine: str
) -> None:
    server = composition("compose.yaml", **variables)["server"]
    assert server["build"]["args"] == {"EXTRAS": extras, "TORCH": "cpu"}
    assert server["command"][:3] == ["serve", "--engine", engine]
    assert set(extras.split()) <= set(_pyproject()["project"]["optional-dependencies"])


def test_the_gpu_file_asks_for_one_gpu_and_the_cuda_build(composition: Composition) -> None:
    server = composition("compose.yaml", "compose.gpu.yaml")["server"]
    (device,) = server["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 1, ["gpu"])
    assert server["build"]["args"]["TORCH"] == "cuda"
    assert "utility" in server["environment"]["NVIDIA_DRIVER_CAPABILITIES"], "NVML, for the GPU metrics"


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
