"""A dashboard: one page that answers one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from grafana.load_promql import CHOSEN_RUN, RUN_INFO, RUN_START, of_run
from grafana.palette import BLUE, GREY, ORANGE
from grafana.panels import SOURCE, Panel
from grafana.promql import CHOSEN, WINDOW
from grafana.variables import Variable

TAG = "enginebench"
STAGE = "enginebench_load_stage_index"


@dataclass(frozen=True, slots=True)
class Board:
    """`rows` maps headings to panels; the panels of a heading without text stand at the top of the page."""

    uid: str
    title: str
    question: str
    variables: Sequence[Variable]
    rows: dict[str, Callable[[], Sequence[Panel]]]
    annotations: Sequence[builders.AnnotationQuery] = field(default_factory=tuple)
    since: str = "now-30m"

    def build(self) -> models.Dashboard:
        board = (
            builders.Dashboard(self.title)
            .uid(self.uid)
            .description(self.question)
            .tags([TAG, "llm", "load-test"])
            .timezone("browser")
            .time(self.since, "now")
            .refresh("5s")
            .timepicker(builders.TimePicker().refresh_intervals(["5s", "10s", "30s", "1m", "5m"]))
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .editable()
            .link(_other_pages())
        )
        for annotation in self.annotations:
            board.annotation(annotation)
        for variable in self.variables:
            board.with_variable(variable)
        ordinal = 0
        for title, panels in self.rows.items():
            if title:
                ordinal += 1
                board.with_row(builders.Row(title).id(ordinal))
            for panel in panels():
                ordinal += 1
                board.with_panel(panel.id(ordinal))
        return board.build()


def _other_pages() -> builders.DashboardLink:
    return (
        builders.DashboardLink("enginebench")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .tooltip("The other pages, with the same choices and time range")
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def run_starts() -> builders.AnnotationQuery:
    """A run's start, as the load test exports it: the value is the time."""
    expr = f"1000 * {of_run(RUN_START)}"
    return _mark("Runs", BLUE, expr, "Run {{run}} starts", "{{engine}}").use_value_for_time(True)


def run_ends() -> builders.AnnotationQuery:
    info = f"max by (run, engine) ({RUN_INFO}{{{CHOSEN_RUN}}} offset 15s)"
    expr = f"{info} unless on (run, engine) max by (run, engine) ({RUN_INFO}{{{CHOSEN_RUN}}})"
    return _mark("Ends of runs", GREY, expr, "Run {{run}} has ended", "{{engine}}")


def stages() -> builders.AnnotationQuery:
    """The first seconds in which a stage is the newest."""
    expr = f"{of_run(STAGE)} unless on (job, instance, stage) {STAGE} offset 15s"
    return _mark("Stages", GREY, expr, "Stage {{stage}}", "{{engine}}, run {{run}}")


def restarts() -> builders.AnnotationQuery:
    expr = f"sum by (engine) (increase(enginebench_engine_restarts_total{{{CHOSEN}}}{WINDOW})) > 0"
    return _mark("Engine restarts", ORANGE, expr, "Engine restarted", "{{engine}}")


def _mark(name: str, colour: str, expr: str, title: str, text: str) -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .hide(False)
        .icon_color(colour)
        .expr(expr)
        .step("5s")
        .title_format(title)
        .text_format(text)
    )
