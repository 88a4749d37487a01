"""Capacity planning: how much do the replicas serve, and what does a token cost?"""

from __future__ import annotations

from grafana import promql, variables
from grafana.boards.board import RUN_STARTS, STAGES, Board
from grafana.palette import ATTAINED
from grafana.panels import TOKENS_PER_SECOND, Panel, lines, tile
from grafana.promql import CHOSEN, OUTPUT_TOKENS, REQUESTS, STAGE, TTFT, WINDOW, Query, attainment, rate

CURRENCY = "currencyUSD"


def ready(window: str) -> str:
    """Count replicas that accept requests. Our servers may have several; any other server is one."""
    replicas, servers = (f"max_over_time({name}{{{CHOSEN}}}{window})" for name in (promql.REPLICAS, promql.READY))
    return f"sum by (engine) ({replicas} or {servers})"


def cost(window: str) -> str:
    """Divide the dollars an hour of all replicas by millions of tokens an hour."""
    return f"$price * {ready(window)} / ({rate(OUTPUT_TOKENS, window=window)} * 3600 / 1e6 > 0)"


def board() -> Board:
    return Board(
        uid="enginebench-capacity",
        title="Capacity planning",
        question="How much do the replicas serve, does the objective hold, and what does a token cost?",
        variables=[*variables.SERVED, variables.TTFT_OBJECTIVE, variables.PRICE],
        annotations=[RUN_STARTS, STAGES],
        rows={"": _glance(), "Replicas and cost": _replicas()},
        since="now-6h",
    )


def _glance() -> list[Panel]:
    """Return the tiles of the run's last stage, or of the time range."""
    return [
        tile(
            "Load",
            "Finished requests per second, all replicas together.",
            "reqps",
            Query(rate(REQUESTS, window=STAGE)),
        ),
        tile(
            "Attainment",
            "Share of all requests whose first token came within the threshold chosen above, measured in the servers.",
            "percentunit",
            Query(attainment(TTFT, "$slo_ttft")),
            ATTAINED,
        ),
        tile(
            "Cost per 1M tokens",
            "Cost of a million output tokens: the price chosen above times the replicas that are ready, over the "
            "tokens of an hour.",
            CURRENCY,
            Query(cost(STAGE)),
        ),
    ]


def _replicas() -> list[Panel]:
    return [
        lines("Replicas", "Replicas that are ready.", "short", [Query(ready(WINDOW))]),
        lines(
            "Throughput per replica",
            "Output tokens per second of one replica. With the price per hour it gives the cost.",
            TOKENS_PER_SECOND,
            [Query(f"{rate(OUTPUT_TOKENS)} / ({ready(WINDOW)} > 0)")],
        ),
        lines(
            "Cost per million output tokens",
            "At the price chosen above and the throughput now. Idle replicas cost, so it falls as the load grows.",
            CURRENCY,
            [Query(cost(WINDOW))],
        ),
    ]
