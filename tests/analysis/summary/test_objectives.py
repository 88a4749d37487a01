"""Objectives: their three answers, attainment and goodput."""

import math
import random
from collections.abc import Collection
from pathlib import Path

import pytest

from enginebench.records.stage import SECOND
from enginebench.records.view import Missing
from tests.support.analysis.one_stage import MS, stage_of
from tests.support.analysis.synthetic import FAILED, NOTHING_CAME, record


def test_goodput_and_attainment_count_failures_as_bad(tmp_path: Path) -> None:
    """TTFT (user) of 100 ms 80 times, of 300 ms 18 times, two failures: 80 of a hundred are good."""
    records = []
    for k, place in enumerate(random.Random(1).sample(range(100), 100)):
        t = 3 * SECOND + place * 10 * MS
        slow = {"t_send": t + 200 * MS, "t_first": t + 300 * MS, "t_last": t + SECOND}
        records.append(record(k, t, **(slow if k < 18 else FAILED if k < 20 else {})))
    slo = ["ttft_p50=0.2", "ttft_p80=0.2", "tpot_p99=1", "ttft_p95=0.2"]
    stage = stage_of(tmp_path, records, slo=slo)
    assert stage.value("attainment") == pytest.approx(0.8)
    assert stage.value("goodput") == pytest.approx(80 / 7)
    answers = [judgement.answer for judgement in stage.judgements]
    assert answers == ["met", "not confirmed", "not confirmed", "missed"]
    assert [judgement.share.value for judgement in stage.judgements] == pytest.approx([0.8, 0.8, 0.98, 0.8])


@pytest.mark.parametrize(
    ("within", "answer"),
    [
        pytest.param(range(0), "missed", id="none was within the limit"),
        pytest.param([50], "missed", id="one was"),
        pytest.param([20, 50, 80], "missed", id="three were: so rare a share has no interval of its own"),
        pytest.param(range(0, 96, 2), "missed", id="half of them were"),
        pytest.param(range(4, 96), "not confirmed", id="all but four were"),
    ],
)
def test_what_is_decided_by_far_is_decided_in_a_short_stage_too(
    tmp_path: Path, within: Collection[int], answer: str
) -> None:
    """96 requests in a queue that grows and shrinks, and so worth some ten: no interval of a tail is believed."""
    rng, records = random.Random(2), []
    for k in range(96):
        t = 2 * SECOND + k * 70 * MS
        slow = 1200 + 500 * math.sin(k / 15) + rng.uniform(0, 50)
        ttft = round(slow / 10 if k in within else slow) * MS
        records.append(record(k, t, t_first=t + ttft, t_last=t + ttft + SECOND))
    (judgement,) = stage_of(tmp_path, records, slo=["ttft_p95=0.3"]).judgements
    assert judgement.answer == answer
    assert judgement.share.value == pytest.approx(len(within) / 96)


def test_what_missed_one_objective_missed_them_all_whatever_is_unknown_of_the_others(tmp_path: Path) -> None:
    """Ten slow requests, cut off after a first token that came too late; E2E was not known to be too long by then."""
    records = [record(k, 3 * SECOND + k) for k in range(30)]
    for k in range(10):
        first, end = 4 * SECOND + 500 * MS, 4 * SECOND + 600 * MS
        stamps = {"t_first": first, "t_first_out": first, "read_first": first, "t_last": first, "t_end": end}
        records.append(record(30 + k, 4 * SECOND + k, outcome="cut_off", icl=(), chunks=1, **stamps))
    stage = stage_of(tmp_path, records, slo=["ttft_p90=0.2", "e2e_p90=1"])
    assert stage.estimate("attainment").n == 40
    assert stage.value("attainment") == pytest.approx(30 / 40)
    assert [judgement.share.n for judgement in stage.judgements] == [40, 30]


def test_without_objectives_there_is_no_attainment(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, [record(0, 3 * SECOND)])
    assert stage.judgements == ()
    assert not {"attainment", "goodput"} & set(stage.quantities)


UNCOUNTED = {"output_tokens": None, "token_source": None}


def test_unknown_token_counts_are_no_reason_to_miss_an_objective_of_tpot(tmp_path: Path) -> None:
    """It cannot be judged, and is neither missed nor met by everyone."""
    records = [record(k, 3 * SECOND + k, **UNCOUNTED) for k in range(30)]
    stage = stage_of(tmp_path, records, slo=["tpot_p90=0.1", "ntpot_p90=0.1", "ttft_p50=1"], model="unheard-of")
    assert [(judgement.answer, judgement.unknown, judgement.share.missing) for judgement in stage.judgements] == [
        ("not confirmed", 30, Missing.UNCOUNTED),
        ("not confirmed", 30, Missing.UNCOUNTED),
        ("met", 0, None),
    ]
    assert not {"attainment", "goodput"} & set(stage.quantities)


@pytest.mark.parametrize(
    ("uncounted", "answer", "missing"),
    [
        pytest.param(2, "met", None, id="too few to change it"),
        pytest.param(60, "not confirmed", Missing.UNCOUNTED, id="enough"),
    ],
)
def test_some_unknown_token_counts_matter_if_they_could_change_the_answer(
    tmp_path: Path, uncounted: int, answer: str, missing: Missing | None
) -> None:
    places = random.Random(1).sample(range(100), 100)
    records = [
        record(k, 3 * SECOND + t * 10 * MS, **(UNCOUNTED if k < uncounted else {})) for k, t in enumerate(places)
    ]
    (judgement,) = stage_of(tmp_path, records, slo=["tpot_p50=0.1"], model="unheard-of").judgements
    assert (judgement.answer, judgement.unknown, judgement.share.n) == (answer, uncounted, 100 - uncounted)
    assert judgement.share.missing is missing


def test_an_objective_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    whole = record(0, 3 * SECOND, streamed=False, t_first=None, t_first_out=None, icl=(), chunks=0)
    with pytest.raises(ValueError, match="no request has a ttft"):
        stage_of(tmp_path, [whole], slo=["ttft_p99=1"])


def test_a_window_without_requests_is_not_enough_evidence(tmp_path: Path) -> None:
    """The server hung after the first answer: nothing was due from 2 s to 9 s."""
    stage = stage_of(
        tmp_path, [record(0, SECOND // 2), record(1, 19 * SECOND // 2)], slo=["ttft_p95=1", "failures=0.1"]
    )
    answers = [(judgement.answer, judgement.share.value, judgement.share.missing) for judgement in stage.judgements]
    assert answers == [("not confirmed", None, Missing.NOT_OBSERVED)] * 2


def test_of_requests_that_were_cut_off_it_is_kept_how_many_are_unknown(tmp_path: Path) -> None:
    records = [record(k, 3 * SECOND + k * MS) for k in range(40)]
    records += [
        record(40 + k, 4 * SECOND + k, outcome="cut_off", **NOTHING_CAME | {"t_end": 4 * SECOND + MS})
        for k in range(40)
    ]
    (judgement,) = stage_of(tmp_path, records, slo=["ttft_p50=0.2"]).judgements
    assert (judgement.unknown, judgement.share.n, judgement.share.value) == (40, 40, 1.0)
    assert (judgement.answer, judgement.share.missing) == ("not confirmed", Missing.CUT_OFF)
