"""Locust's page and the exporter: the sums of all processes, and whether stages met the SLO."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from enginebench.settings.system import free_port
from loadtests.harness.live.live_json import read_live
from tests.support.loadtests.locust_process import answers, listens, with_page
from tests.support.servers.scripted import Script, ScriptedServer


def test_the_page_and_the_exporter_sum_up_all_processes_to_the_end_of_a_stopped_run(tmp_path: Path) -> None:
    """Requests that were cut off among them. The page stays open, and the metrics for one more scrape."""
    port = free_port()
    exporter = f"127.0.0.1:{port}"
    options = ("--stages", "4", "--stage-seconds", "60", "--warm-up", "1", "--slo", "ttft_p95=0.02", "--autostart")
    with (
        ScriptedServer(Script(ttft=0.1, tpot=0.01, tokens=9)) as server,
        with_page(server, tmp_path, *options, "--exporter", exporter, processes=2) as (locust, page),
    ):

        def row() -> dict[str, str]:
            (table,) = page.get("/stats/requests").json()["extended_stats"]
            return dict(table["data"][0]) if table["data"] else {"slo": "", "answered": ""}

        html, script = page.get("/").text, page.get("/enginebench/page.js")
        locust.wait_until(lambda: row()["slo"] == "counting")
        locust.wait_until(lambda: int(row()["answered"] or 0) >= 20)
        shown = row()
        assert httpx.get(f"http://{exporter}/", trust_env=False).status_code == 404
        page.post("/stop").raise_for_status()
        locust.wait_until(lambda: page.get("/stats/requests").json()["state"] == "stopped")
        locust.wait_until(lambda: row()["slo"] == "missed")
        metrics = httpx.get(f"http://{exporter}/metrics", trust_env=False)
        locust.wait_until(lambda: not listens(port))
        assert answers(page)
    assert "enginebench/page.js" in html
    assert "Tokens" in html
    assert script.headers["content-type"].startswith("text/javascript")
    assert 'searchParams.set("tab"' in script.text
    assert shown["load"] == "4 users"
    assert 99 < float(shown["ttft_user p50"].removesuffix(" ms")) < 1000, "100 ms, and what a busy machine adds"
    assert len(locust.records) >= int(shown["answered"])
    assert shown["goodput"] == "0 req/s", "no first token comes within 20 ms"
    assert read_live(locust.run).stages[0].ok >= int(shown["answered"])
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    counted = {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(metrics.text)
        for sample in family.samples
        if sample.name == "enginebench_load_requests_total" and sample.value
    }
    assert counted == Counter(record.outcome for record in locust.records)
    assert "cut_off" in counted
