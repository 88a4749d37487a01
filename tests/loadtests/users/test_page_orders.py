"""Orders to a real page: what is refused, and which server gets keys. Each order is a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from enginebench.records.files import read_meta, read_requests
from enginebench.records.load import Users
from enginebench.settings.schema import settings_of
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings
from tests.support.loadtests.locust_process import Locust, with_page
from tests.support.servers.scripted import ScriptedServer

SECRETS = ("the-api-key", "the-header")
ROUTES = [
    *(("GET", path) for path in ("/", "/stats/requests", "/stats/report", "/exceptions", "/tasks", "/logs")),
    *(("GET", path) for path in ("/assets/nothing.js", "/enginebench/page.js", "/enginebench/plan", "/nowhere")),
    *(("POST", path) for path in ("/swarm", "/stop", "/user", "/stats/reset")),
    ("OPTIONS", "/swarm"),
    ("HEAD", "/"),
]
HIDDEN = [
    *("runs", "run_id", "exporter", "header", "command", "insecure", "dataset", "trace", "tokenizer"),
    *("opentelemetry", "locustfile", "logfile", "html_file", "csv_prefix", "config", "stop_timeout"),
    *("enginebench_plan", "enginebench_typed", "web_host", "expect_workers", "autostart", "tags", "user_classes"),
    *("shape_class", "num_users", "no_such_option"),
]


@dataclass
class Page:
    client: httpx.Client
    locust: Locust
    named: ScriptedServer
    other: ScriptedServer


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder, keys = tmp_path_factory.mktemp("page"), {"ENGINEBENCH_API_KEY": "the-api-key"}
    header = ("--header", "X-Secret: the-header")
    with (
        ScriptedServer() as named,
        ScriptedServer() as other,
        with_page(named, folder, *header, processes=2, environment=keys, clean=True) as (locust, client),
    ):
        locust.wait_until(lambda: client.get("/worker-count").json()["worker_count"] == 2)
        yield Page(client, locust, named, other)


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}], ids=str)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_another_site_is_refused_on_every_route(method: str, path: str, headers: dict[str, str], page: Page) -> None:
    form = {"host": page.other.url} if method == "POST" else None
    refused = page.client.request(method, path, headers=headers, data=form)
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers
    assert page.other.bodies == page.named.bodies == []


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        pytest.param(
            {"stages": "1,2,4", "stage_seconds": "2m", "trace": "/etc/passwd"},
            "This takes at least 6 min: 3 stages, 1 user to 4 users, 2 min each.",
            id="a plan, without what the page does not show",
        ),
        pytest.param({"stage_seconds": "soon"}, "--stage-seconds is a time such as 500ms, 5s, 2m or 1h, not `soon`."),
    ],
)
def test_the_start_form_shows_the_planned_stages_and_their_time(
    form: dict[str, str], sentence: str, page: Page
) -> None:
    assert page.client.get("/enginebench/plan", params=form).text == sentence


def test_the_start_form_has_the_most_used_settings_first(page: Page) -> None:
    arguments = page.client.get("/").text.partition("window.templateArgs = ")[2].partition("\n")[0]
    shown = list(json.loads(arguments)["extra_options"])
    assert shown[:6] == ["stages", "rate", "stage_seconds", "slo", "prompt_tokens", "output_tokens"]


@pytest.mark.parametrize("name", HIDDEN)
def test_what_the_page_does_not_show_is_refused(name: str, page: Page) -> None:
    answer = page.client.post("/swarm", data={"host": page.other.url, "stages": "1", name: "/tmp/elsewhere"})
    assert answer.status_code == 400
    said = f"This page does not show `{name}`: give it on the command line."
    assert answer.json() == {"success": False, "message": said}
    assert page.other.bodies == []


@pytest.mark.parametrize("edited", [{"user_class_name": "User", "host": "http://evil.example"}, {"abstract": True}, 5])
def test_user_classes_are_not_edited(edited: Any, page: Page) -> None:
    assert page.client.post("/user", json=edited).status_code == 400


def test_the_page_is_for_this_machine_only(page: Page) -> None:
    sockets = psutil.Process(page.locust.process.pid).net_connections()
    listening = {
        one.laddr.ip for one in sockets if one.status == "LISTEN" and one.laddr.port == page.client.base_url.port
    }
    assert listening == {"127.0.0.1"}


def test_no_path_and_no_secret_is_on_the_page(page: Page) -> None:
    settings = [one for kind in (Scenario, RunSettings) for one in settings_of(kind)]
    for one in settings:
        if one.metavar in {"PATH", "FOLDER", "COMMAND"} or one.secret or one.hint is Path:
            assert not one.on_page, one.name
    html = page.client.get("/").text
    assert not any(secret in html for secret in SECRETS)
    assert '"stage_seconds"' in html
    assert '"runs"' not in html


def test_each_start_makes_a_run_of_its_own_and_keys_go_to_the_server_of_the_command_line_only(page: Page) -> None:
    """Other, named, other: whatever has run before."""
    for server, with_keys in ((page.other, False), (page.named, True), (page.other, False)):
        server.headers.clear()
        form = {"host": server.url, "stages": "2", "stage_seconds": "30", "user_count": "1"}
        answer = page.client.post("/swarm", data=form).json()
        assert answer["success"], answer
        page.locust.wait_until(lambda server=server: len(server.headers) > 8)  # type: ignore[misc]
        page.client.post("/stop", headers={"Sec-Fetch-Site": "same-origin"}).raise_for_status()
        page.locust.wait_until(lambda: page.client.get("/stats/requests").json()["state"] == "stopped")
        for secret in SECRETS:
            sent = [any(secret in value for value in headers.values()) for headers in server.headers]
            assert all(sent) if with_keys else not any(sent), secret
    runs = list(page.locust.runs.iterdir())
    page.locust.wait_until(lambda: all(read_meta(run).stages[0].end for run in runs))
    assert [read_meta(run).stages[0].load for run in runs] == [Users(2)] * 3
    on_their_way = sum(len(list(read_requests(run))) for run in runs) - len(page.named.bodies) - len(page.other.bodies)
    assert 0 <= on_their_way <= 2 * len(runs), "a request of each user when it was stopped"
