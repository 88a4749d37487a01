"""The dashboards' variables."""

from __future__ import annotations

from typing import Any

from grafana.load_promql import LAST_MONTH, RUN_START, STAGE_END, STAGE_START, last_stage, select
from grafana.panels import SOURCE
from grafana.promql import BUILD_INFO, E2E, GPU, TTFT

Variable = dict[str, Any]

AS_ANSWERED, ASCENDING, NUMERICAL = 0, 1, 3  # Grafana's orders of a variable's values
WHEN_TIME_RANGE_CHANGES, HIDDEN = 2, 2
RUN_ID = '/run="([^"]+)"/'
VALUE = r"/\} (-?\d+) /"
QUERY_KINDS = {"label_values": 1, "query_result": 3}  # codes of Grafana's editor
TWO_SCRAPES = 10  # seconds; over less there is no rate


def _threshold(name: str, label: str, description: str, histogram: str, at_first: str) -> Variable:
    """Return an SLO threshold, one of the histogram's bucket bounds: only there is a share exact."""
    return _queried(
        name,
        label,
        description,
        f"label_values({histogram}_bucket, le)",
        regex=r"/^[0-9.]+$/",  # without +Inf
        allowCustomValue=False,
        current={"selected": True, "text": at_first, "value": at_first},
        sort=NUMERICAL,
    )


def _several(name: str, label: str, description: str, query: str, **more: Any) -> Variable:
    """Return a variable with values from Prometheus; several may be chosen, initially all."""
    every = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return _queried(name, label, description, query, multi=True, includeAll=True, current=every, sort=ASCENDING, **more)


def _queried(name: str, label: str, description: str, query: str, **more: Any) -> Variable:
    kind = QUERY_KINDS[query.partition("(")[0]]
    return _variable(
        "query",
        name,
        label,
        description=description,
        datasource=SOURCE,
        query={"qryType": kind, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        definition=query,
        refresh=WHEN_TIME_RANGE_CHANGES,
        **more,
    )


def _variable(kind: str, name: str, label: str, **more: Any) -> Variable:
    return {"type": kind, "name": name, "label": label, **more}


def _run(name: str, label: str, description: str, in_order: str, **more: Any) -> Variable:
    """Return a choice of the last month's runs; the default is the run with the largest value of `in_order`."""
    query = f"query_result(sort_desc({in_order}))"
    return _queried(name, label, description, query, regex=RUN_ID, sort=AS_ANSWERED, **more)


def _number(name: str, description: str, expr: str) -> Variable:
    """Return a whole number that queries or links use. It follows from the choices, so addresses do not contain it."""
    query = f"query_result({expr})"
    return _queried(name, name, description, query, regex=VALUE, hide=HIDDEN, skipUrlSync=True)


def _shift(side: str) -> Variable:
    """Return the offset in seconds with which a run of Compare begins at the left edge of the page. It is never 0,
    which is no offset to Prometheus, and never empty."""
    start = f'max(last_over_time({RUN_START}{{run="$run_{side}"}}{LAST_MONTH}))'
    about = f"Seconds from the start of run {side.upper()} to the left edge of the page."
    return _number(f"shift_{side}", about, f"round(time() - $__range_s - {start}) != 0 or vector(1)")


STARTED = f"max by (run) (last_over_time({RUN_START}{LAST_MONTH}))"
LATEST = "latest"  # in place of a run's id
RUNNING_FIRST = f"1e3 * max by (run) ({RUN_START}) or {STARTED}"
CHOSEN = f'max by (run) (last_over_time({RUN_START}{{run=~"$run"}}{LAST_MONTH}))'
NEWEST_LAST = f"{STARTED} unless topk(1, {STARTED}) or 0 * topk(1, {STARTED})"
START, END = f"max({last_stage(STAGE_START)})", f"max({last_stage(STAGE_END)})"
SEEN = f"on () {END} > time() - $__range_s"

DATA_SOURCE = _variable("datasource", "datasource", "Data source", query="prometheus")
ENGINE = _several("engine", "Engine", "Engines to show.", f"label_values({BUILD_INFO}, engine)")
SERVER = _several("instance", "Server", "Servers (host and port) to show.", f"label_values({BUILD_INFO}, instance)")
GPU_HOST = _several(
    "instance",
    "Server",
    "What exports GPU metrics: servers, or DCGM's exporter.",
    f"label_values({GPU}info, instance)",
)
# Grafana keeps a choice as long as it is offered. So a page that follows the runs has a choice that is always offered,
# and a second variable, which is updated with every refresh, has the ids by which queries select.
RUN = (
    _run(
        "run",
        "Run",
        "Runs to show: the latest one, as long as it runs and until the next one starts, or those that are chosen.",
        f'label_replace(vector(Inf), "run", "{LATEST}", "", "") or {STARTED}',
        multi=True,
    ),
    _several(
        "shown_runs",
        "Shown runs",
        "Ids of the runs to show.",
        f"query_result({CHOSEN} or topk(1, {RUNNING_FIRST}) unless on () {CHOSEN})",
        regex=RUN_ID,
        hide=HIDDEN,
        skipUrlSync=True,
    ),
    _number(
        "run_from",
        "Start of the run, in milliseconds: for the link that sets the time range.",
        f"round(1e3 * min(last_over_time({select(RUN_START)}{LAST_MONTH})))",
    ),
    _number("run_to", "End of the run's last stage, so far, in milliseconds.", f"round(1e3 * {END})"),
)
# The time range of tiles about servers: the last stage of the run if it is within the page's time range, else the whole
# range.
STAGE = (
    _number(
        "stage_seconds",
        "Duration of what tiles are about: the last stage of the run, or the time range if the run is not in it.",
        f"round(clamp_min({END} - {START}, {TWO_SCRAPES})) and {SEEN} or vector($__range_s)",
    ),
    _number(
        "stage_ago",
        "Seconds from its end to the end of the time range.",
        f"(round(time() - {END}) and {SEEN}) != 0 or vector(1)",
    ),
)
RUN_A = _run("run_a", "Run A", "The run that B is compared with: at first the last but one.", NEWEST_LAST)
RUN_B = _run("run_b", "Run B", "The run that is judged: at first the last one.", STARTED)
SHIFTS = (_shift("a"), _shift("b"))
SERVED = (DATA_SOURCE, ENGINE, SERVER, *RUN, *STAGE)
TTFT_OBJECTIVE = _threshold("slo_ttft", "TTFT within (s)", "Objective for the time to first token.", TTFT, "1.0")
E2E_OBJECTIVE = _threshold("slo_e2e", "E2E within (s)", "Objective for the whole request.", E2E, "10.0")
PRICE = _variable(
    "textbox", "price", "$ per replica-hour", description="Price of one replica per hour, in dollars.", query="2.50"
)
