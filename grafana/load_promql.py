"""Queries on the metrics of a load test: the client's own measurements, of the runs that are chosen by their ids.

Lines show the rate of a counter at each moment. Tiles and tables show the gauges `enginebench_load_stage_…`, the
values over a stage's steady window as in a report. Their last values outlive the run.
"""

from __future__ import annotations

from enginebench.records.findings.load_generator import LATE
from enginebench.records.request import NO_FAILURE, UNJUDGED
from grafana import promql
from grafana.promql import DRAWN, WINDOW, Query

PREFIX = "enginebench_load_"
TTFT = f"{PREFIX}ttft_seconds"
TTFT_USER = f"{PREFIX}ttft_user_seconds"  # since the request was due, as objectives count it
TPOT = f"{PREFIX}tpot_seconds"
E2E_USER = f"{PREFIX}e2e_user_seconds"
SEND_LAG = f"{PREFIX}send_lag_seconds"
CLIENT_LAG = f"{PREFIX}client_lag_seconds"
REQUESTS = f"{PREFIX}requests_total"
GOOD = f"{PREFIX}good_requests_total"
OUTPUT_TOKENS = f"{PREFIX}output_tokens_total"
RUN_INFO = f"{PREFIX}run_info"
RUN_START = f"{PREFIX}run_start_seconds"
OBJECTIVE = f"{PREFIX}objective_seconds"
FINDING = f"{PREFIX}finding"
STAGE_INDEX = f"{PREFIX}stage_index"
IN_FLIGHT = f"{PREFIX}in_flight"
USERS, OFFERED_RATE = f"{PREFIX}users", f"{PREFIX}recent_offered_rate"
STAGE_LOAD = f"{PREFIX}stage_load"
STAGE_START, STAGE_END = f"{PREFIX}stage_start_seconds", f"{PREFIX}stage_end_seconds"
STAGE_OUTPUT = f"{PREFIX}stage_throughput_tokens_per_second"
STAGE_ATTAINMENT, STAGE_FAILED = f"{PREFIX}stage_attainment", f"{PREFIX}stage_failure_share"

FINISHED, FAILED = (f'outcome!~"{"|".join(outcomes)}"' for outcomes in (UNJUDGED, NO_FAILURE))
CHOSEN_RUN = 'run=~"$shown_runs"'
LAST_MONTH = "[30d]"  # runs are offered this long; Prometheus must keep their series that long
LAST_EDGE = 1000  # seconds; beyond it the exporter counts failed requests, which are infinitely late
TAIL_FAILED = "over 1 % failed"  # in place of an infinite p99
LATE_SECONDS, LATE_SHARE = LATE[0]  # of the load generator: the report warns beyond the larger of both
BUDGET = f"{LATE_SECONDS * 1e3:g} ms, or {LATE_SHARE:.0%} of the median TTFT where that is more"
NO_RUN = "no load test yet"
NO_SLO = "nothing judged: --slo"


def select(name: str, run: str = CHOSEN_RUN, where: str = "") -> str:
    return f"{name}{{{','.join(filter(None, (run, where)))}}}"


def rate(counter: str, by: str = "engine", where: str = "", run: str = CHOSEN_RUN, shift: str = "") -> str:
    """Return the rate of a counter, summed by a label; `shift` is PromQL's `offset`."""
    return promql.rate(counter, by, where, run, WINDOW + shift)


def gauge(name: str, run: str = CHOSEN_RUN, shift: str = "") -> str:
    return f"sum by (engine) ({select(name, run)}{shift})"


def quantile(q: float, histogram: str, run: str = CHOSEN_RUN, shift: str = "") -> str:
    """Return a quantile, absent among failed requests, for which Prometheus would answer with the last edge."""
    return f"{promql.quantile(q, histogram, run, WINDOW + shift)} < {LAST_EDGE}"


def percentiles(histogram: str) -> list[Query]:
    return [Query(quantile(q / 100, histogram), f"{{{{engine}}}} p{q}") for q in DRAWN]


def mean(histogram: str, by: str = "engine") -> str:
    """Return the mean of finite values: failed requests are in the count, but not in the sum."""
    finite = rate(histogram + "_bucket", by, f'le="{LAST_EDGE:.1f}"')
    return f"{rate(histogram + '_sum', by)} / {finite}"


def attainment(run: str = CHOSEN_RUN, shift: str = "") -> str:
    """Return the share of attempted requests that met every SLO. A request that the run's end cut off is not judged."""
    return f"{rate(GOOD, run=run, shift=shift)} / {rate(REQUESTS, where=FINISHED, run=run, shift=shift)}"


def late() -> str:
    """Return the lateness of the load generator in its worst stage, judged as in the report: 2 is late, 3 is so late
    that the stage is invalid."""
    return by_stage(FINDING, "run, engine", where='kind="load_generator_late"')


def late_budget() -> str:
    """Return how late the load generator may be without a warning, by the median TTFT of the current stage."""
    median = select(_stage_gauge(TTFT), where='quantile="0.5"')
    current = f"{median} and on (run, stage) {select(STAGE_INDEX)}"
    return f"min (clamp_min({LATE_SHARE} * ({current}), {LATE_SECONDS}))"


def objective(metric: str) -> Query:
    """Return the tightest limit given for a metric, in seconds, as a line named `SLO`."""
    limits = select(OBJECTIVE, where=f'objective=~"{metric}.*"')
    return Query(f"min ({limits})", "SLO")


def by_stage(name: str, by: str, run: str = CHOSEN_RUN, where: str = "") -> str:
    """Return the final or current value of each stage's window, also for runs that are over."""
    return f"max by ({by}) (last_over_time({select(name, run, where)}{LAST_MONTH}))"


def quantile_by_stage(q: float, histogram: str, by: str, run: str = CHOSEN_RUN) -> str:
    """Return a quantile, infinite if it falls among failed requests."""
    return by_stage(_stage_gauge(histogram), by, run, f'quantile="{q}"')


def last_stage(gauge: str, where: str = "") -> str:
    """Return a gauge of stages in the last stage of each chosen run that was measured."""
    measured = f"{by_stage(STAGE_INDEX, 'run, stage')} and {by_stage(STAGE_LOAD, 'run, stage')}"
    return f"({by_stage(gauge, 'run, engine, stage', where=where)} and on (run, stage) topk by (run) (1, {measured}))"


def last_p99(histogram: str) -> str:
    return last_stage(_stage_gauge(histogram), 'quantile="0.99"')


def _stage_gauge(histogram: str) -> str:
    return histogram.replace(PREFIX, f"{PREFIX}stage_")
