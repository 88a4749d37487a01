"""The page of a plan: its sliders start at the document's numbers, and count from what was measured."""

import html
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.document import Document, SliderEngine, Sliders
from enginebench.analysis.frame import frame_of
from enginebench.analysis.plan.report import plan_document
from enginebench.analysis.settings import PlanSettings
from enginebench.analysis.summary.run_summary import summarise
from enginebench.analysis.write.html import page
from enginebench.analysis.write.sentence import sentence
from enginebench.records.load import Users
from enginebench.records.slo import parse_objectives
from tests.support.present import present
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """80 users with headroom, and one spare replica; the server has 16 slots."""
    slo = parse_objectives(["ttft_p95=0.3", "tpot_p95=0.1"])
    run = write_run(
        tmp_path_factory.mktemp("page") / "run", BatchingServer(jitter=0.02), users(4, 12, 16, 24), Asked(), window=30.0
    )
    settings = PlanSettings(peak=Users(80), headroom=0.25, spares=1, slo=slo, price=(("", 2.0),), peak_seconds=30.0)
    return plan_document(frame_of([summarise(load_run(run), slo)]), settings)


def test_the_sliders_start_at_the_plan(document: Document) -> None:
    sliders = present(document.sliders)
    assert (sliders.unit, sliders.peak, sliders.headroom, sliders.spares) == ("users", 80.0, 0.25, 1)
    assert sliders.limits == (("TTFT p95", 0.3), ("TPOT p95", 0.1))
    (engine,) = sliders.engines
    assert (engine.price, engine.sustained) == (2.0, 16.0)
    assert engine.simulated == pytest.approx(100 / 7)
    assert [load for load, _ in engine.by_load] == [4.0, 12.0, 16.0, 24.0]
    first = [values[0] for _, values in engine.by_load]
    assert all(value is not None for value in first)
    assert [value is not None and value <= 0.3 for value in first] == [True, True, True, False]


def test_the_page_needs_no_network_and_has_no_script_without_sliders(document: Document) -> None:
    assert not re.search(r'(src|href)="[^#]|url\(|@import|fetch\(', page(document))
    assert "<script" not in page(replace(document, sliders=None))


def test_a_label_cannot_open_a_script(document: Document) -> None:
    sliders = present(document.sliders)
    (engine,) = sliders.engines
    hostile = replace(sliders, engines=(replace(engine, name="<!--<script>"),))
    assert "<!--<script>" not in page(replace(document, sliders=hostile))


def in_browser(text: str, folder: Path) -> str:
    """The page once its script has run; nothing may be said on its console."""
    written = folder / "page.html"
    written.write_text(text)
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={folder / 'profile'}", "--dump-dom", written.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def what_if(drawn: str) -> list[list[str]]:
    table = drawn[drawn.index('id="what-if"') :]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table[: table.index("</table>")])
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


@needs_browser
def test_a_browser_draws_the_numbers_of_the_document(document: Document, tmp_path: Path) -> None:
    drawn = in_browser(page(document), tmp_path)
    assert sentence(document.answer).startswith("Plan 8 replicas for 80 users, $11,680 a month")
    assert what_if(drawn) == [
        ["engine", "one replica sustains", "replicas for 100 users", "a month"],
        ["scripted", "16 users", "8", "$11,680"],
    ]
    shown = re.findall(r'<input type="range"[^>]* id="([^"]*)"[^>]* aria-valuetext="([^"]*)"', drawn)
    limits = {"TTFT-p95-at-most": "300 ms", "TPOT-p95-at-most": "100 ms"}
    others = {"Headroom": "25 %", "Spare-replicas": "1", "Replica-hour": "$2.00"}
    assert dict(shown) == {"Peak": "80 users"} | limits | others


@needs_browser
def test_other_limits_are_compared_with_what_was_measured_at_each_load(document: Document, tmp_path: Path) -> None:
    """A moved slider, as the page sees it: 0.2 s are met up to the load before the first that takes longer, even by an
    engine that misses the plan's own limits at every load."""
    loads = ((4.0, (0.1, 0.05)), (8.0, (0.19, 0.05)), (12.0, (0.21, 0.05)), (16.0, (0.18, 0.05)), (24.0, (None, 0.05)))
    engines = (SliderEngine("a", 1.0, 16.0, None, loads), SliderEngine("b", 3.0, None, 5.0, loads))
    sliders = Sliders("users", 5432.0, 0.0, 0, 730.0, (("TTFT p95", 0.3), ("TPOT p95", 0.1)), engines)
    moved = "sliders[1].moved = true; sliders[1].value = 0.2; draw();"
    text = page(replace(document, sliders=sliders))
    assert what_if(in_browser(text, tmp_path))[1:] == [
        ["a", "16 users", "340", "$248,200"],
        ["b", "5 users (simulated)", "1087", "$2,380,530"],
    ]
    drawn = in_browser(text.replace("draw();\n</script>", f"draw();\n{moved}\n</script>"), tmp_path)
    assert what_if(drawn)[1:] == [["a", "8 users", "679", "$495,670"], ["b", "8 users", "679", "$1,487,010"]]
