"""Engine: where does the time go? Measured in the servers, ours or others'; no load test is needed."""

from __future__ import annotations

from grafana import load_promql as load
from grafana import promql as server
from grafana import variables
from grafana.boards.board import RESTARTS, RUN_STARTS, STAGES, Board
from grafana.palette import ATTAINED, BLUE, FAILURE_STEPS, GREEN, GREY, ORANGE, PURPLE, RED
from grafana.panels import TOKENS_PER_SECOND, Panel, labels_table, lines, spread, tile
from grafana.promql import CHOSEN, ON_INSTANCE, STAGE, WINDOW, Query, gauge, mean, percentiles, quantile, rate

READY = f"{server.READY}{{{CHOSEN}}}"
SCRAPED = f"last_over_time({READY}[15m])"
# A server that `enginebench run` started ends with the run, which is no fault.
OF_A_RUN = f'last_over_time({server.BUILD_INFO}{{started_by="run"}}[15m])'
OUTCOME_COLOURS = {
    "ok": GREEN,
    "cancelled": GREY,
    "rejected": ORANGE,
    "timeout": PURPLE,
    "bad_request": BLUE,
    "engine_error": RED,
    "unavailable": "#b8405e",
}
PHASES = {"queue": server.QUEUE, "prefill": server.PREFILL, "decode": server.DECODE}
PHASE_COLOURS = {"queue": ORANGE, "prefill": BLUE, "decode": GREEN, "delivery": PURPLE}
NO_PHASES = "not reported by these engines"


def board() -> Board:
    return Board(
        uid="enginebench-engine",
        title="Engine",
        question="Where does the time go? Queue, prefill, decode and delivery; batch, KV cache and tokens, measured in "
        "the servers.",
        variables=[*variables.SERVED, variables.TTFT_OBJECTIVE, variables.E2E_OBJECTIVE],
        annotations=[RUN_STARTS, STAGES, RESTARTS],
        rows={
            "": _glance(),
            "Where the time goes": _phases(),
            "Saturation": [*_occupancy(), *_traffic()],
            "Latency in the server": _latency(),
            "Process": _process(),
        },
    )


def _glance() -> list[Panel]:
    """Return the tiles: whether the engine is ready now, and numbers of the run's last stage, or of the time range."""
    waiting = f"max_over_time({server.WAITING}{{{CHOSEN}}}{STAGE})"
    ok, ended = (rate(server.REQUESTS, where=where, window=STAGE) for where in ('outcome="ok"', ""))
    return [
        tile(
            "Engine",
            "Whether the engine accepts requests. Several replicas of one engine are ready when all of them are. One "
            "that was scraped in the last 15 minutes and no longer answers is down.",
            "short",
            Query(f"min by (engine) ({READY} or 0 * ({SCRAPED} unless on (instance) {OF_A_RUN}) - 1)"),
            [(None, RED), (1, GREEN)],
            empty="no server is scraped",
            texts={"-1": "down", "0": "not ready", "1": "ready"},
        ),
        tile("Requests", "Finished requests per second, of any outcome.", "reqps", Query(ended)),
        tile(
            "Output",
            "Generated tokens per second, of all users together.",
            TOKENS_PER_SECOND,
            Query(rate(server.OUTPUT_TOKENS, window=STAGE)),
        ),
        tile(
            "Longest queue",
            "Requests that waited in the server's queue, at most. A queue that never empties is beyond the capacity.",
            "short",
            Query(f"sum by (engine) ({waiting})"),
        ),
        tile(
            "TTFT p99",
            "99 % of requests had their first token within this time, measured in the server.",
            "s",
            Query(quantile(0.99, server.TTFT, window=STAGE)),
        ),
        *(
            tile(
                f"{name} objective met",
                f"Share of all requests whose {token} token met the threshold chosen above. Failures count as missed.",
                "percentunit",
                Query(server.attainment(histogram, threshold)),
                ATTAINED,
            )
            for name, token, histogram, threshold in (
                ("TTFT", "first", server.TTFT, "$slo_ttft"),
                ("E2E", "last", server.E2E, "$slo_e2e"),
            )
        ),
        tile(
            "Failed or cancelled",
            "Share of requests with any outcome but `ok`, cancelled ones included.",
            "percentunit",
            Query(f"1 - {ok} / {ended}"),
            FAILURE_STEPS,
        ),
    ]


def _phases() -> list[Panel]:
    delivery = f"clamp_min({load.mean(load.TTFT, '')} - {mean(server.TTFT, '')}, 0)"
    return [
        lines(
            "Mean time per request, by phase",
            "Waiting for a slot (queue), until the first token (prefill), until the last token (decode); during a "
            "load test also from the engine to the client (delivery). A growing queue calls for replicas, prefill for "
            "shorter prompts or more compute, decode for memory bandwidth. All chosen engines together.",
            "s",
            [
                *(Query(mean(histogram, by=""), phase) for phase, histogram in PHASES.items()),
                Query(delivery, "delivery"),
            ],
            stacked=True,
            colours=PHASE_COLOURS,
            empty=NO_PHASES,
        ),
        lines(
            "Time in the queue",
            "Wait for a free slot of the engine: p50 dotted, p95 dashed, p99 solid. Zero while slots are free.",
            "s",
            percentiles(server.QUEUE),
            empty=NO_PHASES,
        ),
    ]


def _occupancy() -> list[Panel]:
    refused = rate(server.REQUESTS, by="engine, outcome", where='outcome=~"rejected|unavailable"')
    return [
        lines(
            "Batch: running and slots",
            "Requests in the engine, and its number of slots (dashed). When all slots are taken, further requests wait "
            "in the queue.",
            "short",
            [
                Query(gauge(server.RUNNING), "{{engine}} running"),
                Query(gauge(server.SLOTS), "{{engine}} slots"),
            ],
            dashed=["slots"],
        ),
        lines(
            "Waiting and refused",
            "Requests in the server's queue, and requests per second (dashed) that were refused because it was full or "
            "the engine not ready. A queue that keeps rising under steady load exceeds the engine's capacity.",
            "short",
            [
                Query(gauge(server.WAITING), "{{engine}} waiting"),
                Query(f"sum by (engine) ({refused})", "{{engine}} refused"),
            ],
            dashed=["refused"],
        ),
        lines(
            "KV cache in use",
            "Share of the engine's key-value cache that holds running requests. Near 100 % (orange: 95 %) requests "
            "wait or are recomputed.",
            "percentunit",
            [Query(gauge(server.KV_CACHE, "max"))],
            top=1,
            steps=[(None, GREEN), (0.95, ORANGE)],
            empty="not reported by these engines",
        ),
    ]


def _traffic() -> list[Panel]:
    return [
        lines(
            "Tokens in and out",
            "Prompt tokens per second of admitted requests (dashed), and generated tokens per second of all users.",
            TOKENS_PER_SECOND,
            [
                Query(rate(server.PROMPT_TOKENS), "{{engine}} input"),
                Query(rate(server.OUTPUT_TOKENS), "{{engine}} output"),
            ],
            dashed=["input"],
        ),
        lines(
            "Mean length of a request",
            "Prompt (dashed) and output tokens per request. Compare latencies of two periods only where these are the "
            "same.",
            "suffix: tokens",
            [
                Query(f"{rate(server.PROMPT_TOKENS)} / {rate(server.TTFT + '_count')}", "{{engine}} input"),
                Query(f"{rate(server.OUTPUT_TOKENS)} / {rate(server.TTFT + '_count')}", "{{engine}} output"),
            ],
            dashed=["input"],
        ),
        lines(
            "Requests by outcome",
            "Finished requests by outcome, all chosen engines together. `rejected`: the queue was full; `cancelled`: "
            "the client disconnected; `timeout`: the deadline passed.",
            "reqps",
            [Query(rate(server.REQUESTS, by="outcome"), "{{outcome}}")],
            stacked=True,
            colours=OUTCOME_COLOURS,
        ),
    ]


def _latency() -> list[Panel]:
    return [
        lines(
            "TTFT in the server",
            "From the request's arrival to its first token, queueing included: p50 dotted, p95 dashed, p99 solid. The "
            "grey line is the threshold chosen above.",
            "s",
            [*percentiles(server.TTFT), Query("vector($slo_ttft)", "SLO")],
        ),
        lines(
            "TPOT in the server",
            "Per request: time after the first token, divided by the tokens after the first. Its inverse is the speed "
            "that one user sees; people read 5 to 10 tokens per second.",
            "s",
            percentiles(server.TPOT),
        ),
        lines(
            "ICL: inter-chunk latency",
            "Gaps between successive chunks, pooled over all requests, so long answers weigh more. A chunk may hold "
            "several tokens. Stalls that TPOT averages away show here.",
            "s",
            percentiles(server.ICL),
        ),
        lines(
            "E2E in the server",
            "From the request's arrival to its last token. Grows with the length of the answers, so compare it only at "
            "equal lengths. The grey line is the threshold chosen above.",
            "s",
            [*percentiles(server.E2E), Query("vector($slo_e2e)", "SLO")],
        ),
        spread(
            "TTFT distribution",
            "How many requests fell into each bucket of time to first token. Two bands mean two kinds of request, for "
            "example served at once and queued.",
            Query(f"sum by (le) (increase({server.TTFT}_bucket{{{CHOSEN}}}{WINDOW}))", "{{le}}"),
        ),
    ]


def _process() -> list[Panel]:
    return [
        labels_table(
            "What is running",
            "Engine, model and number format of each server. They must be known for a fair comparison.",
            Query(f"{server.BUILD_INFO}{{{CHOSEN}}}"),
            {
                "instance": "server",
                "engine": "engine",
                "engine_version": "version",
                "model": "model",
                "dtype": "format",
            },
            empty="no server is scraped",
        ),
        lines(
            "CPU",
            "Cores used by the HTTP server's process (dashed) and by the engine's processes. The HTTP server runs on "
            "one core: near 1 (orange: 0.9) it is the limit, not the engine.",
            "suffix: cores",
            [
                Query(rate(server.ENGINE_CPU), "{{engine}} engine"),
                Query(rate(server.SERVER_CPU, by="instance", chosen=ON_INSTANCE), "{{instance}} server"),
            ],
            steps=[(None, GREEN), (0.9, ORANGE)],
            dashed=["server"],
        ),
        lines(
            "Memory",
            "Resident memory of the engine's processes, its peak (dotted), and the HTTP server's (dashed). A line that "
            "climbs under steady load is a leak.",
            "bytes",
            [
                Query(gauge(server.ENGINE_MEMORY), "{{engine}} engine"),
                Query(gauge(server.ENGINE_MEMORY_PEAK), "{{engine}} peak"),
                Query(f"{server.SERVER_MEMORY}{{{ON_INSTANCE}}}", "{{instance}} server"),
            ],
            dashed=["server"],
            dotted=["peak"],
        ),
    ]
