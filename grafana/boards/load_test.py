"""Load test: is it good enough now? What the clients see, beside what the servers say."""

from __future__ import annotations

from functools import partial

from grafana import load_promql as load
from grafana import promql as server
from grafana import variables
from grafana.boards.board import RUN_ENDS, RUN_STARTS, STAGES, Board
from grafana.load_promql import FAILED, FINISHED, NO_RUN, NO_SLO
from grafana.palette import ATTAINED, BLUE, FEW_FAIL, GREEN, GREY, ORANGE, PURPLE, RED
from grafana.panels import TOKENS_PER_SECOND, Panel, lines, tile, values_table
from grafana.promql import Query

OUTCOME_COLOURS = {
    "http_error": RED,
    "rejected": ORANGE,
    "timeout": PURPLE,
    "disconnected": "#c08a00",
    "bad_stream": "#b8405e",
    "dropped": BLUE,
}
_tile, _lines = partial(tile, empty=NO_RUN), partial(lines, empty=NO_RUN)
LATE = 0.005  # seconds: from here on a report warns that the client was late


def board() -> Board:
    return Board(
        uid="enginebench-load-test",
        title="Load test",
        question="Is it good enough now? Latency, attainment and goodput as the clients measure them, and whether the "
        "load generator itself keeps up.",
        variables=[variables.DATA_SOURCE, variables.RUN, variables.ENGINE, variables.MODEL, variables.SERVER],
        annotations=[RUN_STARTS, STAGES, RUN_ENDS],
        rows={
            "": _glance(),
            "Load and answers": [*_answers(), *_clients()],
            "Latency of the users": [*_latency(), _by_load()],
        },
    )


def _glance() -> list[Panel]:
    failed = f"({load.rate(load.REQUESTS, where=FAILED)} or 0 * {load.rate(load.REQUESTS)})"
    return [
        _tile(
            "Attainment",
            "Share of attempted requests that met every SLO given with `--slo`. Failures count as missed.",
            "percentunit",
            Query(load.attainment()),
            ATTAINED,
            empty=NO_SLO,
        ),
        _tile(
            "TTFT p99",
            "99 % of the first tokens came within this time, counted from when the request was due. "
            "When more than 1 % of the requests fail there is no such time.",
            "s",
            Query(load.quantile_or_edge(0.99, load.TTFT)),
            [(None, BLUE), (load.LAST_EDGE, RED)],
            beyond="over 1 % failed",
        ),
        _tile(
            "Achieved",
            "Finished requests per second, failed ones included.",
            "reqps",
            Query(load.rate(load.REQUESTS, where=FINISHED)),
        ),
        _tile(
            "Output",
            "Generated tokens per second as the clients received them, all users together.",
            TOKENS_PER_SECOND,
            Query(load.rate(load.OUTPUT_TOKENS)),
        ),
        _tile(
            "Failed",
            "Share of finished requests with any outcome but `ok`.",
            "percentunit",
            Query(f"{failed} / {load.rate(load.REQUESTS, where=FINISHED)}"),
            FEW_FAIL,
        ),
        _tile(
            "Send lag p99",
            "How late the load generator sent its requests. Above 5 ms the report warns: then the client is part of "
            "what is measured.",
            "s",
            Query(load.quantile(0.99, load.SEND_LAG)),
            [(None, GREEN), (LATE, ORANGE), (0.02, RED)],
        ),
    ]


def _answers() -> list[Panel]:
    return [
        _lines(
            "Offered against achieved",
            "Requests per second: planned (dashed, open loops only), finished, and those that met every SLO (goodput, "
            "dotted). The knee is the load from which the lines separate.",
            "reqps",
            [
                Query(load.gauge(load.OFFERED_RATE), "{{engine}} offered"),
                Query(load.rate(load.REQUESTS, where=FINISHED), "{{engine}} achieved"),
                Query(load.rate(load.GOOD), "{{engine}} goodput"),
            ],
            dashed=["offered"],
            dotted=["goodput"],
        ),
        _lines(
            "Attainment over time",
            "Share of attempted requests that met every SLO. Orange line: 99 %.",
            "percentunit",
            [Query(load.attainment())],
            top=1,
            steps=[(None, GREEN), (0.99, ORANGE)],
            empty=NO_SLO,
        ),
        _lines(
            "Failures by kind",
            "Failed requests per second: `rejected` by a full queue, `timeout`, `http_error`, `disconnected` or "
            "`bad_stream` in the middle of an answer, `dropped` by the bound on requests in flight.",
            "reqps",
            [Query(load.rate(load.REQUESTS, by="outcome", where=FAILED), "{{outcome}}")],
            stacked=True,
            colours=OUTCOME_COLOURS,
            empty="no failures",
        ),
    ]


def _clients() -> list[Panel]:
    return [
        _lines(
            "Users and requests in flight",
            "Requests that are due and not yet answered, and the users of a closed loop (dashed). An open loop has no "
            "users: when its offered rate exceeds the capacity, its requests in flight grow without bound.",
            "short",
            [
                Query(load.gauge(load.USERS), "{{engine}} users"),
                Query(load.gauge("enginebench_load_in_flight"), "{{engine}} in flight"),
            ],
            dashed=["users"],
        ),
        _lines(
            "Load generator lag",
            "99th percentiles of how late requests were sent and how late answers were noticed. Above 5 ms (orange) "
            "the report warns: add `--processes`.",
            "s",
            [
                Query(load.quantile(0.99, load.SEND_LAG), "{{engine}} send lag"),
                Query(load.quantile(0.99, load.CLIENT_LAG), "{{engine}} client lag"),
            ],
            steps=[(None, GREEN), (LATE, ORANGE)],
            dashed=["client lag"],
        ),
        lines(
            "TTFT p99: clients against servers",
            "The same requests measured at both ends. What lies between the lines is the network, the load "
            "generator's lag and connections that queue. The clients' line ends while more than 1 % fail.",
            "s",
            [
                Query(load.quantile(0.99, load.TTFT), "{{engine}} client"),
                Query(server.quantile(0.99, server.TTFT), "{{engine}} server"),
            ],
            dashed=["server"],
        ),
    ]


def _latency() -> list[Panel]:
    return [
        _percentiles("TTFT", "ttft", load.TTFT, "From when a request was due to its first token"),
        _percentiles("TPOT", "tpot", load.TPOT, "Per request: mean time per output token after the first chunk"),
        _percentiles("E2E", "e2e", load.E2E, "From when a request was due to its last token"),
    ]


def _by_load() -> Panel:
    tails = {"TTFT p99": load.TTFT, "TPOT p99": load.TPOT, "E2E p99": load.E2E}
    return values_table(
        "TTFT p99 against load",
        "99th percentiles of each stage so far, its warm-up included, at the end of the chosen time range: from which "
        "load do they exceed the SLO? Empty where over 1 % of the requests failed.",
        "s",
        {
            "users or req/s": Query(load.load_by_stage(), "{{engine}} load"),
            **{name: Query(load.quantile_by_stage(0.99, of), f"{{{{engine}}}} {name}") for name, of in tails.items()},
        },
        {"engine": "engine", "stage": "stage"},
        empty=NO_RUN,
    )


def _percentiles(name: str, objective: str, histogram: str, meaning: str) -> Panel:
    return _lines(
        f"{name} of the users",
        f"{meaning}, measured by the clients: p50 dotted, p95 dashed, p99 solid. A line ends where its percentile "
        "falls among failed requests. The grey line is the SLO, where one was given.",
        "s",
        [*load.percentiles(histogram), load.objective(objective)],
        colours={"SLO": GREY},
    )
