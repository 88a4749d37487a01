"""One set of runs through every surface: what appears twice is equal, and every verdict has the same words."""

import json
import re
from html import unescape
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from enginebench.analysis.document import Document, Number, Table
from enginebench.analysis.frame import frame_of
from enginebench.analysis.reports import quick_document, report_document
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.write.cells import show
from enginebench.analysis.write.sentence import sentence
from enginebench.cli import app
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Estimate
from tests.support.analysis import recompute
from tests.support.analysis.synthetic import Engine, simulate_in_turn

SLO = "ttft_p90=0.15,tpot_p90=0.02"
SPACES = re.compile(r"\s+")


def plain(text: str) -> str:
    return SPACES.sub(" ", text).strip()


def text_of(html: str) -> str:
    """The text without tags."""
    return plain(unescape(re.sub(r"<[^>]*>", " ", html)))


def first_table(page: str) -> list[list[str]]:
    """The cells of each row."""
    rows = page.partition("<table>")[2].partition("</table>")[0].split("</tr>")
    return [[text_of(cell) for cell in re.findall(r"<t[dh] .*?</t[dh]>", row, re.S)] for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    engines = (Engine("slow", slots=4), Engine("fast", slots=8))
    return simulate_in_turn(tmp_path_factory.mktemp("runs"), engines, (2, 4, 8), 10.0)


@pytest.fixture(scope="module")
def document(folder: Path) -> Document:
    return report_document(frame_of(summaries_of([str(folder)], folder, parse_objectives([SLO]))))


@pytest.fixture(scope="module")
def printed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command prints or writes, by surface."""
    files = {suffix: tmp_path_factory.mktemp("files") / f"report.{suffix}" for suffix in ("html", "md")}
    outputs = [word for path in files.values() for word in ("--output", str(path))]
    baseline = tmp_path_factory.mktemp("baseline")
    commands = {
        "terminal": ["report", str(folder), "--slo", SLO, *outputs],
        "json": ["report", str(folder), "--slo", SLO, "--json"],
        "compare": ["compare", str(folder), "--slo", SLO],
        "plan": ["plan", str(folder), "--slo", SLO, "--peak", "40users", "--price", "1.80"],
        "priced": ["report", str(folder), "--slo", SLO, "--peak", "40users", "--price", "1.80"],
        "fast": ["report", *(str(folder / f"fast-{repeat}") for repeat in range(3)), "--slo", SLO],
        "gate": ["gate", str(folder), "--slo", SLO, "--baseline", str(baseline), "--json"],
    }
    saved = CliRunner().invoke(app, ["gate", str(folder), "--slo", SLO, "--baseline", str(baseline), "--save-baseline"])
    assert saved.exit_code == 0, saved.output
    results = {name: CliRunner().invoke(app, words, env={"COLUMNS": "250"}) for name, words in commands.items()}
    codes = {name: result.exit_code for name, result in results.items()}
    assert codes.pop("gate") == 3, "three runs are too few for a gate"
    assert set(codes.values()) <= {0, 1}, codes
    return {name: result.stdout for name, result in results.items()} | {n: p.read_text() for n, p in files.items()}


def candidate_rows(document: Document) -> list[list[str]]:
    assert isinstance(document.candidates, Table)
    return [[plain(show(cell).line) for cell in row] for row in document.candidates.rows]


@pytest.mark.parametrize("surface", ["terminal", "compare"])
def test_a_terminal_has_the_sentence_and_every_cell(document: Document, printed: dict[str, str], surface: str) -> None:
    lines = [plain(line) for line in printed[surface].splitlines()]
    assert sentence(document.answer) in plain(printed[surface])
    for row in candidate_rows(document):
        assert plain(" ".join(row)) in lines, row


def test_a_page_has_the_sentence_and_every_cell(document: Document, printed: dict[str, str]) -> None:
    assert sentence(document.answer) in text_of(printed["html"])
    rows = first_table(printed["html"])
    for row in candidate_rows(document):
        assert row in rows


def test_markdown_has_the_sentence_and_every_cell(document: Document, printed: dict[str, str]) -> None:
    unescaped = printed["md"].replace("\\", "")
    assert sentence(document.answer) in unescaped
    for row in candidate_rows(document):
        assert f"| {' | '.join(row)} |" in unescaped


def test_json_has_the_values_behind_every_cell(document: Document, printed: dict[str, str]) -> None:
    whole = json.loads(printed["json"])
    fast, slow = whole["candidates"]
    assert (fast["engine"], slow["engine"]) == ("fast", "slow")
    frame = document.frame
    for candidate in (fast, slow):
        capacity = frame.filter(engine=candidate["engine"], metric="capacity", statistic="value")["value"].item()
        assert candidate["users within the SLO"]["load"] == capacity
        tokens = frame.filter(engine=candidate["engine"], stage="8 users", metric="throughput", statistic="value")
        pooled = tokens.filter(tokens["repeat"].is_null()).row(0, named=True)
        shown = candidate["tokens/s at 8 users"]
        assert [shown[name] for name in ("value", "low", "high")] == [pooled[name] for name in ("value", "low", "high")]
    assert len(whole["rows"]) == len(frame)


def test_a_plan_and_a_report_agree_on_replicas_and_costs(printed: dict[str, str]) -> None:
    """Eight users a replica: five replicas for forty, at 730 hours a month; four users: ten."""
    for surface in ("plan", "priced"):
        text = plain(printed[surface])
        assert "Plan up to 5 replicas of fast for 40 users, $6,570 a month; slow needs 10, $13,140." in text, surface


def percentile(folder: Path, engine: str, metric: str, percent: int) -> float:
    """At eight users, over the requests of all three runs: computed again from the records."""
    values: list[float] = []
    for repeat in range(3):
        run = folder / f"{engine}-{repeat}"
        stage = json.loads((run / "meta.json").read_text())["stages"][2]
        due = [
            line
            for line in recompute.lines_of(run)
            if stage["steady_start"] <= line["t_sched"] < stage["steady_end"] and line["outcome"] != "sent"
        ]
        values += [value for line in due if (value := recompute.METRICS[metric](line)) is not None]
    return recompute.nearest_rank(values, percent)


@pytest.mark.parametrize("engine", ["fast", "slow"])
@pytest.mark.parametrize(("metric", "percent"), [("ttft_user", 90), ("tpot", 90), ("ttft", 95), ("e2e", 99)])
def test_a_percentile_is_that_of_the_requests_of_all_runs(
    folder: Path, document: Document, engine: str, metric: str, percent: int
) -> None:
    rows = document.frame.filter(engine=engine, stage="8 users", metric=metric, statistic=f"p{percent}")
    value = rows.filter(pl.col("repeat").is_null())["value"].item()
    assert value == pytest.approx(percentile(folder, engine, metric, percent), rel=1e-12)
    assert min(rows["value"]) <= value <= max(rows["value"])


def test_a_percentile_and_the_verdict_are_on_one_side_of_the_limit(document: Document) -> None:
    frame, limits = document.frame, {"ttft_user": 0.15, "tpot": 0.02}
    met = frame.filter(metric="slo", statistic="met")
    assert sorted(met["value"]) == [0, 1, 1, 1, 1, 1]
    for row in met.iter_rows(named=True):
        of_all = frame.filter(pl.col("repeat").is_null(), engine=row["engine"], stage=row["stage"], statistic="p90")
        within = [of_all.filter(metric=name)["value"].item() <= limit for name, limit in limits.items()]
        assert all(within) == (row["value"] == 1), row["stage"]


def test_a_plan_and_a_gate_show_the_percentiles_of_the_report(document: Document, printed: dict[str, str]) -> None:
    of_all = document.frame.filter(pl.col("repeat").is_null(), stage="8 users")
    fast = of_all.filter(engine="fast", metric="tpot", statistic="p90").row(0, named=True)
    shown = show(Number(Estimate(fast["value"], fast["low"], fast["high"]), "s")).line
    assert plain(shown) in plain(printed["plan"])
    rows = {
        (row["engine"], row["metric"], row["statistic"]): row["value"]
        for row in json.loads(printed["gate"])["rows"]
        if row["stage"] == "8 users"
    }
    for engine in ("fast", "slow"):
        for metric, statistic in (("tpot", "p50"), ("tpot", "p95"), ("throughput", "value")):
            value = of_all.filter(engine=engine, metric=metric, statistic=statistic)["value"].item()
            assert rows[engine, metric, statistic] == rows[engine, metric, f"{statistic} of the baseline"] == value


def test_quick_has_the_first_screen_of_a_report(folder: Path, printed: dict[str, str]) -> None:
    """Of the same runs; only the next step differs."""
    names = [str(folder / f"fast-{repeat}") for repeat in range(3)]
    frame = frame_of(summaries_of(names, folder, parse_objectives([SLO])))
    quick = quick_document(frame, ("--url", "http://127.0.0.1:8000"))
    assert quick.next is not None
    assert " ".join(quick.next.command).startswith("enginebench run capacity --url http://127.0.0.1:8000 --by users")
    lines = [plain(line) for line in printed["fast"].splitlines()]
    assert sentence(quick.answer) in plain(printed["fast"])
    rows = candidate_rows(quick)
    assert len(rows) == 3
    for row in rows:
        assert plain(" ".join(row)) in lines, row
