"""`plan.html`: its data agree with the document, and a browser draws it without an error."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.commands.plan import EXAMPLE_DATA, write_page
from enginebench.analysis.data.load import load_run
from enginebench.analysis.document import Document
from enginebench.analysis.frame import frame_of
from enginebench.analysis.plan.candidates import Plan, plans_of
from enginebench.analysis.plan.document import plan_document
from enginebench.analysis.plan.page import page_data
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.summary.run_summary import summarise
from enginebench.analysis.write.sentence import sentence
from enginebench.records.formatting import format_share
from enginebench.records.load import Rate
from enginebench.records.slo import parse_objectives
from validation.plan.batching_server import Asked, BatchingServer, rates, write_run

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser")


@dataclass(frozen=True)
class Written:
    page: Path
    document: Document
    plan: Plan
    data: dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A page, and the document of the same plan: 20 req/s with headroom, and one spare replica."""
    folder, slo = tmp_path_factory.mktemp("page"), parse_objectives(["ttft_p95=0.3"])
    run = write_run(folder / "run", BatchingServer(jitter=0.02), rates(3, 6, 9), Asked(), window=30.0)
    settings = PlanSettings(peak=Rate(16.0), headroom=0.25, spares=1, slo=slo, price=(("", "2"),), peak_seconds=60.0)
    frame = frame_of([summarise(load_run(run), slo)])
    (plan,) = plans_of(frame, settings)
    document = plan_document(frame, settings, [plan])
    data = page_data(document, [plan], settings)
    return Written(write_page(data, folder / "plan.html"), document, plan, data)


def with_grid(written: Written, path: Path, **changes: Any) -> Path:
    return write_page(written.data | {"grid": written.data["grid"] | changes}, path)


def test_the_page_needs_no_network(written: Written) -> None:
    assert not re.search(r'(src|href)="|url\(|@import|fetch\(', written.page.read_text())


def test_the_page_has_the_words_of_the_document(written: Written) -> None:
    assert written.data["answer"] == sentence(written.document.answer)
    assert [section["title"] for section in written.data["sections"]] == [
        section.title for section in written.document.sections if not section.folded
    ]
    assert written.data.keys() == json.loads(EXAMPLE_DATA.read_text()).keys()
    assert written.data["grid"].keys() == json.loads(EXAMPLE_DATA.read_text())["grid"].keys()


def test_its_grid_falls_with_the_load_and_rises_with_the_limit(written: Written) -> None:
    grid = written.data["grid"]
    medians = [[[three[0] for three in limits] for limits in loads] for loads in grid["shares"]]
    assert all(limits == sorted(limits) for loads in medians for limits in loads)
    assert medians[-1][0][30] > 0.95 > medians[-1][-1][30]
    assert (grid["price"], grid["unit"]) == (2, "req/s")


def test_its_grid_is_dense_enough_to_interpolate_in(written: Written) -> None:
    """Within a fifth more load a replica may go from every request in time to none."""
    count = written.plan.replicas.simulated
    assert count is not None
    count -= 1  # the spare one
    steps = [(heavier / lighter, lighter) for lighter, heavier in pairwise(written.data["grid"]["loads"])]
    assert 1.0 < min(step for step, _ in steps) <= max(step for step, _ in steps) < 1.251
    assert max(step for step, at in steps if 20 / (count + 2) <= at < 20 / max(count - 1, 1)) < 1.081


def in_browser(page: Path, profile: Path) -> str:
    """The page once its script has run; nothing may be said on its console."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def explored(drawn: str) -> str:
    found = re.search(r'<p id="explored"[^>]*>(.*?)</p>', drawn)
    assert found is not None
    return html.unescape(found[1])


@needs_browser
def test_a_browser_draws_the_numbers_of_the_document(written: Written, tmp_path: Path) -> None:
    """The answer, both numbers of replicas, the price with the spare one, and the shares with the replicas named and
    with one fewer. The sliders stand at the plan's settings."""
    drawn = in_browser(written.page, tmp_path)
    replicas, simulation = written.plan.replicas, written.plan.simulation
    assert f'<p id="answer">{written.data["answer"]}</p>' in drawn
    assert replicas.count is not None
    assert replicas.simulated is not None
    assert replicas.capacity is not None
    assert replicas.month is not None
    assert explored(drawn) == (
        f"20 req/s at TTFT p95 ≤ 300 ms: {replicas.count - 1} replicas as measured, {replicas.capacity.load:g} req/s "
        f"each ({replicas.simulated - 1} simulated) and 1 spare; ${2 * replicas.count:.2f} an hour, "
        f"${replicas.month:,.0f} a month."
    )
    sliders = dict(re.findall(r'<input type="range" id="(\w+)"[^>]* aria-valuetext="([^"]*)"', drawn))
    assert (sliders["peak"], sliders["headroom"]) == ("16 req/s", "25 %")
    assert (sliders["limit"], sliders["spares"], sliders["price"]) == ("300 ms", "1", "$2.00")
    assert simulation is not None
    assert simulation.replicas is not None
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", drawn)]
    for fleet in (simulation.replicas.chosen, simulation.replicas.fewer):
        assert fleet is not None
        row = next(row for row in rows if row[:2] == [f"{fleet.replicas}", f"{20 / fleet.replicas:.3g} req/s"])
        assert [html.unescape(text) for text in row[2:4]] == [
            format_share(fleet.share.median),
            format_share(fleet.share.low),
        ]


@needs_browser
def test_a_large_load_is_not_rounded_and_doubts_are_named(written: Written, tmp_path: Path) -> None:
    page = with_grid(written, tmp_path / "plan.html", unit="users", peak=5432, headroom=0, measured=None, used=False)
    drawn = in_browser(page, tmp_path / "profile")
    assert 'aria-valuetext="5432 users"' in drawn
    assert explored(drawn).startswith("5432 users at ")
    assert "simulated (predictions were too far off to rely on it)" in explored(drawn)


@needs_browser
def test_without_a_simulation_there_are_no_sliders(written: Written, tmp_path: Path) -> None:
    page = write_page(written.data | {"grid": None}, tmp_path / "plan.html")
    drawn = in_browser(page, tmp_path / "profile")
    assert '<input type="range"' not in drawn
    assert written.data["answer"] in drawn
