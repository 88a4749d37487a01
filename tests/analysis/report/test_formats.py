"""A report as files: the numbers are the summary's, whatever the format."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from enginebench.analysis.compare.comparison import compare
from enginebench.analysis.data.load import load_run
from enginebench.analysis.first_screen import PlannedReplicas
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.report.contents import report_of
from enginebench.analysis.report.decision import decide
from enginebench.analysis.report.document import json_schema, numbers_of, write
from enginebench.analysis.summary.run_summary import summarise
from enginebench.cli import app
from enginebench.records.slo import parse_objectives
from tests.support.analysis.synthetic import Engine, simulate
from tests.support.servers.served import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue for four, and failures."""
    return simulate(tmp_path_factory.mktemp("runs") / "a", Engine("fake", failures=0.02), (2, 4, 12), 12.0)


@pytest.fixture(scope="module")
def written(folder: Path) -> Path:
    names = ("r.html", "r.md", "r.csv", "r.parquet", "r.json")
    outputs = [argument for name in names for argument in ("-o", str(folder / name))]
    done = report(folder, "--slo", "ttft_p95=0.2", *outputs)
    assert done.exit_code in {0, 1}, done.stderr
    assert all(f"a/{name}" in done.stdout.replace("\n", "") for name in names)
    return folder


def report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments), "--allow-invalid"])


def summary(folder: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return document


def test_every_number_of_the_long_table_is_the_summarys(written: Path) -> None:
    numbers = pl.read_parquet(written / "r.parquet")
    assert numbers.to_dicts() == pl.read_csv(written / "r.csv", schema=numbers.schema).to_dicts()
    assert numbers["label"].drop_nulls().unique().to_list() == ["fake"]
    for stage in summary(written)["stages"]:  # type: ignore[attr-defined]
        here = numbers.filter(pl.col("stage") == stage["label"])

        def row(metric: str, statistic: str, of: pl.DataFrame = here) -> dict[str, object]:
            (found,) = of.filter(metric=metric, statistic=statistic).to_dicts()
            return found

        for metric, distribution in stage["metrics"].items():
            for p, expected in distribution["percentiles"].items():
                found = row(metric, p)
                assert {name: found[name] for name in ("value", "low", "high", "n", "why")} == {
                    name: expected[name] for name in ("value", "low", "high", "n", "why")
                }
                assert found["unit"] == "s"
        for name, expected in stage["quantities"].items():
            assert row(name, "value")["value"] == expected["value"]
        for outcome, count in stage["outcomes"].items():
            assert row(outcome, "count")["value"] == count
    findings = numbers.filter(metric="finding")
    assert findings["statistic"].to_list() == [found["kind"] for found in summary(written)["findings"]]  # type: ignore[attr-defined]


def test_the_markdown_has_the_table_and_the_findings(written: Path) -> None:
    text = (written / "r.md").read_text()
    assert text.startswith("# fake: load test\n\n**fake ")
    stages = text.partition("## Results by stage")[2].partition("## ")[0]
    rows = [line.split("|") for line in stages.splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1, "as many cells in every row"
    assert [row[1].strip() for row in rows] == ["users", "---:", "2", "4", "12"]
    assert "**missed**: fake, TTFT p95 ≤ 200 ms" in text
    assert "- **" in text.partition(" caveat")[2]
    assert "| ≤ 500 ms |" in text.partition("## Users within pairs of limits")[2]
    advice, _, costs = text.partition("## Deployment recommendation")[2].partition("## Cost of the tokens")
    assert "- **fake, limit**: " in advice
    assert "| fake | 4 users | " in costs


def test_the_json_obeys_its_published_schema(written: Path) -> None:
    document = json.loads((written / "r.json").read_text())
    jsonschema.validate(document, json_schema())
    assert document["runs"][0]["stages"] == summary(written)["stages"]
    broken = document | {"objectives": "perhaps"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, json_schema())


def test_the_published_schema_is_what_the_command_writes() -> None:
    command = [sys.executable, "-m", "enginebench.analysis.report.document"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    published = (ROOT / "docs" / "report.schema.json").read_text()
    assert published == made, "run: python -m enginebench.analysis.report.document > docs/report.schema.json"


def test_every_format_holds_what_is_concluded(tmp_path: Path) -> None:
    """Two engines, one of them with another model, three runs of each, a price and planned replicas: each fact stands
    on the page, in Markdown, in the table and in JSON."""
    summaries = [
        summarise(
            load_run(
                simulate(
                    tmp_path / f"{label}-{k}", Engine(label, tpot=tpot), (2, 4, 8), 6.0, seed=k, repeat=k, model=model
                )
            ),
            parse_objectives(["ttft_p50=10"]),
        )
        for label, tpot, model in (("slow", 0.02, "one"), ("quick", 0.01, "one"), ("odd", 0.01, "another"))
        for k in range(3)
    ]
    comparison = compare(summaries, "slow")
    replicas = [
        PlannedReplicas(label, "80 users", 10, 9, 12, 1606.0, f"80 users within the limits: 10 replicas of {label}.")
        for label in ("slow", "quick", "odd")
    ]
    whole = report_of(
        summaries, comparison, decide(summaries, comparison, PlanSettings(price=(("", "3.6"),)), replicas)
    )
    for name in ("r.html", "r.md", "r.csv", "r.json"):
        write(whole, tmp_path / name)
    costs = whole.decision.costs
    assert costs is not None
    facts = [
        whole.headline,
        whole.criteria,
        *(planned.sentence for planned in replicas),
        *(finding.evidence for finding in comparison.findings),
        *(finding.remedy for finding in comparison.findings),
        *(advice.text for advice in whole.decision.advice),
        *whole.growth,
    ]
    assert comparison.findings
    assert whole.criteria
    for name in ("r.html", "r.md", "r.csv", "r.json"):
        text = (tmp_path / name).read_text()
        if name.endswith("json"):
            text = json.dumps(json.loads(text), ensure_ascii=False)
        if name.endswith("html"):
            text = html.unescape(re.sub(r"</?(?:span|code)[^>]*>", "", text))
        assert [fact for fact in facts if _plain(fact) not in _plain(text)] == [], name
    rows = numbers_of(whole).filter(label="quick", metric="cost")
    hour = rows.filter(statistic="cost per 1M tokens")
    assert hour["value"].item() == costs.of("quick").cost.value
    assert rows.filter(statistic="price of an hour")["value"].item() == 3.6
    assert rows.filter(statistic="cost over slow")["low"].item() == costs.of("quick").against.low
    planned = numbers_of(whole).filter(metric="replicas", label="quick")
    assert planned.select("value", "low", "high").row(0) == (10, 9, 12)


def _plain(text: str) -> str:
    """Without how a format sets code and quotes."""
    return re.sub(r"[`\\\"\"]", "", text)


def test_a_suffix_that_names_no_format_is_told(folder: Path) -> None:
    done = report(folder, "-o", folder / "report.pdf")
    assert done.exit_code == 2
    assert "use one of .html, .md, .csv, .parquet, .json, .svg" in " ".join(done.stderr.split())
    assert not (folder / "report.pdf").exists()
