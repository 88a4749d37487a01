"""Queries on what a load test exports: the client's own measurements, per run.

The exporter's series carry scenario, engine, model and stage. The run is a label of
`enginebench_load_run_info` of the same target, added by a join. So a run is selected by its id, even if another run
used the same port earlier.
"""

from __future__ import annotations

from grafana.promql import PERCENTILES, WINDOW, Query

TTFT = "enginebench_load_ttft_seconds"
TPOT = "enginebench_load_tpot_seconds"
E2E = "enginebench_load_e2e_seconds"
SEND_LAG = "enginebench_load_send_lag_seconds"
CLIENT_LAG = "enginebench_load_client_lag_seconds"
REQUESTS = "enginebench_load_requests_total"
GOOD = "enginebench_load_good_requests_total"
OUTPUT_TOKENS = "enginebench_load_output_tokens_total"
RUN_INFO = "enginebench_load_run_info"
RUN_START = "enginebench_load_run_start_seconds"
OBJECTIVE = "enginebench_load_objective_seconds"
USERS, OFFERED_RATE = "enginebench_load_users", "enginebench_load_offered_rate"

FINISHED, FAILED = 'outcome!~"cut_off|unsent"', 'outcome!~"ok|cut_off|unsent"'
CHOSEN_RUN = 'run=~"$run",engine=~"$engine",model=~"$model"'
LAST_EDGE = 1000  # seconds; beyond it the exporter counts failed requests, which are infinitely late
NO_RUN = "no load test is running"
NO_SLO = "no SLO given: --slo"


def of_run(series: str, run: str = CHOSEN_RUN, shift: str = "") -> str:
    """`series`, restricted to runs and with the run's id as a label. `shift` is the offset that `series` has, too."""
    return f"{series} * on (job, instance) group_left (run) max by (job, instance, run) ({RUN_INFO}{{{run}}}{shift})"


def rate(counter: str, by: str = "engine", where: str = "", run: str = CHOSEN_RUN, shift: str = "") -> str:
    selector = f"{{{where}}}" if where else ""
    per_series = of_run(f"rate({counter}{selector}{WINDOW}{shift})", run, shift)
    return f"sum by ({by}) ({per_series})" if by else f"sum ({per_series})"


def gauge(name: str, run: str = CHOSEN_RUN, shift: str = "") -> str:
    return f"sum by (engine) ({of_run(name + shift, run, shift)})"


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


def objective(metric: str) -> Query:
    """The tightest limit given for a metric, in seconds, as a line named `SLO`."""
    limits = of_run(f'{OBJECTIVE}{{objective=~"{metric}.*"}}')
    return Query(f"min ({limits})", "SLO")


def quantile_by_stage(q: float, histogram: str) -> str:
    """Of all requests of each stage so far, at one instant; absent where it falls among failed requests."""
    buckets = f"sum by (engine, stage, le) ({of_run(histogram + '_bucket')})"
    return f"histogram_quantile({q}, {buckets}) < {LAST_EDGE}"


def load_by_stage() -> str:
    """Users of each stage of the chosen runs, or requests per second in an open loop. The gauges have the newest stage
    only, so that of earlier ones the last value is looked up."""
    ever = " or ".join(f"last_over_time({name}[30d])" for name in (USERS, OFFERED_RATE))
    return f"max by (engine, stage) ({ever}) and on (engine, stage) {of_run(TTFT + '_count')}"
