"""HAProxy in front of several servers, for the duration of a measurement.

Requests for answers are balanced; everything else (`/metrics`, `/v1/engine`) goes to the first server, so that scrapes
do not take turns of the round robin.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from enginebench.settings.system import free_port

START_LIMIT = 10.0  # seconds

CONFIGURATION = """\
defaults
    mode http
    option http-no-delay
    timeout connect 5s
    timeout client 600s
    timeout server 600s

frontend clients
    bind 127.0.0.1:{port}
    use_backend first unless METH_POST
    default_backend replicas

backend replicas
    balance roundrobin
{servers}

backend first
    server replica0 {first}
"""


def find_haproxy() -> str | None:
    """Find HAProxy, which on Debian is only on the administrators' PATH."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def load_balancer(program: str, ports: Sequence[int], folder: Path) -> Iterator[str]:
    """Yield the balancer's URL, once it accepts connections. `ports` of the servers on this machine."""
    port = free_port()
    written = folder / "haproxy.cfg"
    servers = "\n".join(f"    server replica{k} 127.0.0.1:{server}" for k, server in enumerate(ports))
    written.write_text(CONFIGURATION.format(port=port, servers=servers, first=f"127.0.0.1:{ports[0]}"))
    process = subprocess.Popen([program, "-db", "-f", str(written)], stdin=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("HAProxy did not start")
