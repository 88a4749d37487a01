"""`plan.html`: its data agree with the plan, and a browser draws it without an error."""

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
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.records.formatting import format_share
from validation.plan.batching_server import Asked, BatchingServer, rates, write_run

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser")


@dataclass(frozen=True)
class Written:
    page: Path
    document: dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A page, and the document of the same plan."""
    folder = tmp_path_factory.mktemp("page")
    run = write_run(folder / "run", BatchingServer(jitter=0.02), rates(3, 6, 9), Asked(), window=30.0)
    wanted = ["--peak", "16req/s", "--headroom", "0.25", "--spares", "1", "--slo", "ttft_p95=0.3", "--price", "2"]
    wanted += ["--peak-seconds", "120"]
    page = folder / "plan.html"
    result = CliRunner().invoke(app, ["plan", str(run), *wanted, "--html", str(page), "--json"])
    assert result.exit_code == 0, result.output
    return Written(page, json.loads(result.output))


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    return dict(json.loads(found[1]))


def with_data(page: Path, data: dict[str, Any]) -> str:
    return re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + json.dumps(data) + m[2], page.read_text())


def test_the_page_needs_no_network(written: Written) -> None:
    assert not re.search(r'(src|href)="|url\(|@import|fetch\(', written.page.read_text())


def test_its_grid_falls_with_the_load_and_rises_with_the_limit(written: Written) -> None:
    data = data_of(written.page)
    shares = data["shares"]
    medians = [[[three[0] for three in limits] for limits in loads] for loads in shares]
    assert all(limits == sorted(limits) for loads in medians for limits in loads)
    assert medians[-1][0][30] > 0.95 > medians[-1][-1][30]
    assert data["price"] == 2
    assert data["unit"] == "req/s"


def test_its_grid_is_dense_enough_to_interpolate_in(written: Written) -> None:
    """Within a fifth more load a replica may go from every request in time to none."""
    loads = data_of(written.page)["loads"]
    least = written.document["replicas"]["low"]
    steps = [(heavier / lighter, lighter) for lighter, heavier in pairwise(loads)]
    assert max(step for step, _ in steps) < 1.251
    assert min(step for step, _ in steps) > 1.0
    assert max(step for step, at in steps if 20 / (least + 2) <= at < 20 / max(least - 1, 1)) < 1.081


def in_browser(*arguments: str) -> str:
    """Standard output; nothing may be said on the page's console."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@needs_browser
@pytest.mark.parametrize("size", ["A4 landscape", "letter portrait"])  # of either orientation the lower page
def test_it_prints_on_one_page_however_many_stages_there_were(written: Written, tmp_path: Path, size: str) -> None:
    data = data_of(written.page)
    longest = "20 users of 20261122-135108-an-engine-with-a-long-name-886h"
    data["errors"] = [data["errors"][0] | {"load": longest}] * 30
    data["warnings"] = ["the mean step takes 1.40 times the usual one: some steps are much longer, so p99 is more"] * 3
    page = with_data(written.page, data)
    (tmp_path / "plan.html").write_text(page.replace("</style>", f"@page {{ size: {size}; }}</style>"))
    pdf = tmp_path / "plan.pdf"
    in_browser(
        f"--user-data-dir={tmp_path / 'profile'}", "--no-pdf-header-footer", f"--print-to-pdf={pdf}",
        (tmp_path / "plan.html").as_uri(),
    )  # fmt: skip
    assert len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) == 1


@needs_browser
def test_a_browser_draws_the_figures_of_the_document(written: Written, tmp_path: Path) -> None:
    """Those of `--json`: the answer, the number of replicas with its range, the price with the spare one, the shares
    with the replicas named and with one fewer, the errors. The sliders stand where the plan's settings are."""
    drawn = in_browser(f"--user-data-dir={tmp_path}", "--dump-dom", written.page.as_uri())
    answer, explored = (re.search(rf'<p id="{name}"[^>]*>(.*?)</p>', drawn) for name in ("answer", "explored"))
    assert answer is not None
    assert explored is not None
    assert answer[1] == written.document["answer"]
    replicas = written.document["replicas"]
    count, fewer = replicas["count"], replicas["fewer"]["of"][0]["median"]
    assert explored[1].startswith(
        f"20 req/s at TTFT p95 ≤ 300 ms: {count} replicas [{replicas['low']}, {replicas['high']}] and 1 spare; "
        f"with {count - 1}, {format_share(fewer)} of the requests are within 300 ms; ${2 * (count + 1):.2f} an hour, "
    )
    assert explored[1].endswith(f"${1460 * (count + 1):,} a month.")
    sliders = dict(re.findall(r'<input type="range" id="(\w+)"[^>]* aria-valuetext="([^"]*)"', drawn))
    assert sliders["peak"] == "16 req/s"
    assert sliders["headroom"] == "25 %"
    assert (sliders["limit"], sliders["spares"], sliders["price"]) == ("300 ms", "1", "$2.00")
    assert '<thead><tr class=""><th scope="col">load</th>' in drawn
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", drawn)]
    assert len(written.document["held_out"]) == 3
    for one in written.document["held_out"]:
        errors = [one["errors"][figure] for figure in ("ttft_p50", "ttft_p95", "tpot_p50", "e2e_mean", "throughput")]
        cells = [f"{100 * e:+.1f} %" if abs(e) >= 0.0005 else "0.0 %" for e in errors]
        assert any(row[1:] == cells and row[0].startswith(one["stage"]) for row in rows)
    for attainment in (replicas["chosen"], replicas["fewer"]):
        row = next(row for row in rows if row[:2] == [f"{attainment['replicas']}", _each(20 / attainment["replicas"])])
        share = attainment["of"][0]
        ends = [format_share(share[end]).removesuffix(" %") for end in ("low", "high")]
        assert html.unescape(row[2]) == f"{format_share(share['median'])} [{', '.join(ends)}]"
        assert row[3] == f"${2 * (attainment['replicas'] + 1):.2f}"


def _each(load: float) -> str:
    return f"{load:.3g} req/s"


@needs_browser
def test_a_large_load_is_not_rounded(written: Written, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    page.write_text(with_data(written.page, data_of(written.page) | {"unit": "users", "peak": 5432, "headroom": 0}))
    drawn = in_browser(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri())
    assert 'aria-valuetext="5432 users"' in drawn
    assert '<p id="explored" aria-live="polite" class="">5432 users at ' in drawn
