from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from enginebench.analysis.answer import NoAnswer
from enginebench.analysis.document import Column, NextStep, Table, Warning
from enginebench.analysis.tested import Hardware, Tested
from enginebench.analysis.write import phrases
from enginebench.analysis.write.cells import DASHES
from enginebench.records.load import Segment
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Missing
from tests.support.analysis import documents
from tests.support.analysis.documents import DATE, SLO, TESTED

ENGINES = tuple("abcdefg")
GPU = Hardware("Intel Xeon", 48, None, "NVIDIA H200")


@pytest.mark.parametrize(
    ("tested", "line"),
    [
        (
            TESTED,
            "mock at 127.0.0.1:8300 · 32-token prompts, 48-token answers · closed loop, 1, 4, 8 "
            "and 16 users · one run of 6 to 20 s per load · AMD EPYC, 2 cores, no GPU · 28 Nov 2026",
        ),
        (
            replace(
                TESTED,
                models=("SmolLM2-135M",),
                engines=ENGINES,
                target=None,
                loads=(1.0, 8.0),
                seconds=(7.99, 8.01),
                repeats=(7, 7),
                interleaved=True,
                formats={"a": "float32", "b": "q8_0", "c": "float32"},
                hardware=(GPU,),
                dates=(DATE, DATE + timedelta(days=1)),
            ),
            "SmolLM2-135M on 7 engines · 32-token prompts, 48-token answers · closed loop, 1 and 8 users · "
            "7 interleaved repeats of 8 s per load · float32 and q8_0 · Intel Xeon, 48 cores, NVIDIA H200 · "
            "28 Nov 2026 to 29 Nov 2026",
        ),
        (
            replace(
                TESTED,
                engines=("a", "b"),
                target=None,
                prompt_tokens=None,
                open_loop=True,
                unit="req/s",
                loads=(2.5,),
                seconds=None,
                repeats=(2, 3),
                hardware=(GPU, TESTED.hardware[0]),
                dates=None,
            ),
            "mock on a and b · 48-token answers · open loop, 2.5 req/s · 2 to 3 runs each · 2 different machines",
        ),
        (
            replace(TESTED, stages=("10 prompt tokens", "200 prompt tokens"), loads=(1.0,), output_tokens=1.0),
            "mock at 127.0.0.1:8300 · 10 and 200 prompt tokens, 1-token answers · closed loop, 1 user · "
            "one run of 6 to 20 s · AMD EPYC, 2 cores, no GPU · 28 Nov 2026",
        ),
        (
            replace(
                TESTED, engines=("a", "b"), models=(), target=None, loads=(1.0,), seconds=(0.3, 0.3), repeats=(3, 3)
            ),
            "a and b · 32-token prompts, 48-token answers · closed loop, 1 user · 3 non-interleaved repeats "
            "of 0.3 s · AMD EPYC, 2 cores, no GPU · 28 Nov 2026",
        ),
        (
            replace(
                TESTED,
                open_loop=True,
                unit="req/s",
                loads=(7.714,),
                profile=(Segment(4, 4, 20), Segment(30, 30, 10)),
                hardware=(),
            ),
            "mock at 127.0.0.1:8300 · 32-token prompts, 48-token answers · open loop, 4 req/s for 20 s, then 30 req/s "
            "for 10 s · one run · 28 Nov 2026",
        ),
        (
            replace(TESTED, target="https://10.0.0.5", engines=("10.0.0.5",), remote=True, hardware=(GPU,)),
            "mock at https://10.0.0.5 · 32-token prompts, 48-token answers · closed loop, 1, 4, 8 and 16 "
            "users · one run of 6 to 20 s per load · load generator on Intel Xeon, 48 cores · 28 Nov 2026",
        ),
        (
            replace(TESTED, prompt_tokens=None, output_tokens=None, loads=(), repeats=(3, 3), hardware=(), dates=None),
            "mock at 127.0.0.1:8300 · 3 repeats of 6 to 20 s",
        ),
    ],
)
def test_what_was_tested(tested: Tested, line: str) -> None:
    assert phrases.tested_line(tested) == line


@pytest.mark.parametrize(
    ("slo", "line"),
    [
        ("", ""),
        (
            "ttft_p95=0.6,tpot_p95=0.06",
            "time to first token (TTFT) p95 ≤ 600 ms and time per output token (TPOT) p95 ≤ 60 ms",
        ),
        ("ttft_p50=0.1,ttft_p99=1.5", "time to first token (TTFT) p50 ≤ 100 ms and TTFT p99 ≤ 1.5 s"),
        ("e2e_p99=2,ttft_p95=5", "end-to-end latency (E2E) p99 ≤ 2 s and time to first token (TTFT) p95 ≤ 5 s"),
        ("failures=0.01", "failures ≤ 1 %"),
    ],
)
def test_the_slo_spells_each_abbreviation_out_once(slo: str, line: str) -> None:
    assert phrases.slo_line(parse_objectives([slo])) == line


def test_without_an_slo_the_legend_spells_out_what_the_candidates_show() -> None:
    table = Table("candidates", "", (Column("TTFT p50"), Column("TPOT p50")), ())
    document = documents.document(NoAnswer.ALL_FAILED, table, objectives=())
    assert phrases.legend(document) == (("TTFT", "time to first token"), ("TPOT", "time per output token"))
    assert phrases.legend(replace(document, objectives=SLO)) == ()


def test_the_legend_has_what_the_document_uses() -> None:
    assert phrases.legend(documents.quick()) == (
        (
            "*",
            "not confirmed: a longer test or more repeats are needed; unmarked: confirmed, with 95 % confidence",
        ),
    )
    rows = tuple((code,) for code in Missing)
    document = documents.document(NoAnswer.ALL_FAILED, Table("t", "", (Column("x"),), rows))
    assert {sign for sign, _ in phrases.legend(document)} == set(DASHES.values())
    assert set(DASHES) == set(Missing)


@pytest.mark.parametrize(
    ("step", "title", "line"),
    [
        (
            NextStep("bracket", ("enginebench", "run"), {"engine": "mock", "load": "8", "beyond": "16 users"}),
            "Next",
            "Find the highest load of mock within the SLO, between 8 and 16 users",
        ),
        (NextStep("buy", (), {"engine": "b\x1b", "replicas": "5 replicas"}), "Now", "Deploy 5 replicas of b"),
        (
            NextStep("higher", ("x",), names={"engine": "a", "load": "8 users"}, varied=True),
            "Next",
            "Test a above 8 users, with answers of varied length",
        ),
    ],
)
def test_what_to_do_next(step: NextStep, title: str, line: str) -> None:
    assert (phrases.next_title(step), phrases.next_line(step)) == (title, line)


def test_a_command_can_be_pasted_into_a_shell() -> None:
    assert (
        phrases.next_command(NextStep("look", ("enginebench", "report", "my runs/a")))
        == "enginebench report 'my runs/a'"
    )


def test_warnings_are_counted() -> None:
    warning = Warning("late", "warn", "the load generator was late", "use another machine", ("a",), ("8 users",))
    titles = [phrases.warnings_title((warning,) * count) for count in (1, 2, 5, 8)]
    assert titles == ["Warning", "Warnings (2)", "Warnings (5)", "Warnings: the 5 most severe of 8"]
    assert phrases.warning_texts(warning) == ("the load generator was late (a, 8 users)", "use another machine")
