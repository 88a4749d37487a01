"""The image's recipe and the compose files hold together. No Docker engine is needed: the files are what is checked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginebench.settings.schema import options_by_engine
from engines.libraries.library import Library
from engines.libraries.sglang import SglangEngine
from engines.libraries.tensorrt_llm import TensorRtLlmEngine
from engines.libraries.vllm import VllmEngine

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
BOTH = ("compose.yaml", "compose.gpu.yaml")
VARIABLES = set(re.findall(r"\$\{([A-Z]+)", "".join((DOCKER / file).read_text() for file in BOTH))) | {
    "COMPOSE_PROFILES"
}

Program = Callable[[str], str]
Composition = Callable[..., dict[str, Any]]


@pytest.fixture
def composition(program: Program) -> Composition:
    """The services as Docker Compose understands the files, of every profile and with all variables filled in."""
    compose = program("docker-compose")

    def read(*files: str, profiles: tuple[str, ...] = ("*",), **variables: str) -> dict[str, Any]:
        arguments = [argument for file in files for argument in ("-f", str(DOCKER / file))]
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | variables
        chosen = [word for profile in profiles for word in ("--profile", profile)]
        command = [compose, *arguments, *chosen, "config", "--format", "json"]
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
    assert copied - {"engines/rust"} == allowed
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_image_holds_every_room_of_the_wheel() -> None:
    wheel = _pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    for room in wheel:
        assert re.search(rf"^COPY .*\b{re.escape(room)}\b", DOCKERFILE, re.MULTILINE), room


def test_the_image_does_not_run_as_root() -> None:
    stages = {stage.split("\n")[0].rpartition(" AS ")[2]: stage for stage in DOCKERFILE.split("\nFROM ")[1:]}
    for name in ("load", "server", "library-server"):
        assert re.findall(r"^USER (.+)$", stages[name], re.MULTILINE)[-1] == "10001"
    for name in ("base", "library-server"):
        assert "useradd --uid 10001" in stages[name]


def test_what_libraries_compile_is_kept_although_containers_cannot_be_written_to() -> None:
    """Triton, FlashInfer and CUDA's own compiler keep it under the home folder."""
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    own = [stage for stage in stages if "USER 10001" in stage and "FROM base" not in f"FROM {stage}"]
    own += [stage for stage in stages if stage.startswith("${BASE} AS base\n")]
    assert [bool(re.search(r"^    HOME=/cache \\$", stage, re.MULTILINE)) for stage in own] == [True, True]


def test_torch_has_a_version_that_the_dockerfile_finds_in_the_lock() -> None:
    found = re.findall(r"^torch==[0-9.]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(found) == 1
    assert "grep -oE '^torch==[0-9.]+' requirements.lock" in DOCKERFILE


def test_programs_for_cuda_find_its_libraries_where_torch_has_them() -> None:
    (linked,) = re.findall(r"RUN ln -s .*purelib.*\)/(nvidia/cu13)\" /opt/cuda$", DOCKERFILE, re.MULTILINE)
    assert "LD_LIBRARY_PATH=/opt/programs+${FLAVOUR}:/opt/cuda/lib\n" in DOCKERFILE
    copied = {f"lib/{name}" for name in re.findall(r"cp -L \S+/(lib\S+) /programs", DOCKERFILE)}
    folder = Path(sysconfig.get_path("purelib"), linked)
    if not folder.exists():
        pytest.skip("torch's build here is without CUDA")
    libraries = ("libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10", "libcudart.so.13")  # linked by Candle
    needed = [f"lib/{name}" for name in libraries]
    assert [file for file in needed if file not in copied and not (folder / file).exists()] == []


def test_burn_finds_the_device_functions_of_cuda() -> None:
    """CubeCL, under Burn, compiles kernels by LLVM and takes exponentials and sines from a file below CUDA_PATH."""
    (copied,) = re.findall(r"cp --parents (\S+)/nvvm/libdevice/libdevice.10.bc /programs;", DOCKERFILE)
    assert f"CUDA_PATH=/opt/programs+${{FLAVOUR}}{copied} " in DOCKERFILE


@pytest.mark.parametrize("files", [BOTH[:1], BOTH], ids=" and ".join)
def test_every_port_is_published_on_loopback_only(composition: Composition, files: tuple[str, ...]) -> None:
    services = composition(*files)
    ports = {
        name: [(port["host_ip"], port["published"]) for port in service["ports"]]
        for name, service in services.items()
        if "ports" in service
    }
    assert ports == {
        "server": [("127.0.0.1", "8000")],
        "prometheus": [("127.0.0.1", "9090")],
        "grafana": [("127.0.0.1", "3000")],
        "load": [("127.0.0.1", "8089")],
        "vllm": [("127.0.0.1", "8001")],
    }


def test_every_file_that_is_mounted_exists(composition: Composition) -> None:
    services = composition(*BOTH)
    mounted = [
        volume["source"]
        for service in services.values()
        for volume in service.get("volumes", ())
        if volume["type"] == "bind"
    ]
    assert len(mounted) == 6
    assert [source for source in mounted if not Path(source).exists()] == []


def test_foreign_images_have_a_version_of_their_own(composition: Composition) -> None:
    images = [service["image"] for service in composition(*BOTH).values()]
    images += re.findall(r"^FROM (\S+/\S+) ", DOCKERFILE, re.MULTILINE)
    assert len(images) == 9
    assert all(re.fullmatch(r"[0-9a-z./-]+/[0-9a-z-]+:v?\d+\.\d+\.\d+[0-9a-z.-]*", image) for image in images), images


@pytest.mark.parametrize("library", [VllmEngine, SglangEngine, TensorRtLlmEngine], ids=lambda it: it.environment.engine)
def test_a_librarys_image_is_the_version_that_the_engine_installs(library: type[Library]) -> None:
    environment = library.environment
    assert environment.cuda is not None
    version = environment.cuda.packages[0].partition("==")[2]
    assert re.search(rf"^FROM \S+:v?{re.escape(version)} AS library-{environment.engine}$", DOCKERFILE, re.MULTILINE)


def test_vllms_own_server_has_that_version_too() -> None:
    (image,) = re.findall(r"^FROM (\S+) AS library-vllm$", DOCKERFILE, re.MULTILINE)
    assert f"image: {image}\n" in (DOCKER / "compose.yaml").read_text()
    assert f"image: {image}\n" in (DOCKER / "chart/values-vllm.yaml").read_text()


@pytest.mark.parametrize(
    ("profiles", "started"),
    [
        pytest.param((), {"server"}, id="our server by default"),
        pytest.param(("load",), {"server", "load"}, id="with the load test"),
        pytest.param(("vllm",), {"vllm"}, id="vLLM's server in place of ours"),
        pytest.param(("vllm-load",), {"vllm", "load"}, id="and the load test on it"),
    ],
)
def test_one_server_is_started(composition: Composition, profiles: tuple[str, ...], started: set[str]) -> None:
    services = composition("compose.yaml", profiles=profiles)
    assert set(services) == started | {"prometheus", "grafana"}


def test_every_container_is_locked_down(composition: Composition) -> None:
    for name, service in composition(*BOTH).items():
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("cap_add", []) == (["SYS_ADMIN"] if name == "dcgm" else []), name
        if name != "dcgm":  # DCGM writes beside its program
            assert service["read_only"] is True, name
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
    assert server["build"]["args"] == {"EXTRAS": extras, "FLAVOUR": "cpu", "PROGRAMS": "candle burn"}
    assert server["image"] == f"enginebench/server:{VERSION}-cpu"
    assert server["command"] == ["serve", engine, "--host", "0.0.0.0", "--port", "8000"]
    assert set(extras.split()) <= set(_pyproject()["project"]["optional-dependencies"])


def test_no_engine_is_in_the_load_generators_image(composition: Composition) -> None:
    assert composition("compose.yaml", profiles=("load",))["load"]["build"]["args"]["EXTRAS"] == ""


def test_a_documented_load_leaves_the_server_as_it_runs() -> None:
    """Without the variables of the command before, Compose would replace it by another one."""
    lines = [line for path in (ROOT / "docs").glob("*.md") for line in path.read_text().splitlines()]
    loads = [line for line in lines if re.search(r"docker compose .* run ", line)]
    assert loads
    assert all(" --no-deps " in line for line in loads)


def test_the_gpu_file_asks_for_one_gpu_and_the_cuda_build(composition: Composition) -> None:
    server = composition(*BOTH)["server"]
    (device,) = server["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 1, ["gpu"])
    assert server["build"]["args"]["FLAVOUR"] == "cuda"
    assert (server["build"]["target"], server["image"]) == ("server", f"enginebench/server:{VERSION}-cuda")
    assert "utility" in server["environment"]["NVIDIA_DRIVER_CAPABILITIES"], "NVML, for the GPU metrics"


@pytest.mark.parametrize("library", ["vllm", "sglang", "tensorrt-llm"])
def test_a_library_stands_behind_our_server_in_its_own_image(composition: Composition, library: str) -> None:
    chosen = {"MODEL": "meta-llama/Llama-3.2-1B", "OPTIONS": "-o concurrency=64 -o dtype=bfloat16"}
    server = composition(*BOTH, LIBRARY=library, **chosen)["server"]
    assert (server["build"]["target"], server["image"]) == ("library-server", f"enginebench/server:{VERSION}-{library}")
    assert server["build"]["args"]["LIBRARY"] == library
    words = server["command"]
    assert words[:2] == ["serve", library]
    assert words[words.index("--model") + 1] == chosen["MODEL"]
    options = options_by_engine([words[at + 1] for at, word in enumerate(words) if word == "-o"], [library])[library]
    assert options == {"python": "/opt/library-python", "concurrency": "64", "dtype": "bfloat16"}
    assert "> /opt/library-python" in DOCKERFILE


def test_dcgm_exports_what_the_page_shows_and_is_scraped(composition: Composition) -> None:
    used = set(re.findall(r"DCGM_FI_[A-Z_]+[A-Z]\b", (DOCKER / "prometheus/rules/engines/dcgm.yml").read_text()))
    rows = [line for line in (DOCKER / "dcgm/fields.csv").read_text().splitlines() if not line.startswith("#")]
    fields = {row.split(",")[0] for row in rows}
    assert all(re.fullmatch(r"\w+, (gauge|counter), [^,]+", row) for row in rows)
    assert fields == (used - {"DCGM_FI_DEV_CLOCK"}) | {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS"}  # of two names, the newer
    services = composition(*BOTH)
    targets = (DOCKER / "prometheus/targets.compose/gpus.yml").read_text()
    assert re.findall(r"- (\S+):9400", targets) == [name for name in services if name == "dcgm"] == ["dcgm"]


def test_the_documented_builds_name_targets_and_flavours_that_there_are() -> None:
    targets = set(re.findall(r" AS ([a-z-]+)$", DOCKERFILE, re.MULTILINE))
    texts = [DOCKERFILE, *((ROOT / "docs" / name).read_text() for name in ("observability.md", "gpu-server.md"))]
    for text in texts:
        for line in re.findall(r"docker build .*(?:\\\n.*)?", text):
            assert set(re.findall(r"--target (\S+)", line)) < targets, line
            tag = re.search(rf"-t enginebench/\w+:{re.escape(VERSION)}-(\S+)", line)
            flavour = re.search(r"(?:FLAVOUR|LIBRARY)=(\S+)", line)
            if tag is not None:
                assert tag[1] == (flavour[1] if flavour else "cpu"), line


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
