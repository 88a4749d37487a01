"""docs/architecture.md: its four examples are carried out on a copy of the tree, and touch no file that it hides."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.served import running

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
COPIED = ("enginebench", "engines", "servers", "loadtests")
BLOCK = re.compile(r"^```(python|diff) (\S+)\n(.*?)^```$", re.S | re.M)


def blocks(section: str) -> list[tuple[str, str, str]]:
    """What a section's blocks are (whole files or changes), whose, and their text."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.S | re.M)
    return BLOCK.findall(text)


EXAMPLES = {"Add a scenario": 1, "Add an arrival process": 1, "Add a metric of requests": 3, "Add an engine": 2}
"""How many files each may touch."""


@pytest.mark.parametrize(("section", "files"), EXAMPLES.items())
def test_an_addition_touches_few_files(section: str, files: int) -> None:
    assert len({path for _, path, _ in blocks(section)}) == files


def test_a_newcomer_reads_it_in_one_sitting() -> None:
    page = PAGE.read_text()
    assert len(page.splitlines()) <= 210
    harness = ROOT / "loadtests" / "harness"
    named = set(re.findall(r"`([\w/]+(?:/|\.py|\.md))`", page)) - {path for s in EXAMPLES for _, path, _ in blocks(s)}
    assert len(named) > 30
    missing = [
        name
        for name in named
        if not any((place / name).exists() for place in (ROOT, harness, ROOT / "engines" / "bench"))
    ]
    assert [name for name in missing if name not in {"cli.py"}] == []


def apply(change: str, path: Path) -> None:
    """Lines with a blank in front are there, exactly once; + comes after them, − goes."""
    text, place = path.read_text(), -1
    for line in change.splitlines(keepends=True):
        sign, rest = line[:1], line[1:]
        if sign in " -" and rest:
            assert text.count(rest) == 1, f"{path.name} has `{rest.strip()}` {text.count(rest)} times"
            at = text.index(rest)
            text = text if sign == " " else text.replace(rest, "")
            place = at + len(rest) if sign == " " else at
        else:
            text = text[:place] + (rest or "\n") + text[place:]
            place += len(rest or "\n")
    path.write_text(text)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program with all four examples in it."""
    folder = tmp_path_factory.mktemp("tree")
    for room in COPIED:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("target", "*.rs"))
    for section in EXAMPLES:
        for kind, path, text in blocks(section):
            if kind == "python":
                assert not (folder / path).exists()
                (folder / path).write_text(text)
            else:
                apply(text, folder / path)
    return folder


def environment(tree: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ENGINEBENCH", "OPENAI"))}
    return kept | {"PYTHONPATH": str(tree)}


@pytest.fixture(scope="module")
def summary(tree: Path) -> dict[str, object]:
    """What the report says of a run of the new scenario against the new engine."""
    serve = [sys.executable, "-P", "-m", "enginebench", "serve", "clock", "--port", "0"]
    locust = [sys.executable, "-P", "-m", "locust", "-f", "loadtests/evening.py", "--headless", "--only-summary"]
    locust += ["--stage-seconds", "2", "--runs", "runs", "--run-id", "one"]
    report = [sys.executable, "-m", "enginebench", "report", "runs/one", "--json", "--allow-invalid"]
    options = {"cwd": tree, "env": environment(tree), "capture_output": True, "text": True}
    with running(serve, environment(tree), tree) as server:
        done = subprocess.run([*locust, "--host", server.url], **options)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr
    done = subprocess.run(report, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_scenario_runs_against_the_engine(summary: dict[str, object]) -> None:
    rows = summary["rows"]
    assert isinstance(rows, list)
    assert {row["engine"] for row in rows} == {"clock"}
    stages = dict.fromkeys(row["stage"] for row in rows if row["stage"] is not None)
    assert list(stages) == ["2 users", "6 users", "2 users #2"]
    counted = [
        row["n"] for row in rows if (row["metric"], row["statistic"]) == ("e2e", "p50") and row["repeat"] is not None
    ]
    assert len(counted) == 3
    assert min(counted) >= 5


def test_the_metric_reaches_the_report(summary: dict[str, object]) -> None:
    rows = summary["rows"]
    assert isinstance(rows, list)
    runs = [row for row in rows if row["repeat"] is not None]
    medians = [row["value"] for row in runs if (row["metric"], row["statistic"]) == ("closing", "p50")]
    assert len(medians) == 3
    assert all(0 <= median < 0.05 for median in medians)


ARRIVALS = """
from itertools import islice
from random import Random
from statistics import fmean
from loadtests.harness.schedule.arrivals import gaps
drawn = list(islice(gaps("pareto:alpha=3", 8.0, Random(1)), 100_000))
print(fmean(drawn), min(drawn))
"""


def test_the_arrival_process_has_its_rate(tree: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ARRIVALS], cwd=tree, env=environment(tree), capture_output=True, text=True, check=True
    )
    mean, least = map(float, done.stdout.split())
    assert mean == pytest.approx(1 / 8, rel=0.03)
    assert least >= 2 / 3 / 8
