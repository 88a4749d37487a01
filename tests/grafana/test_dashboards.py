"""The dashboards' JSON is what their Python says, and loses nothing on the way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.build import BOARDS, FOLDER, render, target
from tests.support.dashboards import DASHBOARDS

ROOT = Path(__file__).parents[2]
PANELS = [panel for board in DASHBOARDS.values() for panel in board["panels"] if panel["type"] != "row"]

every_board = pytest.mark.parametrize("name", BOARDS)


@every_board
def test_the_committed_json_is_what_the_code_generates(name: str) -> None:
    assert target(name).read_text(encoding="utf-8") == render(name), "run `make dashboards` and commit the result"


def test_no_other_file_is_provisioned() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.json" for name in BOARDS}
    assert len({board["uid"] for board in DASHBOARDS.values()}) == len(BOARDS) == 5


@every_board
def test_the_typed_model_knows_every_key(name: str) -> None:
    assert _unknown(DASHBOARDS[name]) == []


def _unknown(board: dict[str, Any]) -> list[str]:
    """Return the paths of what Grafana's types do not keep. They add their defaults."""
    register_default_plugins()  # without it, panels would be read as untyped dictionaries that keep anything
    return list(_lost(board, json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))))


def _lost(ours: Any, kept: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(kept, dict):
        for key, value in ours.items():
            yield from _lost(value, kept[key], f"{path}/{key}") if key in kept else [f"{path}/{key}"]
    elif isinstance(ours, list) and isinstance(kept, list) and len(ours) == len(kept):
        for index, (one, other) in enumerate(zip(ours, kept, strict=True)):
            yield from _lost(one, other, f"{path}/{index}")
    elif ours != kept:
        yield path


@every_board
def test_variables_exist_and_every_one_has_an_effect(name: str) -> None:
    variables = {variable["name"]: variable for variable in DASHBOARDS[name]["templating"]["list"]}
    shown = json.dumps([DASHBOARDS[name][part] for part in ("panels", "annotations", "links")])
    used = _variables_in(shown)
    assert used - {"__rate_interval", "__range_s"} <= set(variables)
    for variable in reversed(variables.values()):  # they refer to earlier ones
        if variable["name"] in used:
            used |= _variables_in(json.dumps(variable))
    assert set(variables) <= used


def _variables_in(text: str) -> set[str]:
    return set(re.findall(r"\$\{?([a-z_]\w*)", text))


def test_grafana_knows_the_scrape_interval() -> None:
    # $__rate_interval is four scrape intervals: a wrong one gives empty panels, or smeared ones.
    scraped = re.search(r"scrape_interval: (\w+)", (ROOT / "docker/prometheus/prometheus.yml").read_text())
    told = re.search(r"timeInterval: (\w+)", (ROOT / "grafana/provisioning/datasources/prometheus.yml").read_text())
    assert scraped is not None
    assert told is not None
    assert scraped[1] == told[1]


def test_the_guide_explains_every_panel() -> None:
    guide = (ROOT / "docs" / "observability.md").read_text()
    assert [panel["title"] for panel in PANELS if f"**{panel['title']}**" not in guide] == []
