"""A container engine of this machine: Docker, or podman as root with Docker's interface.

If no registry can be reached, a minimal Debian built from its packages replaces the base image of our images, and
Debian's Prometheus replaces Prometheus' image.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.prometheus import running, until

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
BASE = "docker.io/library/" + re.findall(r"^ARG BASE=(\S+)$", (DOCKER / "Dockerfile").read_text(), re.M)[0]
PROMETHEUS = "docker.io/" + re.findall(r"image: (prom/\S+)$", (DOCKER / "compose.yaml").read_text(), re.M)[0]
STAND_IN = "localhost/enginebench-stand-in:bookworm-gcc"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PROCESSES = 16_384  # below podman's own limit, which is the kernel's number of process ids, 32 768 by default
PULL, BUILD = 120, 1500  # maximum seconds


class NoContainers(Exception):
    """No container can be run here. The text is a sentence that says why."""


@dataclass(frozen=True, slots=True)
class Containers:
    """`program` is `docker` or `podman`; `environment` makes Docker Compose use it."""

    program: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, timeout: float = 120) -> str:
        """Return the output of the command, which must succeed."""
        done = self._done([self.program, *arguments], timeout)
        assert done.returncode == 0, f"{self.program} {' '.join(arguments)}: {done.stderr[-3000:]}"
        return done.stdout

    def compose(self, *arguments: str, timeout: float = 300) -> str:
        compose = shutil.which("docker-compose", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert compose is not None, "docker-compose comes with `make setup`"
        command = [compose, "-f", str(DOCKER / "compose.yaml"), "--profile", "load", *arguments]
        done = self._done(command, timeout)
        assert done.returncode == 0, f"docker-compose {' '.join(arguments)}: {done.stderr[-3000:]}"
        return done.stdout

    def succeeds(self, *arguments: str) -> bool:
        return self._done([self.program, *arguments], PULL).returncode == 0

    def build(self, target: str, tag: str, base: str, **arguments: str) -> None:
        """Build one of the Dockerfile's images, in Docker's format, because it has health checks."""
        command = ["build", "--file", "docker/Dockerfile", "--target", target, "--tag", tag, "--network", "host"]
        if self.program == "podman":
            command += ["--format", "docker"]
        if base == STAND_IN:  # it has no Rust, so use this machine's
            arguments = {"RUST": base, "CUDA": base, "RUST_PROFILE": "quick", **arguments}
            for there, here in _rust().items():
                command += ["--volume", f"{here}:{there}"]
        for name, value in {"BASE": base, **arguments}.items():
            command += ["--build-arg", f"{name}={value}"]
        self.run(*command, str(ROOT), timeout=BUILD)

    def _done(self, command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment, "ENGINE": "fake", "EXTRAS": ""}
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=environment)


@contextmanager
def containers(folder: Path) -> Iterator[Containers]:
    """Yield the container engine, with podman's service for Docker Compose if needed. Raises `NoContainers`."""
    if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, timeout=60).returncode == 0:
        yield Containers("docker")
        return
    if shutil.which("podman") is None:
        packages = "podman runc netavark aardvark-dns catatonit iptables debootstrap"
        raise NoContainers(f"there is neither Docker nor podman here; on Debian: apt-get install {packages}.")
    if os.geteuid() != 0:
        raise NoContainers("podman is run as root by these tests.")
    socket, settings = folder / "podman.sock", folder / "containers.conf"
    runtime = '[engine]\nruntime = "runc"\n' if shutil.which("runc") else ""  # crun does not support hybrid cgroups
    settings.write_text(f"[containers]\ndefault_ulimits = {_limits()}\n{runtime}")
    variables = {"DOCKER_HOST": f"unix://{socket}", "CONTAINERS_CONF": str(settings)}
    service = ["env", f"CONTAINERS_CONF={settings}", "podman", "system", "service", "--time=0", f"unix://{socket}"]
    with running(service):
        until(socket.exists, "podman's service listens")
        yield Containers("podman", variables)


def _limits() -> str:
    """Return limits for containers: podman's own exceed this machine's, which not every root user may raise."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return json.dumps([f"nofile={files}:{files}", f"nproc={PROCESSES}:{PROCESSES}"])


@contextmanager
def images(engine: Containers, folder: Path) -> Iterator[str]:
    """Provide Prometheus' image, and yield the base image for ours. A stand-in for Prometheus is removed at the end;
    the one for Debian is kept for later runs. Raises `NoContainers`."""
    base = BASE
    has_prometheus = engine.succeeds("pull", "--quiet", PROMETHEUS)
    if not engine.succeeds("pull", "--quiet", BASE):
        base = STAND_IN
        if not engine.succeeds("image", "inspect", STAND_IN):
            _stand_in(engine, folder / "debian")
    if not has_prometheus:
        _prometheus_stand_in(engine, folder / "prometheus", base)
    try:
        yield base
    finally:
        if not has_prometheus:
            engine.run("rmi", "--force", PROMETHEUS)


def _stand_in(engine: Containers, folder: Path) -> None:
    """Build Debian with Python, pip and this machine's certificates, which may include a proxy's."""
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise NoContainers("no registry is reached, and without debootstrap (as root) there is no stand-in.")
    packages = "python3,python3-pip,python3-venv,ca-certificates,gcc,libc6-dev"
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD)
    if done.returncode != 0:
        raise NoContainers(f"debootstrap could not build a stand-in: {done.stdout[-500:]}")
    for marker in folder.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()  # as in the upstream image, pip may install into this Python
    (folder / "usr/bin/python").symlink_to("python3")
    for name in ("cargo", "rustc"):
        (folder / "usr/local/bin" / name).symlink_to(f"/usr/local/rust/bin/{name}")
    shutil.copy(CERTIFICATES, folder / CERTIFICATES.relative_to("/"))
    archive = folder.with_suffix(".tar")
    subprocess.run(["tar", "-C", str(folder), "-cf", str(archive), "."], check=True, timeout=BUILD)
    variables = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
    changes = [part for name in variables for part in ("--change", f"ENV {name}={CERTIFICATES}")]
    engine.run("import", *changes, str(archive), STAND_IN, timeout=BUILD)
    shutil.rmtree(folder)
    archive.unlink()


def _rust() -> dict[str, Path]:
    """Return this machine's folders of Rust by their paths inside an image that is built; empty without Rust."""
    if shutil.which("rustc") is None:
        return {}
    done = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return {"/usr/local/rust": Path(done.stdout.strip()).resolve(), "/root/.cargo/registry": home / "registry"}


def _prometheus_stand_in(engine: Containers, folder: Path, base: str) -> None:
    program = shutil.which("prometheus")
    if program is None:
        raise NoContainers("no registry is reached, and `prometheus` is not installed (`make system`).")
    folder.mkdir()
    shutil.copy(program, folder / "prometheus")
    lines = [f"FROM {base}", "COPY prometheus /bin/prometheus", "RUN install -d -o 65534 /prometheus"]
    lines += ["USER 65534", 'ENTRYPOINT ["/bin/prometheus"]']
    (folder / "Containerfile").write_text("\n".join(lines))
    engine.run("build", "--tag", PROMETHEUS, "--file", str(folder / "Containerfile"), str(folder), timeout=BUILD)
