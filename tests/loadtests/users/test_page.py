"""Locust's page: the tab that opens first, whether its stages met the SLO, and the script of the page."""

from __future__ import annotations

from pathlib import Path

import httpx

from enginebench.settings.system import free_port
from tests.support.loadtests.locust_process import answers, start
from tests.support.servers.scripted import Script, ScriptedServer


def test_the_page_opens_on_the_tab_with_the_answers(tmp_path: Path) -> None:
    port = free_port()
    with ScriptedServer(Script(ttft=0.05, tpot=0.005, tokens=9)) as server:
        locust = start(
            server, tmp_path, "--stages", "4", "--stage-seconds", "6", "--warm-up", "1", "--slo", "ttft_p95=0.001",
            "--web-host", "127.0.0.1", "--web-port", str(port), "--autostart", "--autoquit", "60", headless=False,
        )  # fmt: skip
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as page:

            def answer() -> str:
                (table,) = page.get("/stats/requests").json()["extended_stats"]
                return str(table["data"][0]["slo"]) if table["data"] else ""

            locust.wait_until(lambda: answers(page))
            assert "enginebench/page.js" in page.get("/").text
            script = page.get("/enginebench/page.js")
            locust.wait_until(lambda: answer() == "counting")
            locust.wait_until(lambda: answer() == "missed", timeout=120)
        locust.process.terminate()
        locust.wait()
    assert script.headers["content-type"].startswith("text/javascript")
    assert 'searchParams.set("tab"' in script.text
