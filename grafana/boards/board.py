"""A dashboard: one page that answers one question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana.load_promql import RUN_INFO, RUN_START, STAGE_INDEX, of_run
from grafana.palette import BLUE, GREY, ORANGE
from grafana.panels import SOURCE, Panel
from grafana.promql import CHOSEN, WINDOW
from grafana.variables import Variable

TAG = "enginebench"
COLUMNS = 24  # of Grafana's grid
CROSSHAIR, SCHEMA = 1, 42
IN_MENU = {"placement": "inControlsMenu"}
OTHER_PAGES = {
    "type": "dashboards",
    "title": TAG,
    "tags": [TAG],
    "tooltip": "The other pages, with the same choices and time range",
    "asDropdown": True,
    "icon": "",
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
    **IN_MENU,
}
Annotation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Board:
    """`rows` maps headings to panels; the panels of a heading without text stand at the top of the page."""

    uid: str
    title: str
    question: str
    variables: Sequence[Variable]
    rows: Mapping[str, Sequence[Panel]]
    annotations: Sequence[Annotation] = ()
    since: str = "now-30m"
    refresh: str = "5s"

    def build(self) -> dict[str, Any]:
        """The page as Grafana's JSON."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.question,
            "tags": [TAG, "llm", "load-test"],
            "timezone": "browser",
            "time": {"from": self.since, "to": "now"},
            "refresh": self.refresh,
            "timepicker": {"hidden": False, "refresh_intervals": ["5s", "10s", "30s", "1m", "5m"]},
            "graphTooltip": CROSSHAIR,
            "editable": True,
            "fiscalYearStartMonth": 0,
            "schemaVersion": SCHEMA,
            "links": [OTHER_PAGES],
            "annotations": {"list": list(self.annotations)} if self.annotations else {},
            "templating": {"list": list(self.variables)},
            "panels": [panel | {"id": ordinal} for ordinal, panel in enumerate(self._placed(), start=1)],
        }

    def _placed(self) -> Iterator[Panel]:
        """Side by side until a line of the grid is full."""
        x = y = tallest = 0
        for title, panels in self.rows.items():
            if title:
                x, y, tallest = 0, y + tallest, 0
                place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
                yield {"type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}
                y += 1
            for panel in panels:
                size = panel["gridPos"]
                yield panel | {"gridPos": {"x": x, "y": y, **size}}
                x, tallest = x + size["w"], max(tallest, size["h"])
                if x >= COLUMNS:
                    x, y, tallest = 0, y + tallest, 0


def _mark(name: str, colour: str, expr: str, title: str, text: str) -> Annotation:
    shown = {"name": name, "iconColor": colour, "titleFormat": title, "textFormat": text, **IN_MENU}
    return {"builtIn": 0, "datasource": SOURCE, "enable": True, "hide": False, "expr": expr, "step": "5s", **shown}


_RESTARTED = f"increase(enginebench_engine_restarts_total{{{CHOSEN}}}{WINDOW})"

# As the load test exports a run's start: the value is the time.
RUN_STARTS = _mark("Runs", BLUE, f"1000 * {of_run(RUN_START)}", "Run {{run}} starts", "{{engine}}") | {
    "useValueForTime": True
}
RUN_ENDS = _mark(
    "Ends of runs",
    GREY,
    f"{of_run(RUN_INFO)} offset 15s unless on (run, engine) {of_run(RUN_INFO)}",
    "Run {{run}} has ended",
    "{{engine}}",
)
# The first seconds in which a stage is the newest.
STAGES = _mark(
    "Stages",
    GREY,
    f"{of_run(STAGE_INDEX)} unless on (run, stage) {of_run(STAGE_INDEX)} offset 15s",
    "Stage {{stage}}",
    "{{engine}}, run {{run}}",
)
RESTARTS = _mark("Engine restarts", ORANGE, f"sum by (engine) ({_RESTARTED}) > 0", "Engine restarted", "{{engine}}")
