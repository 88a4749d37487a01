"""What the fake engine is told, the final report says: through the real server, real Locust and the real analysis."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.records.schema import json_schema
from tests.support.analysis.rows import number, rows_of
from tests.support.loadtests.locust_process import start
from tests.support.servers.served import served

pytestmark = pytest.mark.alone

TTFT, TPOT, TOKENS, USERS = 0.3, 0.02, 11, 5
E2E = TTFT + (TOKENS - 1) * TPOT


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """One run of known delays: its folder, and what `enginebench report --json` says of its only stage."""
    options = ("--stages", str(USERS), "--stage-seconds", "8", "--output-tokens", str(TOKENS))
    with served(f"ttft={TTFT}", f"tpot={TPOT}") as server:
        locust = start(server, tmp_path_factory.mktemp("runs"), *options).finish()
    done = CliRunner().invoke(app, ["report", str(locust.run), "--json", "--allow-invalid"])
    assert done.exit_code == 0, done.stderr
    return locust.run, rows_of(done.stdout)


def test_what_the_engine_was_told_is_reported(reported: tuple[Path, pl.DataFrame]) -> None:
    _, rows = reported
    ttft = number(rows, "ttft", "p50")
    assert TTFT <= ttft < TTFT + 0.03, "never less than the truth, and little more than the pipe"
    assert number(rows, "ttft", "p50", column="n") > 50
    assert number(rows, "tpot", "p50") == pytest.approx(TPOT, rel=0.05)
    assert number(rows, "throughput", "value") == pytest.approx(USERS * TOKENS / E2E, rel=0.1), "nobody rests"
    assert number(rows, "failure_rate", "value") == 0
    parts = {name: number(rows, f"ttft_{name}", "value") for name in ("queue", "prefill", "delivery")}
    assert parts["prefill"] == pytest.approx(TTFT, abs=0.03)
    assert parts["queue"] < 0.02
    assert parts["delivery"] < 0.02


def test_every_record_obeys_the_published_schema(reported: tuple[Path, pl.DataFrame]) -> None:
    lines = [line for path in reported[0].glob("requests*.jsonl") for line in path.read_text().splitlines()]
    ended = [line for line in map(json.loads, lines) if line["event"] == "ended"]
    assert len(ended) > 50
    assert len(lines) == 2 * len(ended), "one line as a request is sent, one as it ends"
    schema = json_schema()
    obeys = jsonschema.validators.validator_for(schema)(schema)
    for line in ended:
        obeys.validate(line)


def test_the_page_that_people_open_shows_it(reported: tuple[Path, pl.DataFrame]) -> None:
    page = (reported[0] / "report.html").read_text()
    milliseconds = round(number(reported[1], "ttft", "p50") * 1000)
    assert f"{milliseconds}" in page
    assert page.count("<svg") >= 4
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://127.0.0.1", "")
