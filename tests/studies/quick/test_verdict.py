"""The sentences of a minute's verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.slo import Objective
from enginebench.records.view import Estimate, Judgement, Level, StageView
from enginebench.studies.quick.verdict import verdict_of
from tests.support.analysis.compared import judged, judged_view, run

SLO = Objective("ttft", 0.95, 0.5)
FAILURES = Objective("failures", 0.99)
WITHIN = "first token within 500 ms (p95)"


def stage(users: float, share: float, p95: float, effective: float = 1000, throughput: float = 500.0) -> StageView:
    numbers = {"ttft_p50": 0.043, "ttft_p95": p95, "user_throughput": 203.0, "throughput": throughput}
    return judged_view(users, SLO, share, effective, **numbers)


def verdict(*stages: StageView, peak: int = 80, objective: Objective = SLO) -> tuple[list[str], bool]:
    found = verdict_of(summary(*stages, objective=objective), peak)
    return list(found.sentences), found.decided


def summary(*stages: StageView, objective: Objective = SLO) -> RunSummary:
    return run("a", stages, objectives=(objective,))


ONE, HELD, MISSED = stage(1, 1.0, 0.045), stage(16, 0.99, 0.3), stage(20, 0.4, 1.9)


def test_a_bracket_between_two_measured_loads() -> None:
    sentences, decided = verdict(ONE, HELD, MISSED)
    assert decided
    assert sentences[0] == "One user: first token after about 43.0 ms, then about 203 tokens/s."
    assert sentences[1] == f"16 users get their {WITHIN}, 20 no longer (about 1.90 s)."
    assert "80 users: about 5 replicas." in sentences
    assert not any("ot decided" in sentence for sentence in sentences)


def test_of_several_objectives_the_one_that_is_missed_is_named() -> None:
    objectives = (SLO, Objective("tpot", 0.95, 0.1))
    stages = [
        replace(each, judgements=tuple(judged(objective, share, 1000) for objective in objectives))
        for each, share in ((ONE, 1.0), (HELD, 0.99))
    ]
    late = replace(MISSED, judgements=(judged(SLO, 0.4, 1000), judged(objectives[1], 1.0, 1000)))
    found = verdict_of(run("a", (*stages, late), objectives=objectives), 80)
    assert found.sentences[1].endswith("20 no longer (TTFT p95 about 1.90 s).")


def test_what_the_intervals_leave_open_is_said_to_be_probable_and_undecided() -> None:
    sentences, decided = verdict(ONE, stage(16, 0.96, 0.48, effective=60), MISSED)
    assert not decided
    assert sentences[1] == f"Probably 16 users get their {WITHIN}, 20 no longer (about 1.90 s)."
    assert sentences[2].startswith("Not decided: 16 users (96.0 % [87.")
    assert sentences[2].endswith("; the next command decides.")
    assert "95 % needed" in sentences[2]


def test_a_load_between_that_seems_to_miss_is_the_upper_end() -> None:
    sentences, decided = verdict(ONE, HELD, stage(18, 0.94, 0.52, effective=60), MISSED)
    assert not decided
    assert sentences[1] == f"Probably 16 users get their {WITHIN}, 18 no longer (about 520 ms)."
    assert sentences[2].startswith("Not decided: 18 users (")


def test_an_unlucky_brief_stage_below_a_load_that_is_held_says_nothing() -> None:
    sentences, decided = verdict(ONE, stage(4, 0.9, 0.6, effective=12), HELD, MISSED)
    assert decided
    assert sentences[1].startswith("16 users get")


def test_a_load_at_which_the_server_hung_is_not_decided() -> None:
    hung = replace(MISSED, judgements=(Judgement.without(SLO),), outcomes={})
    sentences, decided = verdict(ONE, HELD, hung)
    assert not decided
    assert "Not decided: 20 users (no request in the window); the next command decides." in sentences


def test_never_missed() -> None:
    sentences, decided = verdict(ONE, stage(100, 1.0, 0.06))
    assert not decided
    assert sentences[1] == f"At least 100 users (the most that were tried) get their {WITHIN}."
    assert "80 users: 1 replica." in sentences


def test_where_nothing_could_be_judged_that_is_said() -> None:
    sentences, decided = verdict(replace(ONE, judgements=()))
    assert not decided
    assert "How many users it holds is not known: no load could be judged; the next command decides." in sentences


def test_missed_by_the_first_user() -> None:
    sentences, _ = verdict(stage(1, 0.1, 1.2))
    assert sentences[1] == f"Not even 1 user gets the {WITHIN} (about 1.20 s)."
    assert not any("replica" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("loads", "peak", "text"),
    [
        pytest.param(
            (16, 20), 80, "80 users: about 5 replicas.", id="four would have 20 users each, which is too many"
        ),
        pytest.param((16, 32), 80, "80 users: about 3 to 5 replicas.", id="of 27 users each nothing is known"),
        pytest.param((16, 24), 80, "80 users: about 4 or 5 replicas.", id="of 20 users neither"),
        pytest.param((16, 20), 16, "16 users: about 1 replica.", id="what one holds"),
        pytest.param((16, 20), 17, "17 users: about 1 or 2 replicas.", id="between the two loads"),
    ],
)
def test_replicas_have_no_more_users_than_were_held_and_fewer_than_were_missed(
    loads: tuple[int, int], peak: int, text: str
) -> None:
    sentences, _ = verdict(ONE, stage(loads[0], 0.99, 0.3), stage(loads[1], 0.4, 1.9), peak=peak)
    assert text in sentences


def test_what_grows_between_the_two_loads_is_named() -> None:
    def parts(view: StageView, queue: float) -> StageView:
        names = ("ttft_client", "ttft_queue", "ttft_prefill", "ttft_delivery")
        means = zip(names, (0.0, queue, 0.04, 0.001), strict=True)
        return replace(view, quantities={**view.quantities, **{name: Estimate(mean) for name, mean in means}})

    sentences, _ = verdict(ONE, parts(HELD, 0.01), parts(MISSED, 1.5))
    assert sentences[1].endswith("(about 1.90 s): above 16, most of the added time is waiting for admission.")


def test_a_queue_that_only_the_servers_own_metrics_show_is_named() -> None:
    def queue(view: StageView, waiting: float) -> StageView:
        return replace(view, gauges={"requests_waiting": Level(waiting, waiting)})

    sentences, _ = verdict(ONE, queue(HELD, 0.2), queue(MISSED, 4.1))
    assert sentences[1].endswith(": above 16, requests wait at the server (about 4 at a time).")


def test_rejections_are_named() -> None:
    rejected = replace(MISSED, outcomes={"ok": 700, "rejected": 290, "timeout": 10})
    rejected = replace(rejected, quantities={**rejected.quantities, "failure_share": Estimate(0.3)})
    sentences, _ = verdict(ONE, HELD, rejected)
    assert sentences[1].endswith(": above 16, requests fail, most of them as rejected.")


def test_failures_as_an_objective() -> None:
    def failing(users: float, share: float) -> StageView:
        view = judged_view(users, FAILURES, 1 - share, 1000, ttft_p50=0.04)
        outcomes = {"ok": 900, "server_error": 100} if share else {"ok": 1000}
        return replace(
            view, outcomes=outcomes, quantities={"failure_share": Estimate(share, share - 0.02, share + 0.02)}
        )

    sentences, _ = verdict(failing(1, 0.0), failing(4, 0.1), objective=FAILURES)
    assert sentences[1] == (
        "1 user sees at most 1 % of the requests fail, 4 no longer (10.0 % [8.00, 12.0]): above 1, requests fail, most "
        "of them as server error."
    )


def test_where_the_throughput_saturates() -> None:
    rising = [stage(users, 1.0, 0.1, throughput=rate) for users, rate in ((1, 200), (2, 400), (4, 790), (8, 800))]
    sentences, _ = verdict(*rising)
    assert "Throughput no longer grows above 4 users (about 790 tokens/s)." in sentences
    assert not any("Throughput" in sentence for sentence in verdict(*rising[:3])[0])


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.0432, 0.0412, 0.0449, 100), "after 43.2 ms [41.2, 44.9]"),
        (Estimate(0.0432, n=12, why="12 < 28"), "after about 43.2 ms"),
    ],
)
def test_every_number_has_its_interval_or_is_marked_as_rough(estimate: Estimate, text: str) -> None:
    ttft = replace(ONE.metrics["ttft_user"], percentiles={**ONE.metrics["ttft_user"].percentiles, "p50": estimate})
    assert text in verdict(replace(ONE, metrics={**ONE.metrics, "ttft_user": ttft}))[0][0]


def test_the_clients_own_error_is_that_of_its_calibration() -> None:
    calibrated = replace(ONE, quantities={**ONE.quantities, "client_error": Estimate(0.00005)})
    assert verdict(calibrated)[0][-1] == "This client's own error: 0.050 ms."
    assert "calibrate --quick measures it" in verdict(ONE)[0][-1]
