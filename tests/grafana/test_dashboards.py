"""The dashboards' JSON is what their Python says, loses nothing on the way, and can be read by a person."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.build import BOARDS, FOLDER, render, target
from grafana.palette import BY_ENGINE, BY_GPU, BY_REASON, ENGINES, RED
from servers.gpu.nvml import THROTTLES
from tests.support.dashboards import DASHBOARDS

ROOT = Path(__file__).parents[2]
PANELS = [panel for board in DASHBOARDS.values() for panel in board["panels"] if panel["type"] != "row"]

every_board = pytest.mark.parametrize("name", BOARDS)

# Grafana's grid at a window of 1 366 × 768: 24 columns of 55 px beside the folded menu, rows of 38 px.
COLUMN, ROW, SCREEN = 55, 38, 16  # px, px, rows that are seen at once


@every_board
def test_the_committed_json_is_what_the_code_generates(name: str) -> None:
    assert target(name).read_text(encoding="utf-8") == render(name), "run `make dashboards` and commit the result"


def test_no_other_file_is_provisioned() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.json" for name in BOARDS}
    assert len({board["uid"] for board in DASHBOARDS.values()}) == len(BOARDS) == 5


@every_board
def test_the_typed_model_knows_every_key(name: str) -> None:
    assert _unknown(DASHBOARDS[name]) == []


def test_the_typed_model_would_have_dropped_a_typo() -> None:
    misspelt = json.loads(target("engine").read_text(encoding="utf-8"))
    misspelt["panels"][1]["fieldConfig"]["defaults"]["untis"] = "s"
    assert _unknown(misspelt) == ["/panels/1/fieldConfig/defaults/untis"]


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
def test_no_panel_covers_another_and_none_leaves_the_grid(name: str) -> None:
    cells = {
        panel["id"]: {
            (x, y)
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        }
        for panel in DASHBOARDS[name]["panels"]
    }
    assert len(cells) == len(DASHBOARDS[name]["panels"]), "ids are unique"
    assert [pair for pair in combinations(cells, 2) if cells[pair[0]] & cells[pair[1]]] == []
    covered = set().union(*cells.values())
    height = max(y for _, y in covered) + 1
    assert covered == {(x, y) for x in range(24) for y in range(height)}, "the grid is full: no gaps, no overhang"
    assert height <= 3.5 * SCREEN


def test_every_panel_says_what_it_answers() -> None:
    for panel in PANELS:
        assert re.fullmatch(r"[A-Z0-9].{20,400}\.", panel["description"], re.DOTALL), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert all(query["datasource"] == panel["datasource"] for query in panel["targets"]), panel["title"]
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"], panel["title"]
        assert defaults["noValue"], f"{panel['title']}: an empty panel says why"
        assert defaults["thresholds"]["steps"], panel["title"]


def test_every_panel_can_be_read_at_1366_pixels() -> None:
    for panel in PANELS:
        size = panel["gridPos"]
        assert len(panel["title"]) * 8 <= size["w"] * COLUMN - 40, f"{panel['title']}: the title is not cut"
        if panel["type"] == "timeseries":
            assert size["w"] * COLUMN >= 330, panel["title"]
            # A legend gets 35 % of the height. Two engines or GPUs; 6.6 px a letter, 28 px for the line before a name.
            legends = [query["legendFormat"] for query in panel["targets"]]
            names = [legend for legend in legends for _ in range(2 if legend.startswith("{{") else 1)]
            names = [
                re.sub(r"\{\{(pid|gpu|xid)\}\}", "12", name).replace("{{instance}}", "10.0.0.1:8000") for name in names
            ]
            names = [re.sub(r"\{\{\w+\}\}", "transformers", name) for name in names]
            per_line = max(1, int((size["w"] * COLUMN - 20) // max(len(name) * 6.6 + 28 for name in names)))
            lines = -(-len(names) // per_line)
            assert lines * 22 <= 0.35 * (size["h"] * ROW - 40), f"{panel['title']}: all of its legend is seen"


def test_no_line_is_red() -> None:
    for panel in PANELS:
        if panel["type"] == "timeseries":
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert all(step["color"] != RED for step in steps), panel["title"]


def test_series_of_one_panel_have_names_of_their_own() -> None:
    for panel in PANELS:
        legends = [query["legendFormat"] for query in panel["targets"]]
        assert len(set(legends)) == len(legends) > 0, panel["title"]
        assert [query["refId"] for query in panel["targets"]] == list("ABCDEFGH")[: len(legends)], panel["title"]


def test_engines_that_are_known_have_colours_of_their_own_and_labels_have_none() -> None:
    assert len(set(ENGINES.values())) == len(ENGINES)
    for engine, colour in ENGINES.items():
        for name in (engine, f"{engine} p99"):
            assert [shown for pattern, shown in BY_ENGINE.items() if _matches(pattern, name)] == [colour]
    for label in ("before", "after", "run1", "run2", "vllm-a", "transformers-batching"):
        assert not any(_matches(pattern, f"{label} p99") for pattern in BY_ENGINE), "Grafana derives it from the name"


def test_lines_of_one_panel_are_told_apart() -> None:
    for panel in PANELS:
        if panel["type"] == "timeseries":
            legends = [query["legendFormat"] for query in panel["targets"]]
            names = [re.sub(r"\{\{\w+\}\}", "7", legend) for legend in legends]
            drawn = [(_override(panel, name, "color"), _override(panel, name, "custom.lineStyle")) for name in names]
            assert all(one != other for one, other in combinations(drawn, 2)), names


def test_gpus_are_told_apart() -> None:
    names = [f"127.0.0.1:8000 GPU {number}" for number in range(8)]
    colours = [colour for name in names for pattern, colour in BY_GPU.items() if _matches(pattern, name)]
    assert len(colours) == len(set(colours)) == 8


def test_reasons_of_throttling_are_told_apart() -> None:
    names = [f"127.0.0.1:8000 GPU 0 {reason}" for reason in THROTTLES]
    colours = [colour for name in names for pattern, colour in BY_REASON.items() if _matches(pattern, name)]
    assert len(colours) == len(set(colours)) == len(THROTTLES) == 5


def _override(panel: dict[str, Any], name: str, what: str) -> Any:
    """A property of a series; the last rule that matches wins, as in Grafana."""
    found = None
    for rule in panel["fieldConfig"].get("overrides", ()):
        kind, options = rule["matcher"]["id"], rule["matcher"]["options"]
        if options == name if kind == "byName" else _matches(options, name):
            found = next((one["value"] for one in rule["properties"] if one["id"] == what), found)
    return found


def _matches(pattern: str, name: str) -> bool:
    body, flags = re.fullmatch(r"/(.*)/(i?)", pattern).groups()  # type: ignore[union-attr]
    return re.search(body, name, re.IGNORECASE if flags else 0) is not None


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


@every_board
def test_rates_follow_the_chosen_time_range_and_tiles_the_stage(name: str) -> None:
    for panel in DASHBOARDS[name]["panels"]:
        for query in panel.get("targets", ()):
            windows = set(re.findall(r"\[[^\]]+\](?: offset \$\{stage\w+\}s)?", query["expr"]))
            instant = panel["type"] in {"stat", "table"}
            assert query["instant"] == instant, panel["title"]
            stage = {"[${stage_seconds}s] offset ${stage_ago}s", "[15m]"}
            assert windows - {"[30d]"} <= (stage if instant else {"[$__rate_interval]"}), panel["title"]


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
