"""Queries on what a load test exports: the client's own measurements, of the runs that are chosen by their ids.

A counter's rate is what happens now. The gauges `enginebench_load_stage_…` are what a stage's steady window amounts to
so far, as a report has it: their last values outlive the run.
"""

from __future__ import annotations

from enginebench.records.findings.load_generator import LATE
from enginebench.records.rules import NO_FAILURE, UNJUDGED
from grafana.promql import PERCENTILES, WINDOW, Query

TTFT = "enginebench_load_ttft_seconds"
TTFT_USER = "enginebench_load_ttft_user_seconds"  # since the request was due, as objectives count it
TPOT = "enginebench_load_tpot_seconds"
E2E_USER = "enginebench_load_e2e_user_seconds"
SEND_LAG = "enginebench_load_send_lag_seconds"
CLIENT_LAG = "enginebench_load_client_lag_seconds"
REQUESTS = "enginebench_load_requests_total"
GOOD = "enginebench_load_good_requests_total"
OUTPUT_TOKENS = "enginebench_load_output_tokens_total"
RUN_INFO = "enginebench_load_run_info"
RUN_START = "enginebench_load_run_start_seconds"
OBJECTIVE = "enginebench_load_objective_seconds"
FINDING = "enginebench_load_finding"
STAGE_INDEX = "enginebench_load_stage_index"
IN_FLIGHT = "enginebench_load_in_flight"
USERS, OFFERED_RATE = "enginebench_load_users", "enginebench_load_recent_offered_rate"
STAGE_LOAD = "enginebench_load_stage_load"
STAGE_OUTPUT = "enginebench_load_stage_throughput_tokens_per_second"

FINISHED, FAILED = (f'outcome!~"{"|".join(outcomes)}"' for outcomes in (UNJUDGED, NO_FAILURE))
CHOSEN_RUN = 'run=~"$shown_runs",engine=~"$engine",model=~"$model"'
LAST_MONTH = "[30d]"  # runs are offered this long; Prometheus must keep their series as long
LAST_EDGE = 1000  # seconds; beyond it the exporter counts failed requests, which are infinitely late
LATE_SECONDS, LATE_SHARE = LATE[0]  # of the load generator: the report warns beyond the larger of both
BUDGET = f"{LATE_SECONDS * 1e3:g} ms, or {LATE_SHARE:.0%} of the median TTFT where that is more"
NO_RUN = "no load test is running"
NO_SLO = "no SLO given: --slo"


def of_run(name: str, run: str = CHOSEN_RUN, where: str = "") -> str:
    return f"{name}{{{','.join(filter(None, (run, where)))}}}"


def rate(counter: str, by: str = "engine", where: str = "", run: str = CHOSEN_RUN, shift: str = "") -> str:
    """`shift` is an offset. With `by=""` everything is summed."""
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (rate({of_run(counter, run, where)}{WINDOW}{shift}))"


def gauge(name: str, run: str = CHOSEN_RUN, shift: str = "") -> str:
    return f"sum by (engine) ({of_run(name, run)}{shift})"


def quantile(q: float, histogram: str, run: str = CHOSEN_RUN, shift: str = "") -> str:
    """Absent where it falls among failed requests, for which Prometheus would answer with the last edge."""
    return f"{quantile_or_edge(q, histogram, run, shift)} < {LAST_EDGE}"


def quantile_or_edge(q: float, histogram: str, run: str = CHOSEN_RUN, shift: str = "") -> str:
    """`LAST_EDGE` where it falls among failed requests."""
    return f"histogram_quantile({q}, {rate(histogram + '_bucket', 'engine, le', run=run, shift=shift)})"


def percentiles(histogram: str) -> list[Query]:
    return [Query(quantile(q / 100, histogram), f"{{{{engine}}}} p{q}") for q in PERCENTILES]


def mean(histogram: str, by: str = "engine") -> str:
    """Of what is finite: failed requests are in the count, and not in the sum."""
    finite = rate(histogram + "_bucket", by, f'le="{LAST_EDGE:.1f}"')
    return f"{rate(histogram + '_sum', by)} / {finite}"


def attainment(run: str = CHOSEN_RUN, shift: str = "") -> str:
    """Share of attempted requests that met every SLO. A request that the run's own end cut off is not judged."""
    attempted = rate(REQUESTS, where=FINISHED, run=run, shift=shift)
    return f"clamp_max({rate(GOOD, run=run, shift=shift)} / {attempted}, 1)"


def late() -> str:
    """Whether the load generator is late in the stage that is on, as the report judges it: 0 it is not, 1 it is, 2 so
    late that the run is invalid."""
    invalid, warned = (
        of_run(FINDING, where=f'kind="load_generator_late",severity="{severity}"') for severity in ("invalid", "warn")
    )
    current = of_run(STAGE_INDEX)
    return f"max by (engine) ((2 * {invalid} or {warned} or 0 * {current}) and on (run, stage) {current})"


def late_budget() -> str:
    """How late it may be without a warning, by the median TTFT of the last moments."""
    return f"clamp_min({LATE_SHARE} * {quantile_or_edge(0.5, TTFT)}, {LATE_SECONDS})"


def objective(metric: str) -> Query:
    """The tightest limit given for a metric, in seconds, as a line named `SLO`."""
    limits = of_run(OBJECTIVE, where=f'objective=~"{metric}.*"')
    return Query(f"min ({limits})", "SLO")


def by_stage(name: str, by: str, run: str = CHOSEN_RUN, where: str = "") -> str:
    """What the window of each stage amounts to in the end, or so far; also of runs that are over."""
    return f"max by ({by}) (last_over_time({of_run(name, run, where)}{LAST_MONTH}))"


def quantile_by_stage(q: float, histogram: str, by: str, run: str = CHOSEN_RUN) -> str:
    """Infinite where it falls among failed requests."""
    name = histogram.replace("enginebench_load_", "enginebench_load_stage_")
    return by_stage(name, by, run, f'quantile="{q}"')
