"""Load test: is it good enough now? Values of the clients, next to those of the servers."""

from __future__ import annotations

from functools import partial

from grafana import load_promql as load
from grafana import promql as server
from grafana import variables
from grafana.boards.board import RUN_STARTS, STAGES, Board
from grafana.load_promql import FAILED, FINISHED, NO_RUN, NO_SLO
from grafana.palette import ATTAINED, BLUE, FAILURE_STEPS, GREEN, GREY, ORANGE, PURPLE, RED
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


def board() -> Board:
    return Board(
        uid="enginebench-load-test",
        title="Load test",
        question="Is it good enough now? Latency, attainment and goodput as the clients measure them, and whether the "
        "load generator itself keeps up.",
        variables=[variables.DATA_SOURCE, *variables.RUN, variables.SERVER],
        annotations=[RUN_STARTS, STAGES],
        rows={
            "": _glance(),
            "Load and answers": [*_answers(), *_clients()],
            "Latency of the users": [*_latency(), _by_load()],
        },
    )


def _glance() -> list[Panel]:
    """Return the tiles of the run's last stage, as the report has it."""
    return [
        _tile(
            "Load",
            "Users of a closed loop, or requests per second of an open one, in the last stage, which the tiles are "
            "about.",
            "short",
            Query(load.last_stage(load.STAGE_LOAD), "{{engine}}, {{stage}}"),
            named=True,
        ),
        _tile(
            "Output",
            "Generated tokens per second as the clients received them, all users together.",
            TOKENS_PER_SECOND,
            Query(load.last_stage(load.STAGE_OUTPUT)),
        ),
        *(
            _tile(
                f"{name} p99",
                f"99 % of the requests had {meaning} within this time. If more than 1 % fail there is no such time.",
                "s",
                Query(load.last_p99(histogram)),
                [(None, BLUE), (load.LAST_EDGE, RED)],
                beyond=load.TAIL_FAILED,
            )
            for name, histogram, meaning in (
                ("TTFT (user)", load.TTFT_USER, "their first token, counted from when they were due,"),
                ("TPOT", load.TPOT, "a mean time per token after the first chunk"),
            )
        ),
        _tile(
            "Attainment",
            "Share of attempted requests that met every SLO given with `--slo`. Failures count as missed.",
            "percentunit",
            Query(load.last_stage(load.STAGE_ATTAINMENT)),
            ATTAINED,
            empty=NO_SLO,
        ),
        _tile(
            "Failed",
            "Share of attempted requests with any outcome but `ok`.",
            "percentunit",
            Query(load.last_stage(load.STAGE_FAILED)),
            FAILURE_STEPS,
        ),
        _tile(
            "In flight",
            "Requests that are due and not yet answered, while the run goes on.",
            "short",
            Query(load.gauge(load.IN_FLIGHT)),
            empty="no run is on",
        ),
        _tile(
            "Load generator",
            f"Late when it sends requests or reads answers later than {load.BUDGET}, as the report judges it, in the "
            "worst stage: then it is part of what is measured. Too late: that stage is invalid.",
            "short",
            Query(load.late()),
            [(None, GREEN), (2, ORANGE), (3, RED)],
            texts={"0": "on time", "1": "on time", "2": "late", "3": "too late"},
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
                Query(load.gauge(load.IN_FLIGHT), "{{engine}} in flight"),
            ],
            dashed=["users"],
        ),
        _lines(
            "Load generator lag",
            "99th percentiles of how late requests were sent and how late answers were read, and (orange) from where "
            f"on the report warns: {load.BUDGET}.",
            "s",
            [
                Query(load.quantile(0.99, load.SEND_LAG), "{{engine}} send lag"),
                Query(load.quantile(0.99, load.CLIENT_LAG), "{{engine}} client lag"),
                Query(load.late_budget(), "budget"),
            ],
            colours={"budget": ORANGE},
            dashed=["client lag"],
        ),
        lines(
            "Mean TTFT: clients against servers",
            "The same requests measured at both ends, from when they were sent. What lies between the lines is the "
            "network and connections that queue. Means, because percentiles depend on the buckets of either end.",
            "s",
            [
                Query(load.mean(load.TTFT), "{{engine}} client"),
                Query(server.mean(server.TTFT, chosen=server.ON_INSTANCE), "{{engine}} server"),
            ],
            dashed=["server"],
        ),
    ]


def _latency() -> list[Panel]:
    return [
        _percentiles("TTFT", "ttft", load.TTFT_USER, "From when a request was due to its first token"),
        _percentiles("TPOT", "tpot", load.TPOT, "Per request: mean time per output token after the first chunk"),
        _percentiles("E2E", "e2e", load.E2E_USER, "From when a request was due to its last token"),
    ]


def _by_load() -> Panel:
    by = "run, engine, stage"
    tails = {"TTFT (user) p99": load.TTFT_USER, "TPOT p99": load.TPOT, "E2E (user) p99": load.E2E_USER}
    return values_table(
        "TTFT (user) p99 against load",
        "99th percentiles of each stage's steady window, as the report has them: from which load do they exceed the "
        "SLO? Without a number where over 1 % of the requests failed.",
        {
            "users or req/s": (Query(load.by_stage(load.STAGE_LOAD, by), "{{stage}} load"), "short"),
            **{
                name: (Query(load.quantile_by_stage(0.99, of, by), f"{{{{stage}}}} {name}"), "s")
                for name, of in tails.items()
            },
            "output": (Query(load.by_stage(load.STAGE_OUTPUT, by), "{{stage}} output"), TOKENS_PER_SECOND),
        },
        {"run": "run", "engine": "engine", "stage": "stage"},
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
