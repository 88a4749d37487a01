"""`make pins` writes the digests that a registry gives, and nothing where there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from engines.libraries.vllm import VllmEngine
from loadtests.harness.run.host import free_port

ROOT = Path(__file__).parents[2]
TOKEN = "for-anyone"
DIGESTS = {
    "library/python:3.11-slim-bookworm": "sha256:" + "a" * 64,
    "prom/prometheus:v3.5.0": "sha256:" + "b" * 64,
    "grafana/grafana:13.0.1": "sha256:" + "c" * 64,
    "vllm/vllm-openai:v0.33.0": "sha256:" + "d" * 64,
}


class Registry(BaseHTTPRequestHandler):
    """Asks for a token first, as Docker Hub does."""

    def do_HEAD(self) -> None:
        name, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            host = self.headers["Host"]
            scope = f'service="registry",scope="repository:{name}:pull"'
            self._answer(401, "WWW-Authenticate", f'Bearer realm="http://{host}/token",{scope}')
        elif f"{name}:{tag}" in DIGESTS and "oci.image.index" in self.headers["Accept"]:
            self._answer(200, "Docker-Content-Digest", DIGESTS[f"{name}:{tag}"])
        else:
            self._answer(404)

    def do_GET(self) -> None:
        self._answer(200, body=f'{{"token": "{TOKEN}"}}'.encode() if "scope=repository" in self.path else b"{}")

    def _answer(self, status: int, header: str | None = None, value: str = "", body: bytes = b"") -> None:
        self.send_response(status)
        if header is not None:
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "docker", tmp_path / "docker")
    return tmp_path


def pin(root: Path, registry: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "docker/pins.py"), "--root", str(root), "--registry", registry]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_every_foreign_image_gets_its_digest_once(repository: Path, registry: str) -> None:
    for _ in range(2):  # the second time it replaces the first
        done = pin(repository, registry)
        assert done.returncode == 0, done.stderr
    dockerfile = (repository / "docker/Dockerfile").read_text()
    services = yaml.safe_load((repository / "docker/compose.yaml").read_text())["services"]
    overlay = yaml.safe_load((repository / "docker/kubernetes/overlays/vllm/kustomization.yaml").read_text())
    assert f"ARG BASE=python:3.11-slim-bookworm@sha256:{'a' * 64}\n" in dockerfile
    images = {name: service["image"] for name, service in services.items() if "image" in service}
    assert images == {
        "prometheus": f"prom/prometheus:v3.5.0@sha256:{'b' * 64}",
        "grafana": f"grafana/grafana:13.0.1@sha256:{'c' * 64}",
        "vllm": f"vllm/vllm-openai:v0.33.0@sha256:{'d' * 64}",
    }
    (image,) = overlay["images"]
    assert (image["newTag"], image["digest"]) == ("v0.33.0", f"sha256:{'d' * 64}")
    ours = ROOT / "docker/kubernetes/overlays/nvidia/kustomization.yaml"
    assert (repository / ours.relative_to(ROOT)).read_text() == ours.read_text()


@pytest.mark.parametrize("there", [False, True], ids=["no registry", "a registry without the image"])
def test_without_a_digest_no_file_is_changed(repository: Path, registry: str, there: bool) -> None:
    compose = repository / "docker/compose.yaml"
    compose.write_text(compose.read_text().replace("v3.5.0", "v0.0.1"))
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    done = pin(repository, registry if there else f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("Images stay pinned by their tags.\n")
    assert ("has no prom/prometheus:v0.0.1 (HTTP 404)" in done.stderr) == there
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


def test_vllms_image_is_the_version_that_the_engine_installs() -> None:
    assert VllmEngine.environment.cuda is not None
    (pinned,) = VllmEngine.environment.cuda.packages
    version = pinned.removeprefix("vllm==")
    assert f"image: vllm/vllm-openai:v{version}" in (ROOT / "docker/compose.yaml").read_text()
    overlay = (ROOT / "docker/kubernetes/overlays/vllm/kustomization.yaml").read_text()
    assert f"newTag: v{version}\n" in overlay
