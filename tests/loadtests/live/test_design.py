"""The promises of the design, each on a copy of the program that one declaration is added to: a metric and a finding
reach every live surface, a sampling option the body of every API and `meta.json`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from enginebench.settings.system import free_port
from loadtests.harness.client.dialects.endpoints import DIALECTS
from tests.support.loadtests.locust_process import ROOT, with_page
from tests.support.servers.scripted import Script, ScriptedServer

ROOMS = ("enginebench", "loadtests")
METRIC_PLACE = "REQUEST_METRICS: tuple[Metric, ...] = (\n"
METRIC = """    Metric(
        "shine",
        "shine",
        Between(T_SEND, T_FIRST),
        "attempted",
        "a metric that a test declares",
        shown=Shown(live=("p90",), exported=True),
    ),
"""
KIND = """

def _a_test_check(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    yield Evidence("warn", "a finding that a test declares")


KINDS = (Kind("declared_by_a_test", "", "", "nothing to do", _a_test_check), *KINDS)
"""
OPTION_PLACE = "    temperature: float | None = api_setting("
OPTION = '    sparkle: float | None = api_setting(None, "An option that a test declares.", least=0)\n'
FIELD_PLACE = '"temperature": "temperature"'
FIELD = ', "sparkle": "glitter"'
LINE = """
import sys
from pathlib import Path
from loadtests.harness.command.run_progress import where_it_stands
from loadtests.harness.live.live_json import read_live
from enginebench.records.files import read_meta
folder = Path(sys.argv[1])
print(where_it_stands(read_meta(folder), 2**60, read_live(folder))[1])
"""
ASK = """
import sys
from pathlib import Path
from loadtests.harness.run.prepare import prepare
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.settings.run_settings import RunSettings
for endpoint in sys.argv[3:]:
    scenario = read(Scenario(), {"sparkle": "0.25", "endpoint": endpoint})
    settings = RunSettings(runs=Path(sys.argv[2]), run_id=endpoint, model="m")
    plan = prepare("test", scenario, settings, sys.argv[1], scenario.plan(), processes=(0,), hosts=1, grace=0.0)
    print(plan.workload.requests_of(0).next({}).body.decode())
"""


def copy_of_the_program(folder: Path) -> Path:
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room)
    return folder


def python(program: Path, code: str, *words: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ENGINEBENCH", "AWS"))}
    keys = {"AWS_BEARER_TOKEN_BEDROCK": "k", "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, words)],
        cwd=program,
        env=environment | keys | {"PYTHONPATH": str(program)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each live surface shows of a run of the changed program."""
    folder = tmp_path_factory.mktemp("declared")
    program = copy_of_the_program(folder / "program")
    records = program / "enginebench" / "records"
    metrics, kinds = records / "metrics.py", records / "findings" / "kinds.py"
    metrics.write_text(metrics.read_text().replace(METRIC_PLACE, METRIC_PLACE + METRIC))
    kinds.write_text(kinds.read_text() + KIND)
    exporter = f"127.0.0.1:{free_port()}"
    options = ("--stages", "2", "--stage-seconds", "3", "--warm-up", "0.5", "--exporter", exporter, "--autostart")
    with (
        ScriptedServer(Script(ttft=0.02)) as server,
        with_page(
            server, folder, *options, cwd=program, scenario=program / "loadtests" / "concurrent.py",
            preparation=lambda: None, environment={"PYTHONPATH": str(program)},
        ) as (locust, page),
    ):  # fmt: skip
        locust.wait_until(lambda: page.get("/stats/requests").json()["state"] == "stopped")
        tab = page.get("/stats/requests").json()["extended_stats"]
        return {
            "Locust's page": page.get("/").text + json.dumps(tab),
            "exporter": httpx.get(f"http://{exporter}/metrics", trust_env=False).text,
            "live.json": (locust.run / "live.json").read_text(),
            "progress line": python(program, LINE, locust.run),
        }


def test_a_declared_metric_reaches_every_live_surface(surfaces: dict[str, str]) -> None:
    assert re.search(r"shine p90 [\d.]+ m?s", surfaces["progress line"])
    assert surfaces["Locust's page"].count("shine p90") >= 2, "a column, and its value"
    assert "enginebench_load_shine_seconds_bucket" in surfaces["exporter"]
    stage = json.loads(surfaces["live.json"])["stages"][0]
    assert stage["metrics"]["shine"]["percentiles"]["p90"]["value"] >= 0.02


def test_a_finding_in_the_table_reaches_every_live_surface(surfaces: dict[str, str]) -> None:
    for name in ("progress line", "Locust's page", "live.json"):
        assert "a finding that a test declares" in surfaces[name], name
    assert re.search(r'enginebench_load_finding\{[^}]*kind="declared_by_a_test"[^}]*\} 2\.0\n', surfaces["exporter"])


def test_a_declared_sampling_option_reaches_the_api_that_has_it_and_meta_json(tmp_path: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    client = program / "loadtests" / "harness" / "client"
    for path, place, new in (
        (client / "sampling.py", OPTION_PLACE, OPTION + OPTION_PLACE),
        (client / "dialects" / "messages.py", FIELD_PLACE, FIELD_PLACE + FIELD),
    ):
        assert path.read_text().count(place) == 1
        path.write_text(path.read_text().replace(place, new))
    with ScriptedServer() as server:
        bodies = python(program, ASK, server.url, tmp_path / "runs", *DIALECTS).splitlines()
    assert len(bodies) == len(DIALECTS)
    for endpoint, text in zip(DIALECTS, bodies, strict=True):
        assert json.loads(text).get("glitter") == (0.25 if endpoint == "messages" else None)
        assert "sparkle" not in text
        assert json.loads((tmp_path / "runs" / endpoint / "meta.json").read_text())["workload"]["sparkle"] == 0.25
