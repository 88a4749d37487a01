"""Capacity planning: how much head-room is left, and does the plan hold? Live values beside a published plan."""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana import load_promql as load
from grafana import variables
from grafana.boards.board import Board, run_starts, stages
from grafana.palette import ATTAINED, BLUE, GREEN, ORANGE, RED
from grafana.panels import TOKENS_PER_SECOND, Panel, lines, tile
from grafana.promql import CHOSEN, OUTPUT_TOKENS, REQUESTS, TTFT, Query, attainment, quantile, rate

CHOSEN_PLAN = 'engine=~"$engine",model=~"$model",gpu=~"$plan_gpu"'
NO_PLAN = "no plan: enginebench plan --publish"
CURRENCY = "currencyUSD"
# Replicas that accept requests. Servers of ours may have several; of others each server is one.
READY = f"sum by (engine) (enginebench_engine_replicas{{{CHOSEN}}} or enginebench_engine_ready{{{CHOSEN}}})"
REQUEST_RATE = rate(REQUESTS)


def board() -> Board:
    return Board(
        uid="enginebench-capacity",
        title="Capacity planning",
        question="How much head-room is left, how many replicas does the load need, what does a token cost, and does "
        "the published plan hold?",
        variables=[
            variables.data_source(),
            variables.engine(),
            variables.model(),
            variables.server(),
            variables.run(),
            variables.plan_gpu(),
            variables.ttft_objective(),
            variables.price(),
        ],
        annotations=[run_starts(), stages()],
        rows={"": _glance, "Load against the plan": _load, "Predicted against actual": _predicted},
        since="now-6h",
    )


def plan(name: str, where: str = "") -> str:
    selector = f"{CHOSEN_PLAN},{where}" if where else CHOSEN_PLAN
    return f"max by (engine) (enginebench_plan_{name}{{{selector}}})"


SAFE_RATE = plan("safe_load", 'unit="req/s"')  # of one replica
SAFE_USERS = plan("safe_load", 'unit="users"')
# Dollars an hour of all replicas, over millions of tokens an hour.
COST = f"$price * {READY} / ({rate(OUTPUT_TOKENS)} * 3600 / 1e6 > 0)"
HEAD_ROOM = f"1 - {REQUEST_RATE} / ({SAFE_RATE} * {READY})"


def _glance() -> list[Panel]:
    return [
        tile(
            "Head-room left",
            "Share of the safe load of the replicas that are ready which is not used now. Below 0 the plan's objective "
            "is at risk.",
            units.PercentUnit,
            Query(f"clamp_min({HEAD_ROOM}, 0)"),
            [(None, RED), (0.05, ORANGE), (0.2, GREEN)],
            empty=NO_PLAN,
        ),
        tile(
            "Load", "Finished requests per second, all replicas together.", units.RequestsPerSecond, Query(REQUEST_RATE)
        ),
        tile(
            "Safe load",
            "Requests per second that one replica may get while the plan's objective holds.",
            units.RequestsPerSecond,
            Query(SAFE_RATE),
            empty=NO_PLAN,
        ),
        tile(
            "Replicas planned",
            "Replicas for the plan's peak, the spare ones included.",
            units.Short,
            Query(plan("replicas_with_spare")),
            empty=NO_PLAN,
        ),
        tile(
            "Attainment",
            "Share of all requests whose first token came within the threshold chosen above, measured in the servers.",
            units.PercentUnit,
            Query(attainment(TTFT, "$slo_ttft")),
            ATTAINED,
        ),
        tile(
            "Cost per 1M tokens",
            "Cost of a million output tokens: the price chosen above times the replicas that are ready, over the "
            "tokens of an hour at this rate.",
            CURRENCY,
            Query(COST),
        ),
    ]


def _load() -> list[Panel]:
    return [
        lines(
            "Load against safe load",
            "Requests per second now, and the safe load (dashed) of the replicas that are ready. When the first "
            "reaches the second, more replicas are due.",
            units.RequestsPerSecond,
            [Query(REQUEST_RATE, "{{engine}} load"), Query(f"{SAFE_RATE} * {READY}", "{{engine}} safe")],
            dashed=["safe"],
        ),
        lines(
            "Head-room",
            "1 minus the load over the safe load. Orange: 20 % is left, the least that usual peaks of minutes allow.",
            units.PercentUnit,
            [Query(f"clamp_min({HEAD_ROOM}, 0)")],
            top=1,
            steps=[(None, GREEN), (0.2, ORANGE)],
            empty=NO_PLAN,
        ),
        lines(
            "Replicas",
            "Replicas that are ready, those planned for the peak (dashed), and with spare ones for failures (dotted).",
            units.Short,
            [
                Query(READY, "{{engine}} ready"),
                Query(plan("replicas"), "{{engine}} planned"),
                Query(plan("replicas_with_spare"), "{{engine}} with spare"),
            ],
            dashed=["planned"],
            dotted=["with spare"],
        ),
        lines(
            "Users against safe users",
            "Users of the running closed loop, and those that the replicas which are ready can serve (dashed). An open "
            "loop has no users: see its load against the safe load.",
            units.Short,
            [
                Query(load.gauge("enginebench_load_users"), "{{engine}} users"),
                Query(f"{SAFE_USERS} * {READY}", "{{engine}} safe"),
            ],
            dashed=["safe"],
            empty=f"{load.NO_RUN}; {NO_PLAN}",
        ),
        lines(
            "Throughput per replica",
            "Output tokens per second of one replica. With the price per hour it gives the cost.",
            TOKENS_PER_SECOND,
            [Query(f"{rate(OUTPUT_TOKENS)} / ({READY} > 0)")],
        ),
        lines(
            "Cost per million output tokens",
            "At the price chosen above and the throughput now, and as planned (dashed). Idle replicas cost, so it "
            "falls as the load grows.",
            CURRENCY,
            [Query(COST, "{{engine}} now"), Query(plan("cost_usd_per_million_tokens"), "{{engine}} planned")],
            dashed=["planned"],
        ),
    ]


def _predicted() -> list[Panel]:
    predicted = plan("ttft_seconds", 'quantile="0.95"')
    return [
        lines(
            "TTFT p95 against the plan",
            "Measured in the servers, and as the plan predicts at its peak (dashed). Above the prediction at a lower "
            "load, the plan's model no longer describes these servers.",
            units.Seconds,
            [Query(quantile(0.95, TTFT), "{{engine}} actual"), Query(predicted, "{{engine}} predicted")],
            dashed=["predicted"],
        ),
        lines(
            "Attainment against the plan",
            "Share of requests whose first token came within the threshold chosen above, and the plan's share at its "
            "peak (dashed). Orange: 99 %.",
            units.PercentUnit,
            [
                Query(attainment(TTFT, "$slo_ttft"), "{{engine}} actual"),
                Query(plan("attainment_ratio"), "{{engine}} predicted"),
            ],
            top=1,
            steps=[(None, GREEN), (0.99, ORANGE)],
            dashed=["predicted"],
        ),
        lines(
            "Actual over predicted TTFT",
            "Measured p95 divided by the predicted one. Above 1 (orange) the plan was too optimistic for this load.",
            "suffix: ×",
            [Query(f"{quantile(0.95, TTFT)} / {predicted}")],
            steps=[(None, BLUE), (1, ORANGE)],
            empty=NO_PLAN,
        ),
    ]
