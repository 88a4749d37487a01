"""Several engines and settings side by side: which costs the least, and what dominates what."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from analysis.data.load import RunData, load_run
from analysis.plan.alternatives import Alternative, Alternatives, as_document, grouped, make_alternatives
from analysis.plan.settings import PlanSettings
from analysis.plan.terminal_alternatives import print_alternatives
from analysis.summary.run_summary import summarise
from records.files import read_meta, write_meta
from records.load import Rate
from records.slo import parse_objectives
from validation.plan.batching_server import Asked, BatchingServer, rates, write_run

SMALL = BatchingServer(base=0.03, per_running=0.002, slots=8, jitter=0.02)
LARGE = BatchingServer(base=0.01, per_running=0.0005, per_token=0.0001, slots=32, jitter=0.02)
PRICES = {"small": 0.7, "large": 3.0}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[RunData]:
    folder = tmp_path_factory.mktemp("two")
    small = write_run(folder / "small", SMALL, rates(1, 3), Asked(), window=20.0, label="small")
    large = write_run(folder / "large", LARGE, rates(5, 18), Asked(), window=20.0, label="large")
    return [load_run(small), load_run(large)]


@pytest.fixture(scope="module")
def found(two: list[RunData]) -> Alternatives:
    settings = PlanSettings(
        peak=Rate(30.0),
        slo=parse_objectives(["e2e_p90=3"]),
        peak_seconds=30.0,
        price=tuple((name, str(price)) for name, price in PRICES.items()),
    )
    return make_alternatives(grouped(two), {run.meta.run_id: summarise(run, settings.slo) for run in two}, settings)


def priced(found: Alternatives, **prices: float) -> Alternatives:
    """The same plans at other prices of a replica."""
    others = []
    for one in found.all:
        assert one.plan is not None
        assert one.plan.bill is not None
        bill = replace(one.plan.bill, per_hour=prices[one.name] * one.plan.count)
        others.append(replace(one, plan=replace(one.plan, bill=bill)))
    return replace(found, all=tuple(others))


def test_a_dearer_and_slower_engine_is_dominated(found: Alternatives) -> None:
    same = priced(found, small=1.0, large=1.0)
    assert (same.dominated_by("small"), same.dominated_by("large")) == ("large", None)
    assert same.sentence.startswith("large costs the least:")
    assert same.sentence.endswith("it dominates all others.")


def test_a_cheaper_and_slower_engine_is_on_the_front(found: Alternatives) -> None:
    cheap = priced(found, small=0.01, large=1.0)
    assert (cheap.dominated_by("small"), cheap.dominated_by("large")) == (None, None)
    assert cheap.sentence.startswith("small costs the least:")
    assert cheap.sentence.endswith("on the Pareto front: small, large.")


def test_without_prices_replicas_are_the_cost(found: Alternatives) -> None:
    document = as_document(replace(found, priced=False))
    assert document["cost_in"] == "replicas"
    assert [one["cost"] for one in document["alternatives"]] == [
        one["plan"]["replicas"]["count"] for one in document["alternatives"]
    ]


def test_the_table_says_what_is_dominated_and_ends_with_the_choice(found: Alternatives) -> None:
    console = Console(width=160, record=True, file=StringIO())
    refused = Alternative("other", None, "only 3 steps can be seen.")
    print_alternatives(console, replace(found, all=(*priced(found, small=1.0, large=1.0).all, refused)))
    page = console.export_text().splitlines()
    assert any("small" in line and "dominated by large" in line for line in page)
    assert any("large" in line and "on the front" in line for line in page)
    assert "warn other: only 3 steps can be seen." in page
    assert page[-1].startswith("large costs the least:")


def test_runs_of_one_label_are_told_apart_by_their_settings(two: list[RunData], tmp_path: Path) -> None:
    runs: list[RunData] = []
    for slots in (8, 8, 64):
        run = write_run(tmp_path / f"run{len(runs)}", SMALL, rates(1), Asked(), window=20.0, label="vllm")
        write_meta(run, replace(read_meta(run), engine={"name": "vllm", "options": {"max_num_seqs": slots}}))
        runs.append(load_run(run))
    found = grouped([*runs, two[0]])
    assert {name: len(of) for name, of in found.items()} == {
        "vllm (max_num_seqs=8)": 2,
        "vllm (max_num_seqs=64)": 1,
        "small": 1,
    }
