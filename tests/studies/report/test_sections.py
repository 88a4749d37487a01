from __future__ import annotations

from dataclasses import replace

import pytest

from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.view import Estimate, Level
from enginebench.studies.report.contents import StudyReport, study_report
from enginebench.studies.report.deployment import COUNTED, memory, own_servers
from enginebench.studies.report.ladder import ladder
from enginebench.studies.report.lengths import lengths
from enginebench.studies.report.over_loads import efficiencies, scaling
from enginebench.studies.report.page import picture_of, screen_of
from tests.support.studies import BASELINE, QUICK, over_users, runs, source, stage, users_part, whole


@pytest.fixture(scope="module")
def made_up() -> StudyReport:
    return study_report(whole())


def test_the_answer_has_the_margin(made_up: StudyReport) -> None:
    """All hold 10 users, so tokens decide."""
    assert screen_of(made_up).answer == (
        "candle, transformers and pytorch-baseline hold 10 users within TTFT p95 ≤ 500 ms (100 miss it). At 10 users, "
        "candle serves 6.2× [5.9, 6.5] the tokens of transformers and 6.3× [6.2, 6.3] those of pytorch-baseline, over "
        "3 repeats."
    )


def test_another_part_has_its_answer_beside_it() -> None:
    """At 32 users candle meets what it meets at 10 and misses at 100."""
    other = users_part(
        over_users(BASELINE, {32: 200.0}, ttft=0.9), over_users("candle", {32: 1300.0}), part="sustained"
    )
    study = study_report(source(*whole().parts, replace(other, title="32 requests at once")))
    screen = screen_of(study)
    assert screen.answer.startswith("1 to 100 users: candle, transformers and pytorch-baseline hold 10 users within")
    (said,) = (sentence for heading, sentence in screen.sentences if heading == "32 requests at once")
    assert said.startswith("candle holds 32 users within TTFT p95 ≤ 500 ms (the most measured)")


def test_measured_stands_beside_expected(made_up: StudyReport) -> None:
    section = ladder(made_up)
    (table,) = section.tables
    row = dict(zip(["engine", "short", "expected", "tokens/s", *"abcd"], table.rows[1], strict=True))
    assert (row["engine"], row["short"], row["expected"]) == ("candle", "420 ms", "50.0 ms")
    assert list(row.values())[5:] == ["3.2× [3.2, 3.3]", "6× (5 to 8), below", "better"]
    (why,) = section.sentences
    assert "Llama 3.2 1B in Q8_0 on RTX 4090 or A100" in why
    assert "The model, number format and hardware differ" in why


def test_one_request_is_judged_where_it_was_repeated() -> None:
    (users,) = whole().parts
    once = users_part(
        runs(BASELINE, [stage(1, 40.0)], (0.0,), scenario="single"),
        runs("candle", [stage(1, 400.0)], (0.0,), scenario="single"),
        part="single",
    )
    for parts, speed_up in (((once,), "10×"), ((once, users), "3.2× [3.2, 3.3]")):
        (table,) = ladder(study_report(source(*parts))).tables
        assert next(row for row in table.rows if row[0] == "candle")[-3] == speed_up


def test_the_baseline_of_the_brief_is_the_baseline(made_up: StudyReport) -> None:
    assert ladder(made_up).tables[0].rows[0][:3] == (BASELINE, "420 ms", "300 ms")


def test_scaling_is_throughput_over_that_of_one_user(made_up: StudyReport) -> None:
    (measured,) = made_up.measured
    points = {engine.label: efficiencies(measured, engine) for engine in measured.engines}
    assert [estimate.value for _, _, estimate in points["candle"]] == pytest.approx([1, 1250 / 1300, 0.1])
    (table,) = scaling(made_up).tables
    assert table.rows[2] == ("candle", "10 users", "0.100", "10 users")


def test_who_counts_device_memory_is_said_where_there_is_some(made_up: StudyReport) -> None:
    assert COUNTED not in memory(made_up).tables[0].caption
    held = {"engine_device_memory_bytes": Level(2.0**31, 2.0**31)}
    stages = [replace(each, gauges={**each.gauges, **held}) for each in (stage(*at) for at in QUICK.items())]
    (table,) = memory(study_report(source(users_part(runs(BASELINE, stages))))).tables
    assert [row[1] for row in table.rows] == ["host", "device"]
    assert table.rows[1][2] == "2.00"
    assert table.caption.endswith(COUNTED)


def test_the_identical_server_is_compared_with_the_engines_own(report: StudyReport) -> None:
    """The own server is simulated to be 3 % faster."""
    section = own_servers(report)
    assert section.sentences[0].startswith("1 to 16 users: behind the identical server vllm served 0.9")
    (table,) = section.tables
    assert {row[1] for row in table.rows} == {"vllm"}
    assert len([row for row in table.rows if row[3] == "output tokens/s"]) == 3
    labels = {engine.label for each in report.measured for engine in each.engines}
    assert "vllm-own-server" not in labels  # it competes with no other engine


def one_token(label: str, factor: float) -> list[RunSummary]:
    """TTFT of 20 ms times `factor`, and a bit more for longer prompts; one new token."""
    stages = []
    for index, length in enumerate((10, 50, 400)):
        ttft = 0.02 * factor * (1 + length / 400)
        made = stage(1, 20 / factor, ttft)
        quantities = {**made.quantities, "output_tokens": Estimate(1.0)}
        label_of = f"{length} prompt tokens"
        stages.append(replace(made, index=index, label=label_of, named=True, quantities=quantities))
    return runs(label, stages, scenario="single")


def test_the_briefs_figures_stand_beside_their_engine() -> None:
    ladders = users_part(one_token("transformers", 1.0), one_token("cuda-graph", 0.5), part="ladder")
    study = study_report(source(ladders, baseline="transformers"))
    (table,) = lengths(study).tables
    named = dict(zip(table.headers, zip(*table.rows, strict=True), strict=True))
    assert named["TTFT in the brief"] == ("88.1 ms", "19.6 ms", "23.7 ms", "27.8 ms", "–", "–", "–", "–")
    assert named["TTFT mean"][:4] == ("20.5 ms", "22.5 ms", "40.0 ms", "27.7 ms")
    assert named["speed-up"] == ("1", "1", "1", "1", "2.0×", "2.0×", "2.0×", "2.0×")
    assert ladder(study).why.startswith("the brief expects nothing")
    picture = picture_of(study)
    assert picture is not None
    assert picture.title == "TTFT p50 against the prompt's length, in milliseconds"
    assert [figure.key for figure in lengths(study).figures] == ["ladder-smollm2-135m-tpot-lengths"], "none twice"


def test_ttft_by_prompt_length_has_an_average_and_a_speed_up(report: StudyReport) -> None:
    (table,) = lengths(report).tables
    rows = [row for row in table.rows if row[0] == "candle"]
    assert [row[1] for row in rows] == ["1000", "4000", "8000", "average"]
    assert rows[-1][-1].startswith("2.0× [")
    assert [row[-1] for row in table.rows if row[0] == BASELINE] == ["1", "1", "1", "1"]
