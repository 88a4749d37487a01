"""The dashboard for capacity planning, as typed Python.

    python grafana/build.py

writes `grafana/dashboards/enginebench.json`, which is committed, and which Grafana reads. Change the code, not the
JSON: `service.py` and `resources.py` hold the panels, `promql.py` the queries, `panels.py` the appearance.
"""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from grafana.panels import ORANGE, SOURCE, choice, threshold
from grafana.promql import CHOSEN, E2E, TTFT, WINDOW
from grafana.resources import gpu, saturation, server_and_engine, tokens
from grafana.service import at_a_glance, good_enough, latency, where_time_goes

TARGET = Path(__file__).parent / "dashboards" / "enginebench.json"
ROWS = {
    "At a glance": at_a_glance,
    "Is it good enough?": good_enough,
    "Latency": latency,
    "Where the time goes": where_time_goes,
    "Saturation": saturation,
    "Tokens": tokens,
    "Server and engine": server_and_engine,
    "GPU": gpu,
}


def dashboard() -> models.Dashboard:
    board = (
        builders.Dashboard("enginebench")
        .uid("enginebench")
        .description("Served language models under load: is it good enough, what limits it, what does it cost?")
        .tags(["enginebench", "llm", "load-test"])
        .timezone("browser")
        .time("now-30m", "now")
        .refresh("5s")
        .timepicker(builders.TimePicker().refresh_intervals(["5s", "10s", "30s", "1m", "5m"]))
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .editable()
        .annotation(_restarts())
    )
    for variable in _variables():
        board.with_variable(variable)
    ordinal = 0
    for title, panels in ROWS.items():
        ordinal += 1
        board.with_row(builders.Row(title).id(ordinal))
        for panel in panels():
            ordinal += 1
            board.with_panel(panel.id(ordinal))
    return board.build()


def render() -> str:
    return json.dumps(dashboard(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _variables() -> list[builders.DatasourceVariable | builders.QueryVariable]:
    return [
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        choice("engine", "Engine", "Engines to compare.", "label_values(enginebench_build_info, engine)"),
        choice(
            "instance",
            "Server",
            "Servers (host and port) to show.",
            'label_values(enginebench_build_info{engine=~"$engine"}, instance)',
        ),
        threshold("slo_ttft", "TTFT within (s)", "Objective for the time to first token.", TTFT, "1.0"),
        threshold("slo_e2e", "E2E within (s)", "Objective for the whole request.", E2E, "10.0"),
    ]


def _restarts() -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name("Engine restarts")
        .datasource(SOURCE)
        .enable(True)
        .hide(False)
        .icon_color(ORANGE)
        .expr(f"sum by (engine) (increase(enginebench_engine_restarts_total{{{CHOSEN}}}{WINDOW})) > 0")
        .step("5s")
        .title_format("Engine restarted")
        .text_format("{{engine}}")
    )


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(render(), encoding="utf-8")
    print(TARGET)
