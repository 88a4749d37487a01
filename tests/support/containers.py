"""A container engine of this machine: Docker, or podman as root with Docker's interface.

Where no registry is reached, a minimal Debian from its own packages stands in for the image that ours are built on, and
Debian's Prometheus for Prometheus' image.
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
PROCESSES = 16_384  # podman keeps no more for itself than the kernel has process ids, 32 768 by default
PULL, BUILD = 120, 1500  # seconds at most


class NoContainers(Exception):
    """Why no container can be run here. A sentence."""


@dataclass(frozen=True, slots=True)
class Containers:
    """`program` is `docker` or `podman`; `environment` leads Docker Compose to it."""

    program: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, timeout: float = 120) -> str:
        """What the command printed; it must succeed."""
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
        """One of the Dockerfile's images. In Docker's format, which has health checks."""
        command = ["build", "--file", "docker/Dockerfile", "--target", target, "--tag", tag, "--network", "host"]
        if self.program == "podman":
            command += ["--format", "docker"]
        if base == STAND_IN:  # has no Rust, for which this machine's stands in
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
    """The engine, and for podman the service that Docker Compose speaks to. Raises `NoContainers`."""
    if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, timeout=60).returncode == 0:
        yield Containers("docker")
        return
    if shutil.which("podman") is None:
        packages = "podman runc netavark aardvark-dns catatonit iptables debootstrap"
        raise NoContainers(f"there is neither Docker nor podman here; on Debian: apt-get install {packages}.")
    if os.geteuid() != 0:
        raise NoContainers("podman is run as root by these tests.")
    socket, settings = folder / "podman.sock", folder / "containers.conf"
    runtime = '[engine]\nruntime = "runc"\n' if shutil.which("runc") else ""  # crun takes no hybrid of cgroups
    settings.write_text(f"[containers]\ndefault_ulimits = {_limits()}\n{runtime}")
    variables = {"DOCKER_HOST": f"unix://{socket}", "CONTAINERS_CONF": str(settings)}
    service = ["env", f"CONTAINERS_CONF={settings}", "podman", "system", "service", "--time=0", f"unix://{socket}"]
    with running(service):
        until(socket.exists, "podman's service listens")
        yield Containers("podman", variables)


def _limits() -> str:
    """podman's own limits are above this machine's, and not every root may raise them."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return json.dumps([f"nofile={files}:{files}", f"nproc={PROCESSES}:{PROCESSES}"])


@contextmanager
def images(engine: Containers, folder: Path) -> Iterator[str]:
    """Has Prometheus' image, and gives the one to build ours on. A stand-in does not keep Prometheus' name; Debian is
    kept for the next time. Raises `NoContainers`."""
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
    """Debian with Python and pip, and this machine's certificates: a proxy's may be among them."""
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise NoContainers("no registry is reached, and without debootstrap (as root) there is no stand-in.")
    packages = "python3,python3-pip,python3-venv,ca-certificates,gcc,libc6-dev"
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD)
    if done.returncode != 0:
        raise NoContainers(f"debootstrap could not build a stand-in: {done.stdout[-500:]}")
    for marker in folder.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()  # the upstream image has a Python of its own, into which pip may install
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
    """Folders of this machine, by where an image that is being built has them; none without Rust."""
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
