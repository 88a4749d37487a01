"""`plan.html`: its data agree with the plan, and a browser draws it without an error."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench import app
from simulations.batching_server import Asked, BatchingServer, rates, write_run

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The page, and the last line of the terminal."""
    folder = tmp_path_factory.mktemp("page")
    run = write_run(folder / "run", BatchingServer(jitter=0.02), rates(3, 6, 9), Asked(), window=30.0)
    wanted = ("--peak", "20req/s", "--slo", "ttft_p95=0.3", "--peak-seconds", "120", "--price", "2")
    page = folder / "plan.html"
    result = CliRunner().invoke(app, ["plan", str(run), *wanted, "--html", str(page)])
    assert result.exit_code == 0, result.output
    return page, result.output.splitlines()[-1]


def data_of(page: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    return dict(json.loads(found[1]))


def test_the_page_needs_no_network(written: tuple[Path, str]) -> None:
    assert not re.search(r'(src|href)="|url\(|@import|fetch\(', written[0].read_text())


def test_its_grid_falls_with_the_load_and_rises_with_the_limit(written: tuple[Path, str]) -> None:
    data = data_of(written[0])
    shares = data["shares"]
    assert isinstance(shares, list)
    medians = [[[three[0] for three in limits] for limits in loads] for loads in shares]
    assert all(limits == sorted(limits) for loads in medians for limits in loads)
    assert medians[-1][0][30] > 0.95 > medians[-1][-1][30]
    assert data["price"] == 2
    assert data["unit"] == "req/s"


@pytest.mark.skipif(BROWSER is None, reason="needs a browser")
def test_a_browser_draws_the_same_answer(written: tuple[Path, str], tmp_path: Path) -> None:
    page, sentence = written
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
        "--enable-logging=stderr", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    shown = re.search(r'<p id="answer"[^>]*>(.*?)</p>', done.stdout)
    assert shown is not None
    replicas = re.compile(r"20 req/s at TTFT p95 ≤ 300 ms: (\d+) replica")
    ours, theirs = replicas.match(sentence), replicas.match(shown[1])
    assert ours is not None
    assert theirs is not None
    assert ours[1] == theirs[1]
    assert done.stdout.count("<tr") >= 8
