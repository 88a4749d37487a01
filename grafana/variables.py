"""The dashboards' variables."""

from __future__ import annotations

from typing import Any

from grafana.load_promql import RUN_INFO, RUN_START
from grafana.panels import SOURCE
from grafana.promql import E2E, TTFT

Variable = dict[str, Any]

ANY_INFO = '__name__=~"enginebench_(build|load_run)_info"'  # of servers, and of load tests
LAST_MONTH = "[30d]"  # runs are offered for comparison this long; Prometheus must keep their series as long
ASCENDING, DESCENDING, NUMERICAL = 1, 2, 3  # Grafana's orders of a variable's values
WHEN_TIME_RANGE_CHANGES, HIDDEN = 2, 2


def _threshold(name: str, label: str, description: str, histogram: str, at_first: str) -> Variable:
    """An SLO threshold, one of the histogram's bucket bounds: only there a share is exact."""
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


def _several(name: str, label: str, description: str, query: str) -> Variable:
    """A variable with values from Prometheus; several may be chosen, initially all."""
    every = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return _queried(name, label, description, query, multi=True, includeAll=True, current=every, sort=ASCENDING)


def _queried(name: str, label: str, description: str, query: str, **more: Any) -> Variable:
    return _variable(
        "query",
        name,
        label,
        description=description,
        datasource=SOURCE,
        query={"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        definition=query,
        refresh=WHEN_TIME_RANGE_CHANGES,
        **more,
    )


def _variable(kind: str, name: str, label: str, **more: Any) -> Variable:
    always = {"auto": False, "auto_count": 30, "auto_min": "10s", "skipUrlSync": False}
    chosen = {"allowCustomValue": True, "includeAll": False, "multi": False}
    return {"type": kind, "name": name, "label": label, **always, **chosen, **more}


DATA_SOURCE = _variable("datasource", "datasource", "Data source", query="prometheus")
ENGINE = _several("engine", "Engine", "Engines to show.", f"label_values({{{ANY_INFO}}}, engine)")
MODEL = _several("model", "Model", "Models to show.", f'label_values({{{ANY_INFO},engine=~"$engine"}}, model)')
SERVER = _several(
    "instance",
    "Server",
    "Servers (host and port) to show.",
    'label_values(enginebench_build_info{engine=~"$engine"}, instance)',
)
GPU_HOST = _several(
    "instance",
    "Server",
    "What exports GPU metrics: servers, or DCGM's exporter.",
    "label_values(enginebench_gpu_info, instance)",
)
RUN = _several("run", "Run", "Runs to show.", f"label_values({RUN_INFO}, run)")
SERVED = (DATA_SOURCE, ENGINE, MODEL, SERVER, RUN)
TTFT_OBJECTIVE = _threshold("slo_ttft", "TTFT within (s)", "Objective for the time to first token.", TTFT, "1.0")
E2E_OBJECTIVE = _threshold("slo_e2e", "E2E within (s)", "Objective for the whole request.", E2E, "10.0")
PRICE = _variable(
    "textbox", "price", "$ per replica-hour", description="Price of one replica per hour, in dollars.", query="2.50"
)


def side(letter: str, order: int) -> list[Variable]:
    """An engine, and one of its runs: at first the first in `order`. Ids of runs begin with their time."""
    name = letter.lower()
    engines = f"label_values({RUN_INFO}, engine)"
    runs = f'label_values({RUN_INFO}{{engine=~"$engine_{name}"}}, run)'
    return [
        _several(f"engine_{name}", f"Engine {letter}", f"Engines whose runs are offered for {letter}.", engines),
        _queried(f"run_{name}", f"Run {letter}", f"The run shown as {letter}.", runs, sort=order),
    ]


def seconds_between_starts() -> Variable:
    """How much earlier B started than A: what B's series are shifted by, to stand on A's time axis."""
    a, b = (f'max(last_over_time({RUN_START}{{run="$run_{side}"}}{LAST_MONTH}))' for side in "ab")
    query, regex = f"query_result(round({a} - {b}))", r"/\} (-?\d+) /"
    return _queried("shift", "Shift of B", "Seconds between the two runs' starts.", query, regex=regex, hide=HIDDEN)
