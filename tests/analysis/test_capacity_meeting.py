"""A capacity meeting, acted out: two servers, an SLO of two objectives, a peak and a price. Every command gives one
answer to "how many users within the SLO?", and it is a bracket of loads that were measured."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from enginebench.analysis.report.sections import BARS
from enginebench.cli import app
from enginebench.records.formatting import significant
from tests.support.analysis.synthetic import Engine, simulate

SLO = ("--slo", "ttft_p95=0.3", "--slo", "tpot_p95=0.05")
PEAK = ("--peak", "12users", "--price", "2")
LOADS = (4, 8, 12)
DIGITS = re.compile(r"\d[\d,]*(?:\.\d+)?")
ENGINES = (
    Engine("quick", slots=4, prefill=0.03, tpot=0.01, tokens=30, noise=0.2),
    Engine("wide", slots=8, prefill=0.05, tpot=0.015, tokens=30, noise=0.2),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for engine in ENGINES:
        for repeat in range(3):
            name = f"{engine.label}-{repeat}"
            simulate(folder / name, engine, LOADS, 16.0, repeat, run_id=name, repeat=repeat)
    return folder


def said(*words: str | Path, columns: int = 200) -> str:
    environment = {"COLUMNS": str(columns), "ENGINEBENCH_PEAK_SECONDS": "20"}
    done = CliRunner().invoke(app, list(map(str, words)), env=environment)
    assert done.exit_code in {0, 1}, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed(runs: Path) -> dict[str, str]:
    """What each command prints at 80 columns; `report` also writes its page and all its documents."""
    files = [runs / f"report.{suffix}" for suffix in ("html", "md", "csv", "json")]
    commands = {
        "report": ("report", runs, *SLO, *PEAK, *(word for file in files for word in ("-o", file))),
        "plan": ("plan", runs, *SLO, *PEAK),
        "compare": ("compare", runs, *SLO),
    }
    return {name: said(*words, columns=80) for name, words in commands.items()}


@pytest.fixture(scope="module")
def report(runs: Path, printed: dict[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((runs / "report.json").read_text())
    return document


@pytest.fixture(scope="module")
def plan(runs: Path) -> dict[str, Any]:
    """Of one of the engines."""
    quick = [runs / f"quick-{repeat}" for repeat in range(3)]
    document: dict[str, Any] = json.loads(said("plan", *quick, *SLO, *PEAK, "--json"))
    return document


def brackets(capacities: list[dict[str, Any]]) -> dict[str, tuple[float | None, float | None]]:
    return {capacity["engine"]: (capacity["met"], capacity["missed"]) for capacity in capacities}


def test_every_command_has_one_capacity(runs: Path, report: dict[str, Any], plan: dict[str, Any]) -> None:
    compared = json.loads(said("compare", runs, *SLO, "--json"))
    answer = brackets(report["capacities"])
    assert answer == {"quick": (4, 8), "wide": (8, 12)}, "each serves as many as it has slots"
    assert brackets(report["comparison"]["capacities"]) == answer
    assert brackets(compared["capacities"]) == answer
    assert brackets([plan["capacity"]["measured"]]) == {"quick": answer["quick"]}
    assert {end for bracket in answer.values() for end in bracket} <= set(LOADS), "measured loads, none in between"


def test_the_headline_is_the_comparison_of_capacities(runs: Path, report: dict[str, Any]) -> None:
    assert report["headline"].startswith(
        "wide holds 8 users within TTFT p95 ≤ 300 ms and TPOT p95 ≤ 50.0 ms (12 miss them); quick holds 4 (8 miss "
        "them): 2.0× ["
    )
    assert report["comparison"]["winner"] == "wide"
    page = (runs / "report.html").read_text()
    assert "wide holds 8 users within the SLO, quick 4" in page, "the chart's title"


def test_cost_and_replicas_agree(report: dict[str, Any], plan: dict[str, Any]) -> None:
    replicas = {each["engine"]: each for each in report["decision"]["replicas"]}["quick"]
    assert (replicas["count"], replicas["month"]) == (plan["replicas"]["count"], plan["bill"]["per_month"])
    assert plan["bill"]["per_month"] == pytest.approx(plan["replicas"]["count"] * 2 * 730, rel=0.01)


@pytest.mark.parametrize("command", ["report", "plan", "compare"])
def test_the_first_screen_answers_the_meeting(printed: dict[str, str], command: str) -> None:
    """Thirty seconds, one terminal of 24 lines: who, how many users of a replica, what for what, how sure."""
    screen = " ".join(" ".join(printed[command].splitlines()[:24]).split())
    rows = [
        "wide 8 (12 missed)",
        "quick 4 (8 missed)",
        "trade-off wide ",
        "how sure 2,592 requests measured in 3 runs of each",
    ]
    peak = "wide costs the least, 2 replicas at $2,920 a month (not reliable)"
    if command == "plan":
        rows = [peak, *rows]
    elif command == "report":  # which does not open with what is not reliable
        rows = ["wide holds 8 users within", *rows[:2], peak, *rows[2:]]
    assert ("replicas for 12 users a month" in screen) is (command != "compare")
    places = [screen.index(row) for row in rows]
    assert places == sorted(places)
    assert "with quick 10.2 ms (TPOT p50)" in screen
    assert "warn " not in screen, "what speaks against it comes below"


def test_report_and_plan_have_one_answer(printed: dict[str, str]) -> None:
    answer = " ".join(printed["plan"].split("\n\n")[0].split())
    assert f"the peak {answer}" in " ".join(printed["report"].split())
    assert "2 [2, 2]*  $2,920*" in printed["report"]
    assert "2 [2, 2]*  $2,920*" in printed["plan"]


def words_of(page: Path) -> str:
    """As they are read, in one line: without tags, and without what Markdown escapes by."""
    text = page.read_text().partition("</style>")[2] if page.suffix == ".html" else page.read_text().replace("\\", "")
    return " ".join(html.unescape(re.sub(r"<[^>]+>|[|]", " ", text)).split())


def test_every_number_of_the_first_screen_stands_in_the_other_formats(
    runs: Path, printed: dict[str, str], report: dict[str, Any]
) -> None:
    """Users, replicas with their interval, dollars, milliseconds, ratios and how many requests: as they are printed,
    and in CSV, outside the runs' own rows, as numbers or in sentences."""
    number = re.compile(r"\$?\d[\d,.]*(?: \[[^]]*\])?\*?(?: ms| s\b| %|×)?")
    numbers = {found.group().rstrip(".,") for found in number.finditer(first_screen(printed))}
    assert {"$2,920*", "2 [2, 2]*", "2,592", "300 ms"} <= numbers
    texts = {file: words_of(runs / file) for file in ("report.html", "report.md")}
    texts["report.json"] = json.dumps(report["screen"], ensure_ascii=False)
    for file, text in texts.items():
        assert [each for each in numbers if each not in text] == [], file
    rows = pl.read_csv(runs / "report.csv", infer_schema_length=None).filter(pl.col("run").is_null())
    known = {significant(value) for name in ("value", "low", "high") for value in rows[name].drop_nulls()}
    words = [word for name in ("statistic", "why") for word in rows[name].drop_nulls()]
    known |= {digits for sentence in words for digits in DIGITS.findall(sentence)}
    assert {digits for each in numbers for digits in DIGITS.findall(each)} - known == set()


def first_screen(printed: dict[str, str]) -> str:
    """What `report` prints above its picture, in one line."""
    lines = printed["report"].splitlines()
    picture = next(index for index, line in enumerate(lines) if set(line) & set(BARS))
    return " ".join(" ".join(lines[:picture]).split())


@pytest.mark.parametrize("command", ["report", "plan", "compare"])
def test_nothing_is_wider_than_the_terminal(printed: dict[str, str], command: str) -> None:
    assert [line for line in printed[command].splitlines() if len(line) > 80 and not line.startswith("Report: ")] == []
    assert "n/a" not in printed[command]
    assert "…" not in printed[command]


def test_the_page_opens_with_the_decision(runs: Path, printed: dict[str, str]) -> None:
    """The page that `report` writes: before the picture, the tables and the caveats."""
    text = html.unescape(re.sub(r"<[^>]+>", " ", (runs / "report.html").read_text().partition("</style>")[2]))
    page = " ".join(text.split())
    order = [
        "wide holds 8 users",
        "users within the SLO",
        "wide costs the least",
        "trade-off",
        "how sure",
        "saturates",
        "Results by stage",
    ]
    places = [page.index(each) for each in order]
    assert places == sorted(places)
