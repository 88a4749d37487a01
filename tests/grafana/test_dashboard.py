"""The dashboard's JSON is what its Python says, loses nothing on the way, and can be read by a person."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.build import TARGET, render

ROOT = Path(__file__).parents[2]
BOARD: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]

every_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def test_the_committed_json_is_what_the_code_generates() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run `make dashboards` and commit the result"


def test_the_typed_model_knows_every_key() -> None:
    register_default_plugins()  # without it, panels would be read as untyped dictionaries that keep anything
    again = json.loads(json.dumps(Dashboard.from_json(BOARD), cls=JSONEncoder))
    assert again == BOARD


def test_the_typed_model_would_have_dropped_a_typo() -> None:
    register_default_plugins()
    misspelt = json.loads(TARGET.read_text(encoding="utf-8"))
    misspelt["panels"][1]["fieldConfig"]["defaults"]["untis"] = "s"
    again = json.loads(json.dumps(Dashboard.from_json(misspelt), cls=JSONEncoder))
    assert again == BOARD


def test_no_panel_covers_another_and_none_leaves_the_grid() -> None:
    cells = {
        panel["id"]: {
            (x, y)
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        }
        for panel in BOARD["panels"]
    }
    assert len(cells) == len(BOARD["panels"]), "ids are unique"
    assert [pair for pair in combinations(cells, 2) if cells[pair[0]] & cells[pair[1]]] == []
    covered = set().union(*cells.values())
    height = max(y for _, y in covered) + 1
    assert covered == {(x, y) for x in range(24) for y in range(height)}, "the grid is full: no gaps, no overhang"


@every_panel
def test_a_panel_says_what_it_answers(panel: dict[str, Any]) -> None:
    assert re.fullmatch(r"[A-Z0-9].{20,400}\.", panel["description"], re.DOTALL)
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    if panel["type"] in {"stat", "timeseries"}:
        assert panel["fieldConfig"]["defaults"]["unit"]


@every_panel
def test_series_of_one_panel_have_names_of_their_own(panel: dict[str, Any]) -> None:
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert len(set(legends)) == len(legends) > 0
    assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH")[: len(legends)]


def test_only_variables_that_exist_are_used() -> None:
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", TARGET.read_text(encoding="utf-8")))
    assert used == names | {"__rate_interval", "__all"}


def test_every_rate_follows_the_chosen_time_range() -> None:
    windows = {window for query in QUERIES for window in re.findall(r"\[[^\]]+\]", query)}
    assert windows == {"[$__rate_interval]"}


def test_every_query_obeys_the_chosen_server() -> None:
    assert [
        query for query in QUERIES if "{" in query and query.count("{") != query.count('instance=~"$instance"')
    ] == []


def test_grafana_knows_the_scrape_interval() -> None:
    # $__rate_interval is four scrape intervals: a wrong one gives empty panels, or smeared ones.
    scraped = re.search(r"scrape_interval: (\w+)", (ROOT / "docker" / "prometheus.yml").read_text())
    told = re.search(r"timeInterval: (\w+)", (ROOT / "grafana/provisioning/datasources/prometheus.yml").read_text())
    assert scraped is not None
    assert told is not None
    assert scraped[1] == told[1]


@every_panel
def test_the_guide_explains_the_panel(panel: dict[str, Any]) -> None:
    assert f"**{panel['title']}**" in (ROOT / "docs" / "observability.md").read_text()
