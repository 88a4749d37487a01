"""A dashboard: one page that answers one question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana.load_promql import RUN_START, STAGE_INDEX, select
from grafana.palette import BLUE, GREY, ORANGE
from grafana.panels import SOURCE, Panel
from grafana.promql import CHOSEN, ENGINE_RESTARTS, WINDOW
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
    "includeVars": True,
    "keepTime": True,
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
        """Return the page as Grafana's JSON."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.question,
            "tags": [TAG, "llm", "load-test"],
            "timezone": "browser",
            "time": {"from": self.since, "to": "now"},
            "refresh": self.refresh,
            "graphTooltip": CROSSHAIR,
            "schemaVersion": SCHEMA,
            "links": [OTHER_PAGES, *self._whole_run()],
            "annotations": {"list": list(self.annotations)} if self.annotations else {},
            "templating": {"list": list(self.variables)},
            "panels": [panel | {"id": ordinal} for ordinal, panel in enumerate(self._placed(), start=1)],
        }

    def _whole_run(self) -> Iterator[dict[str, Any]]:
        """Yield a link that sets the time range, because Grafana lets no variable do that."""
        if any(variable["name"] == "run_to" for variable in self.variables):
            address = f"/d/{self.uid}?from=${{run_from}}&to=${{run_to}}"
            tooltip = "Set the time range to that of the run"
            yield {"type": "link", "title": "The whole run", "url": address, "tooltip": tooltip, "includeVars": True}

    def _placed(self) -> Iterator[Panel]:
        """Yield panels with places: they fill lines of the grid, and share a line's width."""
        y = 0
        for title, panels in self.rows.items():
            if title:
                yield {"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
                y += 1
            for line in _lines(panels):
                width, height = COLUMNS // len(line), line[0]["gridPos"]["h"]
                for place, panel in enumerate(line):
                    yield panel | {"gridPos": {"x": place * width, "y": y, "w": width, "h": height}}
                y += height


def _lines(panels: Sequence[Panel]) -> Iterator[list[Panel]]:
    """Yield lines of panels, each filled as far as their minimum widths allow."""
    line: list[Panel] = []
    for panel in panels:
        if sum(neighbour["gridPos"]["w"] for neighbour in (*line, panel)) > COLUMNS:
            yield line
            line = []
        line.append(panel)
    yield line


def _mark(name: str, colour: str, expr: str, title: str, text: str) -> Annotation:
    shown = {"name": name, "iconColor": colour, "titleFormat": title, "textFormat": text, **IN_MENU}
    return {"datasource": SOURCE, "enable": True, "expr": expr, "step": "5s", **shown}


_RESTARTED = f"increase({ENGINE_RESTARTS}{{{CHOSEN}}}{WINDOW})"

# The value of a run's start, as the load test exports it, is the time.
RUN_STARTS = _mark("Runs", BLUE, f"1000 * {select(RUN_START)}", "Run {{run}} starts", "{{engine}}") | {
    "useValueForTime": True
}
# The first seconds in which a stage is the newest.
STAGES = _mark(
    "Stages",
    GREY,
    f"{select(STAGE_INDEX)} unless on (run, stage) {select(STAGE_INDEX)} offset 15s",
    "Stage {{stage}}",
    "{{engine}}, run {{run}}",
)
RESTARTS = _mark("Engine restarts", ORANGE, f"sum by (engine) ({_RESTARTED}) > 0", "Engine restarted", "{{engine}}")
