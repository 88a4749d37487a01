"""The dashboards' variables."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from grafana.load_promql import RUN_INFO, RUN_START
from grafana.panels import SOURCE
from grafana.promql import E2E, TTFT

Variable = builders.DatasourceVariable | builders.QueryVariable | builders.TextBoxVariable

ANY_INFO = '__name__=~"enginebench_(build|load_run)_info"'  # of servers, and of load tests
LAST_MONTH = "[30d]"  # runs are offered for comparison this long; Prometheus must keep their series as long


def data_source() -> Variable:
    return builders.DatasourceVariable("datasource").label("Data source").type("prometheus")


def engine() -> Variable:
    return _several("engine", "Engine", "Engines to show.", f"label_values({{{ANY_INFO}}}, engine)")


def model() -> Variable:
    query = f'label_values({{{ANY_INFO},engine=~"$engine"}}, model)'
    return _several("model", "Model", "Models to show.", query)


def server() -> Variable:
    query = 'label_values(enginebench_build_info{engine=~"$engine"}, instance)'
    return _several("instance", "Server", "Servers (host and port) to show.", query)


def gpu_host() -> Variable:
    query = "label_values(enginebench_gpu_info, instance)"
    return _several("instance", "Server", "What exports GPU metrics: servers, or DCGM's exporter.", query)


def run() -> Variable:
    return _several("run", "Run", "Runs to show.", f"label_values({RUN_INFO}, run)")


def side(letter: str, order: models.VariableSort) -> list[Variable]:
    """An engine, and one of its runs: at first the first in `order`. Ids of runs begin with their time."""
    name = letter.lower()
    engines = f"label_values({RUN_INFO}, engine)"
    runs = f'label_values({RUN_INFO}{{engine=~"$engine_{name}"}}, run)'
    return [
        _several(f"engine_{name}", f"Engine {letter}", f"Engines whose runs are offered for {letter}.", engines),
        _queried(f"run_{name}", f"Run {letter}", f"The run shown as {letter}.", runs)
        .multi(False)
        .include_all(False)
        .sort(order),
    ]


def seconds_between_starts() -> Variable:
    """How much earlier B started than A: what B's series are shifted by, to stand on A's time axis."""
    a, b = (f'max(last_over_time({RUN_START}{{run="$run_{side}"}}{LAST_MONTH}))' for side in "ab")
    return (
        _queried("shift", "Shift of B", "Seconds between the two runs' starts.", f"query_result(round({a} - {b}))")
        .regex(r"/\} (-?\d+) /")
        .multi(False)
        .include_all(False)
        .hide(models.VariableHide.HIDE_VARIABLE)
    )


def ttft_objective() -> Variable:
    return _threshold("slo_ttft", "TTFT within (s)", "Objective for the time to first token.", TTFT, "1.0")


def e2e_objective() -> Variable:
    return _threshold("slo_e2e", "E2E within (s)", "Objective for the whole request.", E2E, "10.0")


def price() -> Variable:
    described = "Price of one replica per hour, in dollars."
    return builders.TextBoxVariable("price").label("$ per replica-hour").description(described).default_value("2.50")


def _threshold(name: str, label: str, description: str, histogram: str, at_first: str) -> builders.QueryVariable:
    """An SLO threshold, one of the histogram's bucket bounds: only there a share is exact."""
    return (
        _queried(name, label, description, f"label_values({histogram}_bucket, le)")
        .regex(r"/^[0-9.]+$/")  # without +Inf
        .multi(False)
        .include_all(False)
        .allow_custom_value(False)
        .current(models.VariableOption(selected=True, text=at_first, value=at_first))
        .sort(models.VariableSort.NUMERICAL_ASC)
    )


def _several(name: str, label: str, description: str, query: str) -> builders.QueryVariable:
    """A variable with values from Prometheus; several may be chosen, initially all."""
    return (
        _queried(name, label, description, query)
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _queried(name: str, label: str, description: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(SOURCE)
        .query({"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
