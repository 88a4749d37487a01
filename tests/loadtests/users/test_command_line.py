"""Locust's command line as our scenarios have it."""

from pathlib import Path

import httpx
import psutil

from enginebench.settings.system import free_port
from tests.support.loadtests.locust_process import answers, start
from tests.support.servers.scripted import ScriptedServer


def test_half_a_flag_is_refused_because_it_may_be_a_secret_one(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        locust = start(server, tmp_path, "--stages", "1", "--heade", "X-Tenant: a-secret")
        said = locust.wait()
    assert locust.process.returncode == 2
    assert "unrecognized arguments: --heade" in said
    assert not (tmp_path / "runs").exists()


def test_the_page_is_for_this_machine_only(tmp_path: Path) -> None:
    port = free_port()
    with ScriptedServer() as server, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as page:
        locust = start(server, tmp_path, "--web-port", str(port), headless=False)
        try:
            locust.wait_until(lambda: answers(page))
            listening = [one for one in psutil.Process(locust.process.pid).net_connections() if one.status == "LISTEN"]
            assert {one.laddr.ip for one in listening if one.laddr.port == port} == {"127.0.0.1"}
        finally:
            locust.process.terminate()
            locust.wait()
