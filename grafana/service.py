"""The upper rows: latency, goodput, and the time spent in each phase."""

from __future__ import annotations

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import StackingMode

from grafana.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, TOKENS_PER_SECOND, Panel, lines, spread, tile
from grafana.promql import (
    CHOSEN,
    DECODE,
    E2E,
    ICL,
    OUTPUT_TOKENS,
    PREFILL,
    QUEUE,
    REQUESTS,
    TPOT,
    TTFT,
    WINDOW,
    Query,
    attainment,
    gauge,
    mean,
    percentiles,
    quantile,
    rate,
    within,
)

OK = rate(REQUESTS, where='outcome="ok"')
SLO_STEPS = [(None, RED), (0.95, ORANGE), (0.99, GREEN)]
OUTCOME_COLOURS = {
    "ok": GREEN,
    "cancelled": GREY,
    "rejected": ORANGE,
    "timeout": PURPLE,
    "bad_request": BLUE,
    "engine_error": RED,
    "unavailable": "dark-red",
}


def at_a_glance() -> list[Panel]:
    return [
        tile(
            "Engine",
            "Whether the engine accepts requests. Several replicas of one engine are ready when all of them are.",
            units.Short,
            Query(gauge("enginebench_engine_ready", of="min")),
            [(None, RED), (1, GREEN)],
            **{"0": "not ready", "1": "ready"},
        ),
        tile(
            "Requests",
            "Finished requests per second, of any outcome.",
            units.RequestsPerSecond,
            Query(rate(REQUESTS)),
        ),
        tile(
            "Output",
            "Generated tokens per second, all users together.",
            TOKENS_PER_SECOND,
            Query(rate(OUTPUT_TOKENS)),
        ),
        tile(
            "TTFT p99",
            "99 % of requests had their first token within this time, measured in the server.",
            units.Seconds,
            Query(quantile(0.99, TTFT)),
        ),
        tile(
            "TTFT SLO met",
            "Share of all requests whose first token met the threshold chosen above. Failed ones count as missed.",
            units.PercentUnit,
            Query(attainment(TTFT, "$slo_ttft")),
            SLO_STEPS,
        ),
        tile(
            "Not ok",
            "Share of requests with any outcome but `ok`, cancelled ones included.",
            units.PercentUnit,
            Query(f"1 - {OK} / {rate(REQUESTS)}"),
            [(None, GREEN), (0.001, ORANGE), (0.01, RED)],
        ),
    ]


def good_enough() -> list[Panel]:
    return [
        lines(
            "SLO attainment",
            "Share of all requests that met each threshold chosen above; failures count as missed. Exact, because the "
            "thresholds are edges of the histograms' buckets. Where the line leaves 99 %, the load is too high.",
            units.PercentUnit,
            [
                Query(attainment(TTFT, "$slo_ttft"), "{{engine}} TTFT ≤ $slo_ttft s"),
                Query(attainment(E2E, "$slo_e2e"), "{{engine}} E2E ≤ $slo_e2e s"),
            ],
            width=8,
            top=1,
            steps=[(None, "transparent"), (0.99, GREEN)],
        ),
        lines(
            "Load and goodput",
            "Finished requests per second, and those of them that met each threshold. While the lines coincide, the "
            "system keeps up; the load at which they diverge is the knee.",
            units.RequestsPerSecond,
            [
                Query(rate(REQUESTS), "{{engine}} finished"),
                Query(within(TTFT, "$slo_ttft"), "{{engine}} TTFT met"),
                Query(within(E2E, "$slo_e2e"), "{{engine}} E2E met"),
            ],
            width=8,
        ),
        lines(
            "Requests by outcome",
            "Finished requests by outcome, all chosen engines together. `rejected`: the queue was full; `cancelled`: "
            "the client disconnected; `timeout`: the deadline passed.",
            units.RequestsPerSecond,
            [Query(rate(REQUESTS, by="outcome"), "{{outcome}}")],
            width=8,
            stacked=StackingMode.NORMAL,
            colours=OUTCOME_COLOURS,
        ),
    ]


def latency() -> list[Panel]:
    return [
        lines(
            "TTFT: time to first token",
            "From the request's arrival to its first token, queueing included, measured in the server. "
            "The red line is the threshold chosen above.",
            units.Seconds,
            [*percentiles(TTFT), Query("vector($slo_ttft)", "SLO")],
        ),
        lines(
            "E2E: whole request",
            "From the request's arrival to its last token. Grows with the length of the answers, so compare it only at "
            "equal lengths. The red line is the threshold chosen above.",
            units.Seconds,
            [*percentiles(E2E), Query("vector($slo_e2e)", "SLO")],
        ),
        lines(
            "TPOT: time per output token",
            "Per request: time after the first token, divided by the tokens after the first. Its inverse is the speed "
            "that one user sees.",
            units.Seconds,
            percentiles(TPOT),
        ),
        lines(
            "ICL: inter-chunk latency",
            "Gaps between successive chunks, pooled over all requests, so long answers weigh more. A chunk may hold "
            "several tokens. Stalls that TPOT averages away show here.",
            units.Seconds,
            percentiles(ICL),
        ),
        spread(
            "TTFT distribution",
            "How many requests fell into each bucket of time to first token. Two bands mean two kinds of request, for "
            "example served at once and queued.",
            Query(f"sum by (le) (increase({TTFT}_bucket{{{CHOSEN}}}{WINDOW}))", "{{le}}"),
        ),
        lines(
            "Speed for one user",
            "Output tokens per second that one user sees: the inverse of TPOT. The slow 5 % are at the lower line. "
            "People read about 5 to 10 tokens per second.",
            TOKENS_PER_SECOND,
            [
                Query(f"1 / {quantile(0.5, TPOT)}", "{{engine}} median user"),
                Query(f"1 / {quantile(0.95, TPOT)}", "{{engine}} slow 5 %"),
            ],
        ),
    ]


def where_time_goes() -> list[Panel]:
    phases = {"queue": QUEUE, "prefill": PREFILL, "decode": DECODE}
    colours = {"queue": ORANGE, "prefill": BLUE, "decode": GREEN}
    whole = " + ".join(rate(f"{histogram}_sum", by="") for histogram in phases.values())
    together = " All chosen engines together: choose one engine to see it alone."
    return [
        lines(
            "Mean time per request, by phase",
            "Waiting for a slot (queue), until the first token (prefill), until the last token (decode)." + together,
            units.Seconds,
            [Query(mean(histogram, by=""), phase) for phase, histogram in phases.items()],
            width=8,
            stacked=StackingMode.NORMAL,
            colours=colours,
        ),
        lines(
            "Share of time, by phase",
            "Where requests spend their time. A growing queue calls for replicas, a growing prefill for shorter "
            "prompts or more compute, a growing decode for memory bandwidth." + together,
            units.PercentUnit,
            [Query(f"{rate(histogram + '_sum', by='')} / ({whole})", phase) for phase, histogram in phases.items()],
            width=8,
            top=1,
            stacked=StackingMode.NORMAL,
            colours=colours,
        ),
        lines(
            "Time in the queue",
            "Wait for a free slot of the engine. Zero while slots are free.",
            units.Seconds,
            percentiles(QUEUE),
            width=8,
        ),
    ]
