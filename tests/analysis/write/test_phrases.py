from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from enginebench.analysis.answer import NoAnswer
from enginebench.analysis.document import Column, NextStep, Table, Warning
from enginebench.analysis.tested import Hardware
from enginebench.analysis.write import phrases
from enginebench.analysis.write.cells import DASHES
from enginebench.records.load import Segment
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Missing
from tests.support.analysis import documents
from tests.support.analysis.documents import DATE, SLO, TESTED

ENGINES = tuple("abcdefg")
GPU = Hardware("Intel Xeon", 48, None, "NVIDIA H200")
TOKENS = "10 and 200 prompt tokens, 1-token answers"
PROFILE = (Segment(4, 4, 20), Segment(30, 30, 10))
BURST: dict[str, Any] = {"open_loop": True, "unit": "req/s", "loads": (7.714,), "profile": PROFILE}
NOWHERE: dict[str, Any] = {"engines": ("a", "b"), "target": None}


def test_what_was_tested() -> None:
    assert phrases.tested_line(TESTED) == (
        "mock at 127.0.0.1:8300 · 32-token prompts, 48-token answers · closed loop, 1, 4, 8 and 16 users · "
        "one run of 6 to 20 s per load · AMD EPYC, 2 cores, no GPU · 28 Nov 2026"
    )
    unknown = replace(TESTED, prompt_tokens=None, output_tokens=None, loads=(), repeats=(3, 3), hardware=(), dates=None)
    assert phrases.tested_line(unknown) == "mock at 127.0.0.1:8300 · 3 repeats, each 6 to 20 s"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"target": "https://10.0.0.5", "engines": ("10.0.0.5",)}, "mock at https://10.0.0.5"),
        ({"models": ("SmolLM2-135M",), "engines": ENGINES, "target": None}, "SmolLM2-135M on 7 engines"),
        (NOWHERE, "mock on a and b"),
        (NOWHERE | {"models": ()}, "a and b"),
        ({"prompt_tokens": None}, "48-token answers"),
        ({"stages": ("10 prompt tokens", "200 prompt tokens"), "output_tokens": 1.0}, TOKENS),
        ({"loads": (1.0, 8.0)}, "closed loop, 1 and 8 users"),
        ({"loads": (1.0,)}, "closed loop, 1 user"),
        ({"open_loop": True, "unit": "req/s", "loads": (2.5,)}, "open loop, 2.5 req/s"),
        (BURST, "open loop, 4 req/s for 20 s, then 30 req/s for 10 s"),
        (BURST, "one run"),
        ({"loads": (1.0,)}, "one run of 6 to 20 s"),
        (
            NOWHERE | {"seconds": (7.99, 8.01), "repeats": (7, 7), "interleaved": True},
            "7 interleaved repeats, each 8 s per load",
        ),
        (
            NOWHERE | {"loads": (1.0,), "seconds": (0.3, 0.3), "repeats": (3, 3)},
            "3 repeats, not interleaved, each 0.3 s",
        ),
        (NOWHERE | {"seconds": None, "repeats": (2, 3)}, "2 to 3 runs each"),
        ({"formats": {"a": "float32", "b": "q8_0", "c": "float32"}}, "float32 and q8_0"),
        ({"hardware": (GPU,)}, "Intel Xeon, 48 cores, NVIDIA H200"),
        ({"hardware": (GPU, TESTED.hardware[0])}, "2 different machines"),
        ({"hardware": (GPU,), "remote": True}, "load generator on Intel Xeon, 48 cores"),
        ({"dates": (DATE, DATE + timedelta(days=1))}, "28 Nov 2026 to 29 Nov 2026"),
    ],
)
def test_a_part_of_what_was_tested(changes: dict[str, Any], part: str) -> None:
    assert part in phrases.tested_line(replace(TESTED, **changes)).split(" · ")


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
        ("*", "not confirmed: a longer test or more repeats are needed; unmarked: confirmed, with 95 % confidence"),
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
