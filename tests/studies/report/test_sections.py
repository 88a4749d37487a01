from __future__ import annotations

import pytest

from studies.report.contents import StudyReport, study_report
from studies.report.deployment import own_servers
from studies.report.ladder import ladder
from studies.report.lengths import lengths
from studies.report.over_loads import efficiencies, scaling
from studies.report.page import screen_of
from tests.support.studies import BASELINE, whole


@pytest.fixture(scope="module")
def made_up() -> StudyReport:
    return study_report(whole())


def test_the_answer_has_the_margin(made_up: StudyReport) -> None:
    """All hold 10 users, so tokens decide."""
    assert screen_of(made_up).answer == (
        "candle holds 10 users within TTFT p95 ≤ 500 ms; transformers as many (candle serves 6.2× [5.9, 6.5] its "
        "tokens at 10 users) and pytorch-baseline as many (candle serves 6.3× [6.2, 6.3] its tokens at 10 users), "
        "over 3 repeats."
    )


def test_measured_stands_beside_expected(made_up: StudyReport) -> None:
    section = ladder(made_up)
    (table,) = section.tables
    row = dict(zip(["engine", "short", "expected", "tokens/s", *"abcd"], table.rows[1], strict=True))
    assert (row["engine"], row["short"], row["expected"]) == ("candle", "420 ms", "50.0 ms")
    assert list(row.values())[5:] == ["3.2× [3.2, 3.3]", "6× (5 to 8), below", "better"]
    (why,) = section.sentences
    assert "Llama 3.2 1B in Q8_0 on RTX 4090 or A100" in why
    assert "The model, number format and hardware differ" in why


def test_the_baseline_of_the_brief_is_the_baseline(made_up: StudyReport) -> None:
    assert ladder(made_up).tables[0].rows[0][:3] == (BASELINE, "420 ms", "300 ms")


def test_scaling_is_throughput_over_that_of_one_user(made_up: StudyReport) -> None:
    (measured,) = made_up.measured
    points = {engine.label: efficiencies(measured, engine) for engine in measured.engines}
    assert [estimate.value for _, _, estimate in points["candle"]] == pytest.approx([1, 1250 / 1300, 0.1])
    (table,) = scaling(made_up).tables
    assert table.rows[2] == ("candle", "10 users", "0.100", "10 users")


def test_the_identical_server_is_compared_with_the_engines_own(report: StudyReport) -> None:
    """The own server is simulated to be 3 % faster."""
    section = own_servers(report)
    assert section.sentences[0].startswith("1 to 16 users: behind the identical server vllm served 0.9")
    (table,) = section.tables
    assert {row[1] for row in table.rows} == {"vllm"}
    assert len([row for row in table.rows if row[3] == "output tokens/s"]) == 3
    labels = {engine.label for each in report.measured for engine in each.engines}
    assert "vllm-own-server" not in labels  # it competes with no other engine


def test_ttft_by_prompt_length_has_an_average_and_a_speed_up(report: StudyReport) -> None:
    (table,) = lengths(report).tables
    rows = [row for row in table.rows if row[0] == "candle"]
    assert [row[1] for row in rows] == ["1000", "4000", "8000", "average"]
    assert rows[-1][-1].startswith("2.0× [")
    assert [row[-1] for row in table.rows if row[0] == BASELINE] == ["1", "1", "1", "1"]
