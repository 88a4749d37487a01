"""Several engines and settings side by side: which costs the least, and what dominates what."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from enginebench.analysis.data.load import load_run
from enginebench.analysis.engine_runs import by_settings
from enginebench.analysis.first_screen import FirstScreen
from enginebench.analysis.plan.alternatives import Alternative, Alternatives, make_alternatives
from enginebench.analysis.plan.document import alternatives_document, screen_of
from enginebench.analysis.plan.page import page_data
from enginebench.analysis.plan.prices import dollars
from enginebench.analysis.plan.requests import Band
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.plan.terminal import print_plan
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.files import read_meta, write_meta
from enginebench.records.load import Rate
from enginebench.records.slo import parse_objectives
from validation.plan.batching_server import Asked, BatchingServer, rates, write_run

SMALL = BatchingServer(base=0.03, per_running=0.002, slots=8, jitter=0.02)
LARGE = BatchingServer(base=0.01, per_running=0.0005, per_token=0.0001, slots=32, jitter=0.02)
PRICES = {"small": 0.7, "large": 3.0}


OBJECTIVES = parse_objectives(["e2e_p90=3"])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[RunSummary]:
    folder = tmp_path_factory.mktemp("two")
    small = write_run(folder / "small", SMALL, rates(1, 3), Asked(), window=20.0, label="small")
    large = write_run(folder / "large", LARGE, rates(5, 18), Asked(), window=20.0, label="large")
    return [summarise(load_run(run), OBJECTIVES) for run in (small, large)]


@pytest.fixture(scope="module")
def alternatives(two: list[RunSummary]) -> Alternatives:
    settings = PlanSettings(
        peak=Rate(30.0),
        slo=OBJECTIVES,
        peak_seconds=30.0,
        price=tuple((name, str(price)) for name, price in PRICES.items()),
    )
    return make_alternatives(by_settings(two), settings)


def priced(alternatives: Alternatives, **prices: float) -> Alternatives:
    """The same plans at other prices of a replica."""
    others = []
    for alternative in alternatives.all:
        plan = alternative.plan
        assert plan is not None
        assert plan.bill is not None
        per_hour = prices[alternative.name] * plan.count
        bill = replace(plan.bill, per_hour=per_hour, per_month=730 * per_hour)
        others.append(replace(alternative, plan=replace(plan, bill=bill)))
    return replace(alternatives, all=tuple(others))


def test_a_dearer_and_slower_engine_is_dominated(alternatives: Alternatives) -> None:
    same = priced(alternatives, small=1.0, large=1.0)
    assert (same.dominated_by("small"), same.dominated_by("large")) == ("large", None)
    assert same.sentence.startswith(
        "30 req/s at E2E p90 ≤ 3.00 s: large costs the least, 2 replicas at $1,460 a month; "
    )
    assert same.sentence.count("replica") == 2, "what each of them needs"


def test_a_cheaper_and_slower_engine_is_on_the_front(alternatives: Alternatives) -> None:
    cheap = priced(alternatives, small=0.01, large=1.0)
    assert (cheap.dominated_by("small"), cheap.dominated_by("large")) == (None, None)
    assert "small costs the least" in cheap.sentence


def test_without_prices_replicas_are_the_cost(alternatives: Alternatives) -> None:
    document = alternatives_document(replace(alternatives, priced=False))
    assert document["cost_in"] == "replicas"
    assert [one["cost"] for one in document["alternatives"]] == [
        one["plan"]["replicas"]["count"] for one in document["alternatives"]
    ]


def shown(alternatives: Alternatives, two: list[RunSummary]) -> FirstScreen:
    return screen_of(alternatives, by_settings(two), Rate(30.0))


def test_every_engine_has_its_cost_a_month_in_the_terminal_the_document_and_the_page(
    alternatives: Alternatives, two: list[RunSummary]
) -> None:
    months = {name: plan.bill.per_month for name, plan in alternatives.planned.items() if plan.bill is not None}
    assert months == {name: 730 * PRICES[name] * plan.count for name, plan in alternatives.planned.items()}
    console = Console(width=160, record=True, file=StringIO())
    screen = shown(alternatives, two)
    print_plan(console, alternatives, screen)
    text = console.export_text()
    document = {one["name"]: one["cost"] for one in alternatives_document(alternatives)["alternatives"]}
    page = {row[0]: row for row in page_data(alternatives, screen)["screen"]}
    for name, month in months.items():
        assert f"{dollars(month)} a month" in alternatives.sentence
        assert sum(dollars(month) in line for line in text.splitlines()) >= 2, "in the answer, and in the table"
        assert document[name] == pytest.approx(month)
        assert dollars(month) in page[name]


def test_the_table_says_what_is_dominated_and_the_choice_comes_first(
    alternatives: Alternatives, two: list[RunSummary]
) -> None:
    console = Console(width=160, record=True, file=StringIO())
    refused = Alternative("other", None, "only 3 steps can be seen.")
    three = replace(alternatives, all=(*priced(alternatives, small=1.0, large=1.0).all, refused))
    other = [replace(run, label="other") for run in two[:1]]
    print_plan(console, three, shown(three, [*two, *other]))
    page = console.export_text().splitlines()
    assert "large costs the least" in page[0]
    assert any("small" in line and "dominated by large" in line for line in page)
    assert any("large" in line and "on the front" in line for line in page)
    assert "warn other: only 3 steps can be seen." in page


def test_answers_of_one_token_have_no_time_per_token(alternatives: Alternatives, two: list[RunSummary]) -> None:
    """`small` gives answers of one token: a dash, in no front because of it, and dominated all the same."""
    none = Band(math.nan, math.nan, math.nan)
    plans = []
    for alternative in priced(alternatives, small=1.0, large=1.0).all:
        plan = alternative.plan
        assert plan is not None
        chosen = replace(plan.replicas.chosen, tpot_p50=none)
        plans.append(replace(alternative, plan=replace(plan, replicas=replace(plan.replicas, chosen=chosen))))
    short = replace(alternatives, all=tuple(plans))
    assert (short.dominated_by("small"), short.dominated_by("large")) == ("large", None)
    console = Console(width=160, record=True, file=StringIO())
    print_plan(console, short, shown(short, two))
    rows = [line.split() for line in console.export_text().splitlines()]
    assert any(row[0] == "large" and row[-4:] == ["–", "on", "the", "front"] for row in rows if row)
    document = alternatives_document(short)["alternatives"][0]["plan"]["replicas"]["chosen"]
    assert document["tpot_p50"]["median"] is None


def test_runs_of_one_label_are_told_apart_by_their_settings(two: list[RunSummary], tmp_path: Path) -> None:
    runs: list[RunSummary] = []
    for slots, cache in ((8, 100_000), (8, 101_000), (64, 100_000)):  # the cache is what was free in memory
        run = write_run(tmp_path / f"run{len(runs)}", SMALL, rates(1), Asked(), window=20.0, label="vllm")
        options = {"max_num_seqs": slots, "kv_tokens": cache}
        write_meta(run, replace(read_meta(run), engine={"name": "vllm", "options": options}))
        runs.append(summarise(load_run(run)))
    assert {name: len(group) for name, group in by_settings([*runs, two[0]]).items()} == {
        "vllm (max_num_seqs=8)": 2,
        "vllm (max_num_seqs=64)": 1,
        "small": 1,
    }
