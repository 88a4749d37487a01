"""Engines ranked, judged and compared once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.answer import BestAnswer, CapacityAnswer, NoAnswer, Replicas, SpeedAnswer
from enginebench.analysis.document import Table
from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.frame import Frame, frame_of
from enginebench.analysis.next_step import next_step, next_step_for_peak, run_command
from enginebench.analysis.reports import answer_of, exit_code, report_document
from enginebench.analysis.sections.warnings import warnings
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.differences import Kind
from enginebench.analysis.write.cells import show
from enginebench.records.exit_codes import GOOD, INVALID, MISSED, NOT_ENOUGH
from enginebench.records.load import Users
from enginebench.records.metrics import BY_NAME, QUANTITY_BY_NAME, THROUGHPUT, TTFT, Column
from enginebench.records.quality import Quality
from enginebench.records.slo import parse_objectives
from enginebench.records.view import ClassView, Estimate, Finding, Judgement, Missing, Severity, StageKey
from enginebench.settings.schema import UserMistake
from tests.support.analysis.compared import run, view
from tests.support.analysis.synthetic import Engine, simulate, simulate_in_turn
from tests.support.present import present

SLO = parse_objectives(["ttft_p90=0.15,tpot_p90=0.02"])
FAST, SLOW = Engine("fast", slots=8), Engine("slow", slots=4)
LOADS = (2, 4, 8)


def started(repeat: int, order: int) -> str:
    return f"2026-11-21T10:{repeat:02d}:{order:02d}.000+00:00"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunSummary]:
    """Two engines, three interleaved repeats with the same prompts: the slow one queues from its four slots on."""
    folder = simulate_in_turn(tmp_path_factory.mktemp("runs"), (SLOW, FAST), LOADS, 20.0)
    return summaries_of([str(folder)], folder, SLO)


@pytest.fixture(scope="module")
def frame(runs: list[RunSummary]) -> Frame:
    return frame_of(runs)


def of_label(runs: list[RunSummary], label: str) -> list[RunSummary]:
    return [run for run in runs if run.label == label]


def test_if_no_answer_has_a_second_token_engines_are_compared_by_ttft(tmp_path: Path) -> None:
    for repeat in range(3):
        for order, prefill in enumerate((0.05, 0.1)):
            name = f"{prefill}-{repeat}"
            engine = Engine(f"takes {prefill}", prefill=prefill, tokens=1)
            facts: dict[str, Any] = {"run_id": name, "repeat": repeat, "started_at": started(repeat, order)}
            simulate(tmp_path / name, engine, (1,), 20.0, seed=repeat, scenario="single", **facts)
    frame = frame_of(summaries_of([str(tmp_path)], tmp_path))
    assert frame.names == ("takes 0.05", "takes 0.1")
    document = report_document(frame)
    step = present(document.next)
    assert (step.purpose, step.names["engine"]) == ("users", "takes 0.05")
    assert step.command[:3] == ("enginebench", "run", "concurrent")
    answer = document.answer
    assert isinstance(answer, BestAnswer)
    assert (answer.speed.title, answer.significant) == ("TTFT p50", True)
    assert answer.best.speed.value == pytest.approx(0.05, rel=0.1)
    assert answer.ratio.value == pytest.approx(0.5, rel=0.1)
    titles = [column.title for column in present(document.candidates).columns]
    assert titles == ["engine", "TTFT p50 at 1 user", "TTFT p50 compared with the next row", "TTFT p99 at 1 user"]


def test_a_single_engine_is_answered_by_its_capacity(runs: list[RunSummary]) -> None:
    frame = frame_of(of_label(runs, "slow"))
    answer = answer_of(frame)
    assert isinstance(answer, CapacityAnswer)
    assert (answer.capacity.load, answer.capacity.beyond, answer.bottleneck) == (4, 8, QUANTITY_BY_NAME["ttft_queue"])
    engine = frame.engine("slow")
    assert answer.at_load[0] == engine.value("4 users", "ttft_user", "p90")
    assert answer.beyond[0] == engine.value("8 users", "ttft_user", "p90")


def test_a_gap_that_does_not_change_the_number_of_replicas_is_not_searched(runs: list[RunSummary]) -> None:
    """Four users or nearly eight on each: three replicas for nine users are too few or one too many; for four, one."""
    frame = frame_of(of_label(runs, "slow"))
    for peak, count, purpose in ((9, 3, "bracket"), (4, 1, "spare")):
        step = next_step_for_peak(frame, Replicas("slow", frame.capacities["slow"], count, None, None), Users(peak))
        assert step is not None
        assert step.purpose == purpose


def test_a_wide_gap_between_met_and_missed_is_searched_before_it_is_planned_with(runs: list[RunSummary]) -> None:
    step = present(next_step(frame_of(of_label(runs, "slow"))))
    assert step.purpose == "bracket"
    assert step.command[step.command.index("--search-range") + 1] == "4-8"


@pytest.mark.parametrize(("sure", "purpose", "stages"), [(True, "higher", "16"), (False, "confirm_higher", "8,16")])
def test_the_highest_load_is_tested_again_with_the_next_if_it_is_not_confirmed(
    runs: list[RunSummary], sure: bool, purpose: str, stages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Capacity, "met_confirmed", sure)
    step = present(next_step(frame_of(of_label(runs, "fast"))))
    assert (step.purpose, step.command[step.command.index("--stages") + 1]) == (purpose, stages)


def test_without_an_slo_a_single_engine_is_answered_by_its_speed(tmp_path: Path) -> None:
    simulate(tmp_path / "run", FAST, LOADS, 20.0)
    frame = frame_of(summaries_of([str(tmp_path / "run")], tmp_path))
    answer = answer_of(frame)
    assert isinstance(answer, SpeedAnswer)
    assert (answer.stage, answer.busiest) == ("2 users", "8 users")
    assert answer.ttft.value == frame.engine("fast").value("2 users", TTFT, "p50")
    step = present(next_step(frame))
    assert step.purpose == "slo"
    assert exit_code(frame, warnings(frame)) == GOOD


def test_other_workloads_are_not_compared(runs: list[RunSummary]) -> None:
    changed = [replace(run, workload={**run.workload, "output_tokens": "64"}) for run in of_label(runs, "slow")]
    frame = frame_of([*of_label(runs, "fast"), *changed])
    assert [difference.kind for difference in frame.differences] == [Kind.WORKLOAD]
    assert frame.differences[0].settings == ("output_tokens",)
    document = report_document(frame)
    assert document.answer is NoAnswer.DIFFERENT_WORKLOADS
    assert document.exit_code == INVALID


def test_a_missed_objective_is_exit_code_1(frame: Frame, runs: list[RunSummary]) -> None:
    assert exit_code(frame, ()) == MISSED
    assert exit_code(frame_of(of_label(runs, "fast")), ()) == GOOD


def test_repeats_that_follow_one_another_are_not_interleaved(runs: list[RunSummary]) -> None:
    """An engine that was measured later is no pair of the others, whatever the plan said."""
    later = [replace(run, started_at=f"2026-11-22T{run.started_at[11:]}") for run in of_label(runs, "slow")]
    frame = frame_of([*of_label(runs, "fast"), *later])
    assert not frame.tested.interleaved
    assert "not_interleaved" in [warning.kind for warning in warnings(frame)]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("--engine slow -o tpot=0.1", "--engine vllm -o tpot=0.1"),
        ("--engine slow=vllm -o slow.slots=4 --engine b=vllm -o b.slots=8 -o x=1", "--engine vllm -o slots=4 -o x=1"),
        ("--url b=http://b --url slow=http://s?v=1", "--url http://s?v=1"),
        ("--url http://s?v=1 --model m", "--url http://s?v=1 --model m"),
        ("run rate http://s --rate 4", "--url http://127.0.0.1:8000"),
    ],
)
def test_the_next_command_tests_the_same_contender(runs: list[RunSummary], command: str, words: str) -> None:
    engine = {"name": "vllm", "model": "m"}
    changed = [replace(run, command=tuple(command.split()), engine=engine) for run in of_label(runs, "slow")]
    following = " ".join(run_command(frame_of(changed), "slow", "concurrent"))
    assert following.startswith(f"enginebench run concurrent {words}")
    assert "b." not in following


def test_the_next_command_repeats_the_requests_of_its_scenario(runs: list[RunSummary]) -> None:
    words = ("enginebench", "run", "conversation", "--url=http://h:8000", "--turns=4", "--output-tokens", "1")
    facts: dict[str, Any] = {"scenario": "conversation", "command": words, "url": "http://h:8000"}
    slow = of_label(runs, "slow")
    changed = [replace(run, **facts, workload={**run.workload, "output_tokens": "1"}) for run in slow]
    command = run_command(frame_of(changed), "slow", "capacity", "--by", "agents")
    assert command[:7] == ("enginebench", "run", "conversation", "--url", "http://h:8000", "--by", "agents")
    assert command[-2:] == ("--turns=4", "--output-tokens=1")
    with_rows = [replace(run, command=("enginebench", "run", "rate", "--dataset", "a.jsonl")) for run in changed]
    command = run_command(frame_of([replace(run, scenario="rate") for run in with_rows]), "slow", "rate")
    assert command[-1] == "--dataset=a.jsonl", "the rows have their own lengths"


def test_runs_of_one_command_given_twice_are_two_repeats_and_findings_have_the_label_that_is_shown(
    runs: list[RunSummary],
) -> None:
    finding = Finding("load_generator_late", "warn", "12 ms late", "", None, "slow")
    twice = [replace(run, repeat=0, label="slow (after)", findings=(finding,)) for run in of_label(runs, "slow")]
    frame = frame_of(twice)
    assert [run.repeat for run in frame.runs] == [0, 1, 2]
    assert {finding.label for finding in frame.findings} == {"slow (after)"}


def test_the_report_has_the_quality_on_a_fixed_text(runs: list[RunSummary]) -> None:
    def quality(*logprobs: float) -> Quality:
        return Quality(("a", "b"), logprobs, ({"a": logprobs[0]}, {"b": logprobs[1]}))

    known = {"fast": quality(-0.5, -1.5), "slow": quality(-0.5, -1.0)}
    document = report_document(frame_of([replace(run, quality=known[run.label]) for run in runs]))
    (section,) = (section for section in document.sections if section.key == "answers")
    (table,) = (block for block in section.blocks if isinstance(block, Table) and block.key == "quality")
    shown = [[show(cell).line for cell in row] for row in table.rows]
    assert shown == [["fast", "2.72", "unchanged", "0"], ["slow", "2.12", "22 % lower", "0.500"]]


def test_a_kind_is_one_warning_with_its_most_severe_evidence(runs: list[RunSummary]) -> None:
    seen: list[tuple[int, Severity, str]] = [(2, "warn", "12 ms late"), (4, "warn", "9 ms late"), (8, "note", "6 ms")]
    late = [
        Finding("load_generator_late", severity, evidence, "add processes", StageKey(index, f"{load} users"), "fast")
        for index, (load, severity, evidence) in enumerate(seen)
    ]
    frame = frame_of([replace(run, findings=tuple(late)) for run in of_label(runs, "fast")])
    (warning,) = [warning for warning in warnings(frame) if warning.kind == "load_generator_late"]
    assert (warning.severity, warning.evidence, warning.stages) == ("warn", "9 ms late", ("4 users",))


@pytest.mark.parametrize(
    ("urls", "remote"),
    [
        (("http://127.0.0.1:8000",), False),
        (("http://localhost:1", "http://10.0.0.5:1"), False),
        (("https://10.0.0.5",), True),
        (("http://a.example", "http://[fd00::1]:80"), True),
    ],
)
def test_a_machine_is_the_servers_if_one_of_them_is_local(
    runs: list[RunSummary], urls: tuple[str, ...], remote: bool
) -> None:
    frame = frame_of([replace(run, url=url) for run, url in zip(of_label(runs, "fast"), urls, strict=False)])
    assert (frame.tested.remote, frame.tested.target) == (remote, urls[0] if len(urls) == 1 else None)


def test_candidates_that_were_judged_by_different_limits_are_not_ranked() -> None:
    runs = [run("a", [], objectives=SLO), run("b", [], objectives=SLO[:1])]
    with pytest.raises(
        UserMistake, match=r"the runs of a and b were made with different objectives \(.*\): give one --slo"
    ):
        frame_of(runs)


def test_a_class_without_a_request_is_not_measured() -> None:
    rare = ClassView("rare", 0, 0, {}, (Judgement.not_measured(SLO[0]),))
    frame = frame_of([run("a", [view(8, {THROUGHPUT: 100.0}, classes=(rare,))])])
    assert exit_code(frame, ()) == NOT_ENOUGH


@pytest.mark.parametrize(
    ("percentile", "requests", "shown"), [("p99", 99, False), ("p99", 100, True), ("p95", 19, False)]
)
def test_a_percentile_is_shown_if_a_request_is_beyond_it_or_the_slo_limits_it(
    percentile: str, requests: int, shown: bool
) -> None:
    column = Column(BY_NAME[TTFT], percentile)
    runs = [run("a", [view(8, {f"ttft {percentile}": Estimate(0.1, n=requests)})])]
    estimate = EngineRuns("a", tuple(runs)).shown("8 users", column)
    assert (estimate.value, estimate.missing) == ((0.1, None) if shown else (None, Missing.FEW_REQUESTS))
    limited = replace(runs[0], objectives=parse_objectives([f"ttft_{percentile}=1"]))
    column = Column(BY_NAME["ttft_user"], percentile)
    assert frame_of([limited]).engine("a").shown("8 users", column).value == 0.1


@pytest.mark.parametrize(
    ("outcomes", "answer"),
    [
        pytest.param({"http_error": 3, "cut_off": 1}, NoAnswer.ALL_FAILED, id="failed"),
        pytest.param({"cut_off": 4}, NoAnswer.NONE_ENDED, id="in flight when the run ended"),
        pytest.param({"unsent": 4}, NoAnswer.NONE_ENDED, id="never sent"),
    ],
)
def test_without_an_answered_request(outcomes: dict[str, int], answer: NoAnswer) -> None:
    assert answer_of(frame_of([run("a", [view(8, {}, outcomes=outcomes)])])) is answer


def test_results_of_another_tool_have_no_command_that_repeats_them(runs: list[RunSummary]) -> None:
    imported = [replace(run, command=("enginebench", "import", "a.json")) for run in runs]
    frame = frame_of(imported)
    assert next_step(frame) is None
    assert next_step_for_peak(frame, Replicas("fast", None, None, None, None), Users(80)) is None
