"""Compare: two runs side by side on the time axis of the first; the other is shifted by the time between."""

from __future__ import annotations

from collections.abc import Callable

from grafana import load_promql as load
from grafana import variables
from grafana.boards.board import Board
from grafana.palette import BLUE, BY_SIDE, GREEN, ORANGE, RED
from grafana.panels import TOKENS_PER_SECOND, Panel, labels_table, lines, tile
from grafana.promql import Query

RUN_A, RUN_B = 'run="$run_a"', 'run="$run_b"'
SHIFT = " offset ${shift}s"
OFFERED = (load.USERS, load.OFFERED_RATE)  # a run has one of them
EMPTY = "choose two runs, and a time range that holds run A"


def board() -> Board:
    return Board(
        uid="enginebench-compare",
        title="Compare",
        question="Which of two runs was better? A in blue, B in orange, both on A's time axis: choose a time range "
        "that holds run A.",
        variables=[
            variables.DATA_SOURCE,
            *variables.side("A", variables.ASCENDING),
            *variables.side("B", variables.DESCENDING),
            variables.seconds_between_starts(),
        ],
        rows={"": _glance(), "Throughput": _throughput(), "Latency": _latency(), "Validity": _validity()},
        since="now-1h",
    )


def _glance() -> list[Panel]:
    def ratio(of: str, against: str) -> str:
        return f"sum ({of}) / sum ({against})"

    output = [load.rate(load.OUTPUT_TOKENS, run=RUN_B, shift=SHIFT), load.rate(load.OUTPUT_TOKENS, run=RUN_A)]
    tails = {
        name: [load.quantile(0.99, histogram, RUN_B, SHIFT), load.quantile(0.99, histogram, RUN_A)]
        for name, histogram in (("TTFT", load.TTFT), ("TPOT", load.TPOT), ("E2E", load.E2E))
    }
    return [
        tile(
            "Output, B over A",
            "Output tokens per second of B divided by A's, at the same time since their starts. Above 1.05, B was "
            "faster by more than the practical margin.",
            "suffix: ×",
            Query(ratio(*output), "B over A"),
            [(None, BLUE), (1.05, GREEN)],
            width=6,
            empty=EMPTY,
        ),
        *(
            tile(
                f"{name} p99, B over A",
                f"The 99th percentile of {name} of B divided by A's, at the same time since their starts. Below 1, B "
                "was faster. Empty while more than 1 % of either fail.",
                "suffix: ×",
                Query(ratio(*pair), "B over A"),
                [(None, GREEN), (0.95, BLUE), (1.05, ORANGE), (2, RED)],
                width=6,
                empty=EMPTY,
            )
            for name, pair in tails.items()
        ),
    ]


def _throughput() -> list[Panel]:
    return [
        _lines(
            "Output",
            "Output tokens per second, all users together.",
            TOKENS_PER_SECOND,
            lambda run, shift: load.rate(load.OUTPUT_TOKENS, run=run, shift=shift),
        ),
        _lines(
            "Achieved requests",
            "Finished requests per second. Two runs are comparable only where they were offered the same load.",
            "reqps",
            lambda run, shift: load.rate(load.REQUESTS, where=load.FINISHED, run=run, shift=shift),
        ),
        _lines(
            "Goodput",
            "Requests per second that met every SLO of their run.",
            "reqps",
            lambda run, shift: load.rate(load.GOOD, run=run, shift=shift),
            empty=load.NO_SLO,
        ),
    ]


def _latency() -> list[Panel]:
    return [
        _tails("TTFT, A and B", load.TTFT, "From when a request was due to its first token"),
        _tails("TPOT, A and B", load.TPOT, "Mean time per output token after the first chunk"),
        _tails("E2E, A and B", load.E2E, "From when a request was due to its last token"),
    ]


def _validity() -> list[Panel]:
    return [
        _lines(
            "Attainment, A and B",
            "Share of attempted requests that met every SLO of their run. Orange line: 99 %.",
            "percentunit",
            lambda run, shift: load.attainment(run, shift),
            empty=load.NO_SLO,
            limit=0.99,
        ),
        _lines(
            "Offered load, A and B",
            "Users of a closed loop, or requests scheduled per second in an open one. The lines coincide when both "
            "runs have the same plan.",
            "short",
            lambda run, shift: " or ".join(load.gauge(name, run=run, shift=shift) for name in OFFERED),
        ),
        _lines(
            "Send lag p99, A and B",
            "How late each run's load generator was. Where one of them is above 5 ms (orange), the comparison is "
            "between load generators.",
            "s",
            lambda run, shift: load.quantile(0.99, load.SEND_LAG, run, shift),
            limit=0.005,
        ),
        _lines(
            "Failures, A and B",
            "Failed requests per second. A run that fails more serves fewer requests, and the others faster.",
            "reqps",
            lambda run, shift: load.rate(load.REQUESTS, where=load.FAILED, run=run, shift=shift),
            empty="no failures",
        ),
        labels_table(
            "What was compared",
            "Scenario, engine, model and server of both runs.",
            Query(f'last_over_time({load.RUN_INFO}{{run=~"$run_a|$run_b"}}[30d])'),
            {"run": "run", "scenario": "scenario", "engine": "engine", "model": "model", "server": "server"},
            width=16,
            empty=EMPTY,
        ),
    ]


Series = Callable[[str, str], str]  # (restriction to a run, offset) -> PromQL


def _lines(
    title: str, description: str, unit: str, series: Series, *, limit: float | None = None, empty: str = EMPTY
) -> Panel:
    queries = [Query(series(RUN_A, ""), "A {{engine}}"), Query(series(RUN_B, SHIFT), "B {{engine}}")]
    steps = [(None, GREEN)] if limit is None else [(None, GREEN), (limit, ORANGE)]
    return lines(title, description, unit, queries, steps=steps, palette=BY_SIDE, empty=empty)


def _tails(title: str, histogram: str, meaning: str) -> Panel:
    queries = [
        Query(load.quantile(q / 100, histogram, run, shift), f"{side} {{{{engine}}}} p{q}")
        for side, run, shift in (("A", RUN_A, ""), ("B", RUN_B, SHIFT))
        for q in (50, 99)
    ]
    return lines(
        title,
        f"{meaning}: p50 dotted, p99 solid. A line ends where its percentile falls among failed requests.",
        "s",
        queries,
        palette=BY_SIDE,
        empty=EMPTY,
    )
