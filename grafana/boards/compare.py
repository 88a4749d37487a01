"""Compare: two runs side by side. Both begin at the left edge of the page, whenever they were made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from enginebench.records.rules import MARGIN
from grafana import load_promql as load
from grafana import variables
from grafana.boards.board import Board
from grafana.palette import BLUE, BY_SIDE, GREEN, ORANGE, RED
from grafana.panels import ABSENT, TOKENS_PER_SECOND, Panel, labels_table, lines, sentence, tile, values_table
from grafana.promql import Query

RUN_A, RUN_B = 'run="$run_a"', 'run="$run_b",run!="$run_a"'  # a run is not compared with itself
SIDES = (("A", RUN_A, " offset ${shift_a}s"), ("B", RUN_B, " offset ${shift_b}s"))
OFFERED = (load.USERS, load.OFFERED_RATE)  # a run has one of them
TAILS = {"TTFT (user)": load.TTFT_USER, "TPOT": load.TPOT, "E2E (user)": load.E2E_USER}
FAILING = 1000  # a ratio to a percentile among failures is infinite
WORSE = round(1 / MARGIN, 3)


def board() -> Board:
    return Board(
        uid="enginebench-compare",
        title="Compare",
        question="Which of two runs was better? A in blue, B in orange; at first the last two runs. Both begin at the "
        "left edge, whenever they were made: the time range is how much of them is seen.",
        variables=[variables.DATA_SOURCE, variables.RUN_A, variables.RUN_B, *variables.SHIFTS],
        rows={
            "": [_what(), *_glance()],
            "Stages": [_stages()],
            "Throughput": _throughput(),
            "Latency": _latency(),
            "Validity": _validity(),
        },
        since="now-15m",
        refresh="",  # a refresh would move the left edge, and the runs with it
    )


def _output(run: str) -> str:
    return load.by_stage(load.STAGE_OUTPUT, "stage", run)


def _p99(histogram: str, run: str) -> str:
    return load.quantile_by_stage(0.99, histogram, "stage", run)


def _what() -> Panel:
    common = f"count ({_output(RUN_B)} and {_output(RUN_A)})"
    several = f"count ({variables.STARTED}) > 1"
    started = f"count (last_over_time({load.RUN_START}{{%s}}{load.LAST_MONTH}))"
    same = started % 'run="$run_a",run="$run_b"'
    return sentence(
        "B over A",
        "Which runs are compared, and over how many stages. A stage that only one of them has is left out.",
        [
            Query(f'count_values ("stages", {common})', "B is $run_b, A is $run_a: stages that both have: {{stages}}"),
            Query(f"{same} and {several}", "A and B are the same run: choose another one above."),
            Query(f"{started % RUN_B} unless {common}", "These two runs have no stage in common."),
        ],
        otherwise="A and B are not two load tests of the last 30 days: `enginebench run` makes one.",
    )


def _glance() -> list[Panel]:
    def ratio(b: str, a: str) -> Query:
        """Return the geometric mean, as is right for ratios, over the stages that both runs have."""
        return Query(f"exp (avg (ln ({b} / {a} >= 0)))", "B over A")

    ratio_tile = partial(tile, unit="suffix: ×", empty=ABSENT)
    return [
        ratio_tile(
            "Output, B over A",
            "Output tokens per second of B divided by A's: the geometric mean over the stages that both have. Green "
            f"from the practical margin of {MARGIN:g} on; whether that may be chance says `enginebench compare`.",
            query=ratio(_output(RUN_B), _output(RUN_A)),
            steps=[(None, ORANGE), (WORSE, BLUE), (MARGIN, GREEN)],
        ),
        *(
            ratio_tile(
                f"{name} p99, B over A",
                f"The 99th percentile of {name} of B divided by A's: the geometric mean over the stages that both "
                "have. Below 1, B was faster. Stages in which over 1 % of both failed are left out.",
                query=ratio(_p99(histogram, RUN_B), _p99(histogram, RUN_A)),
                steps=[(None, GREEN), (WORSE, BLUE), (MARGIN, ORANGE), (2, RED), (FAILING, RED)],
                beyond=load.TAIL_FAILED,
            )
            for name, histogram in TAILS.items()
        ),
    ]


def _stages() -> Panel:
    ratio = f"{_output(RUN_B)} / {_output(RUN_A)}"
    return values_table(
        "Stage by stage",
        "Each stage's steady window, as the reports have it. No number where over 1 % of the requests failed.",
        {
            "load": (Query(load.by_stage(load.STAGE_LOAD, "stage", 'run=~"$run_a|$run_b"'), "load"), "short"),
            "output A": (Query(_output(RUN_A), "output A"), TOKENS_PER_SECOND),
            "output B": (Query(_output(RUN_B), "output B"), TOKENS_PER_SECOND),
            "output, B over A": (Query(ratio, "output, B over A"), "suffix: ×"),
            "TTFT (user) p99 A": (Query(_p99(load.TTFT_USER, RUN_A), "TTFT (user) p99 A"), "s"),
            "TTFT (user) p99 B": (Query(_p99(load.TTFT_USER, RUN_B), "TTFT (user) p99 B"), "s"),
            "TPOT p99 A": (Query(_p99(load.TPOT, RUN_A), "TPOT p99 A"), "s"),
            "TPOT p99 B": (Query(_p99(load.TPOT, RUN_B), "TPOT p99 B"), "s"),
        },
        {"stage": "stage"},
        empty=ABSENT,
    )


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
        _tails("TTFT (user), A and B", load.TTFT_USER, "From when a request was due to its first token"),
        _tails("TPOT, A and B", load.TPOT, "Mean time per output token after the first chunk"),
        _tails("E2E (user), A and B", load.E2E_USER, "From when a request was due to its last token"),
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
            f"How late each run's load generator sent its requests. Beyond {load.BUDGET}, the comparison is between "
            "load generators.",
            "s",
            lambda run, shift: load.quantile(0.99, load.SEND_LAG, run, shift),
            limit=load.LATE_SECONDS,
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
            Query(f'last_over_time({load.RUN_INFO}{{run=~"$run_a|$run_b"}}{load.LAST_MONTH})'),
            {"run": "run", "scenario": "scenario", "engine": "engine", "model": "model", "server": "server"},
            empty=ABSENT,
        ),
    ]


Series = Callable[[str, str], str]  # (restriction to a run, offset) -> PromQL


def _lines(
    title: str, description: str, unit: str, series: Series, *, limit: float | None = None, empty: str = ABSENT
) -> Panel:
    queries = [Query(series(run, shift), f"{side} {{{{engine}}}}") for side, run, shift in SIDES]
    steps = [(None, GREEN)] if limit is None else [(None, GREEN), (limit, ORANGE)]
    return lines(title, description, unit, queries, steps=steps, palette=BY_SIDE, empty=empty)


def _tails(title: str, histogram: str, meaning: str) -> Panel:
    queries = [
        Query(load.quantile(q / 100, histogram, run, shift), f"{side} {{{{engine}}}} p{q}")
        for side, run, shift in SIDES
        for q in (50, 99)
    ]
    return lines(
        title,
        f"{meaning}: p50 dotted, p99 solid. A line ends where its percentile falls among failed requests.",
        "s",
        queries,
        palette=BY_SIDE,
        empty=ABSENT,
    )
