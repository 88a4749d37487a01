"""Locust's page: the tab that opens first, its sums of all processes, and whether its stages met the SLO."""

from __future__ import annotations

from pathlib import Path

import httpx

from enginebench.settings.system import free_port
from loadtests.harness.live.live_json import read_live
from tests.support.loadtests.locust_process import answers, start
from tests.support.servers.scripted import Script, ScriptedServer


def test_the_page_opens_on_the_tab_with_the_sums_of_all_processes(tmp_path: Path) -> None:
    """That of a single process is in tests/loadtests/scenarios/test_concurrent.py."""
    port = free_port()
    with ScriptedServer(Script(ttft=0.1, tpot=0.01, tokens=9)) as server:
        locust = start(
            server, tmp_path, "--stages", "4", "--stage-seconds", "6", "--warm-up", "1", "--slo", "ttft_p95=0.02",
            "--web-host", "127.0.0.1", "--web-port", str(port), "--autostart", "--autoquit", "4", headless=False,
            processes=2,
        )  # fmt: skip
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as page:

            def row() -> dict[str, str]:
                (table,) = page.get("/stats/requests").json()["extended_stats"]
                return dict(table["data"][0]) if table["data"] else {"slo": "", "answered": ""}

            locust.wait_until(lambda: answers(page))
            html, script = page.get("/").text, page.get("/enginebench/page.js")
            locust.wait_until(lambda: row()["slo"] == "counting")
            locust.wait_until(lambda: int(row()["answered"] or 0) >= 20)
            shown = row()
            locust.wait_until(lambda: row()["slo"] == "missed")
        output = locust.wait()
    assert locust.process.returncode == 0, output
    assert "enginebench/page.js" in html
    assert "Tokens" in html
    assert script.headers["content-type"].startswith("text/javascript")
    assert 'searchParams.set("tab"' in script.text
    assert shown["load"] == "4 users"
    assert 99 < float(shown["ttft_user p50"].removesuffix(" ms")) < 1000, "100 ms, and what a busy machine adds"
    assert len(locust.records) >= int(shown["answered"])
    assert shown["goodput"] == "0 req/s", "no first token comes within 20 ms"
    assert read_live(locust.run).stages[0].ok >= int(shown["answered"])
