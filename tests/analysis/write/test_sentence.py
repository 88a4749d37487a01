"""Each kind of answer as a sentence, with everything that may be unknown or infinite in it."""

import math
import re
from dataclasses import replace

import pytest

from enginebench.analysis.answer import (
    Answer,
    BenchAnswer,
    BestAnswer,
    BurstAnswer,
    CalibrationAnswer,
    CapacityAnswer,
    Contender,
    GateAnswer,
    Lead,
    NoAnswer,
    RefereeAnswer,
    Replicas,
    ReplicasAnswer,
    SpeedAnswer,
)
from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.verdict.gate import Check
from enginebench.analysis.verdict.slo_verdict import SloVerdict
from enginebench.analysis.write.sentence import GROWN, NO_ANSWER, sentence
from enginebench.records.load import Rate, Users
from enginebench.records.metrics import BY_NAME, FAILURE_SHARE, QUANTITY_BY_NAME, TTFT, Column
from enginebench.records.view import Estimate, Missing
from tests.support.analysis.documents import LADDER, ONE_OBJECTIVE, UNKNOWN, capacity, verdict

MAX_WORDS = 30

both = capacity(LADDER, 8.0, 16.0)
certain = capacity(LADDER | {8.0: verdict(46, 46)}, 8.0, 16.0)
highest = capacity({100.0: verdict(3582, 3596)}, 100.0, None, ONE_OBJECTIVE)
lowest = capacity({1.0: verdict(3, 52, False)}, None, 1.0)
certified = replace(capacity({}, 24.0, 25.0), certified=True, confirmed=True)
CAPACITIES: list[tuple[Answer, str]] = [
    (
        CapacityAnswer(certain, (0.0803, 0.0271), (1.5, 0.0302), QUANTITY_BY_NAME["ttft_queue"]),
        "8 users meet the SLO (TTFT p95 80.3 ms, TPOT p95 27.1 ms, 46 of 46 requests, confirmed); 16 do not "
        "(TTFT p95 1.50 s). At 16 the server's queue dominates TTFT.",
    ),
    (
        CapacityAnswer(both, (0.0803, 0.0271), (math.inf, 0.0302), None),
        "8 users meet the SLO (TTFT p95 80.3 ms, TPOT p95 27.1 ms, 46 of 46 requests, not confirmed); "
        "16 do not (TTFT p95 failed).",
    ),
    (
        CapacityAnswer(highest, (0.311,), (), None),
        "100 users meet TTFT p95 ≤ 500 ms (311 ms, 3,582 of 3,596 requests, confirmed); higher loads were not tested.",
    ),
    (
        CapacityAnswer(lowest, (), (1.5, None), QUANTITY_BY_NAME["ttft_prefill"]),
        "1 user misses the SLO (TTFT p95 1.50 s, 3 of 52 requests, confirmed); lower loads were not tested.",
    ),
    (
        CapacityAnswer(capacity({8.0: verdict(9, 9), 16.0: UNKNOWN}, 8.0, None), (), (), None),
        "8 users meet the SLO (9 of 9 requests, confirmed); the outcome at 16 is unknown.",
    ),
    (
        CapacityAnswer(capacity({4.0: UNKNOWN, 8.0: verdict(1, 9, False)}, None, 8.0), (), (), None),
        "8 users miss the SLO (1 of 9 requests, confirmed); the outcome at 4 is unknown.",
    ),
    (
        CapacityAnswer(highest, (0.6,), (), None),  # of the answers that have the metric; the others count as met
        "100 users meet TTFT p95 ≤ 500 ms (3,582 of 3,596 requests, confirmed); higher loads were not tested.",
    ),
    (CapacityAnswer(certified, (None, None), (None, None), None), "24 users meet the SLO (confirmed); 25 do not."),
    (
        CapacityAnswer(capacity({1.0: UNKNOWN}, None, None), (), (), None),
        "It is unknown whether any load meets the SLO: too few outcomes were measured.",
    ),
    (
        CapacityAnswer(capacity({1.0: replace(UNKNOWN, missing=Missing.UNCOUNTED)}, None, None), (), (), None),
        "Whether any load meets the SLO cannot be judged: the tokens of the answers are unknown.",
    ),
]


def best(
    ours: SloVerdict | None = None,
    theirs: SloVerdict | None = None,
    ratio: Estimate = Estimate(2.06, 1.73, 2.45, 7),  # noqa: B008
    tokens: tuple[float | None, float | None] = (139.2, 67.0),
    significant: bool | None = True,
    repeats: int = 7,
) -> BestAnswer:
    names = ("vLLM", "llama.cpp")
    contenders = [
        Contender(name, None if slo is None else capacity({8.0: slo}, 8.0, None), Estimate(value), slo)
        for name, slo, value in zip(names, (ours, theirs), tokens, strict=True)
    ]
    return BestAnswer(contenders[0], contenders[1], "8 users", 8.0, "users", ratio, significant, repeats, 3)


met, missed, unsure = verdict(9, 9), verdict(0, 9, False), verdict(9, 9, confirmed=False)
b = capacity({24.0: met, 28.0: missed}, 24.0, 28.0, engine="b")
a = capacity({10.0: unsure, 12.0: missed}, 10.0, 12.0, engine="a")
none = capacity({8.0: missed}, None, 8.0, engine="a")
B, A = Contender("b", b, Estimate(408), met), Contender("a", a, Estimate(279), missed)
BY_CAPACITY = BestAnswer(B, A, "24 users", 24.0, "users", Estimate(1.46, 1.45, 1.47, 3), True, 3, 3)
TTFT_P50 = Column(BY_NAME[TTFT], "p50")
FIRST_TOKEN = replace(best(met, met, Estimate(0.724, 0.65, 0.81, 3), (0.833, 1.15)), speed=TTFT_P50)
LEAD = "At 8 users vLLM serves 139 tokens/s, 2.1× [1.7, 2.5] as many as llama.cpp, the next best"
AHEAD = "b meets the SLO at 24 users and a, the next best, at 10 (not confirmed); at 24 users"
BESTS: list[tuple[Answer, str]] = [
    (best(met, met), f"{LEAD}; both meet the SLO."),
    (best(), f"{LEAD}."),
    (
        best(ratio=Estimate(2.1), significant=None, repeats=1),
        "At 8 users vLLM serves 139 tokens/s, 2.1× as many as llama.cpp, the next best (one run each).",
    ),
    (
        best(ratio=Estimate(2.1, 1.2, 3.4), significant=None, repeats=2),
        "At 8 users vLLM serves 139 tokens/s, 2.1× [1.2, 3.4] as many as llama.cpp, the next best "
        "(2 runs each, not tested).",
    ),
    (
        best(missed, missed, significant=False),
        "At 8 users vLLM and llama.cpp serve 139 tokens/s and 67.0 tokens/s: no significant difference; "
        "neither meets the SLO.",
    ),
    (best(missed, met), f"{LEAD}; llama.cpp meets the SLO, vLLM does not."),
    (best(unsure, met), f"{LEAD}; both meet the SLO (not confirmed)."),
    (
        replace(best(unsure, missed), next=Contender("llama.cpp", none, Estimate(67.0), missed)),  # a single load
        f"{LEAD}; vLLM meets the SLO (not confirmed), llama.cpp does not.",
    ),
    (best(met, UNKNOWN), f"{LEAD}."),
    (
        best(ratio=Estimate(math.inf), tokens=(139.2, 0.0)),
        "At 8 users vLLM serves 139 tokens/s, llama.cpp, the next best, 0 tokens/s.",
    ),
    (
        best(ratio=Estimate(None), tokens=(None, None), significant=None, repeats=1),
        "At 8 users no output tokens were measured for vLLM.",
    ),
    (
        replace(FIRST_TOKEN, best=replace(FIRST_TOKEN.best, slo=None)),
        "At 8 users TTFT p50 of vLLM is 833 ms, 28 % [19, 35] lower than that of llama.cpp, the next best.",
    ),
    (
        replace(FIRST_TOKEN, significant=False),
        "At 8 users TTFT p50 of vLLM and llama.cpp is 833 ms and 1.15 s: no significant difference; both meet the SLO.",
    ),
    (
        replace(FIRST_TOKEN, ratio=Estimate(None), significant=None, repeats=1),
        "At 8 users TTFT p50 of vLLM is 833 ms, of llama.cpp, the next best, 1.15 s; both meet the SLO.",
    ),
    (
        replace(BY_CAPACITY, speed=TTFT_P50, ratio=Estimate(0.724, 0.65, 0.81, 3)),
        f"{AHEAD} TTFT p50 of b is 28 % [19, 35] lower.",
    ),
    (
        replace(BY_CAPACITY, speed=TTFT_P50, significant=False),
        f"{AHEAD} their TTFT p50 has no significant difference.",
    ),
    (BY_CAPACITY, f"{AHEAD} b serves 1.46× [1.45, 1.47] the tokens/s of a."),
    (
        replace(BY_CAPACITY, next=replace(A, capacity=none), significant=False),
        "b meets the SLO at 24 users; a, the next best, misses it at 8 users; "
        "at 24 users their tokens/s have no significant difference.",
    ),
    (
        replace(
            BY_CAPACITY,
            best=Contender("b", capacity({24.0: unsure}, 24.0, None), Estimate(1), met),
            ratio=Estimate(None),
        ),
        "b meets the SLO at 24 users (the highest tested, not confirmed) and a, the next best, at 10 (not confirmed).",
    ),
    (
        replace(BY_CAPACITY, tied=("c",)),
        "b meets the SLO at 24 users and a and c at 10; "
        "at 24 users b serves 1.46× [1.45, 1.47] the tokens/s of a, the next best.",
    ),
]

SPEEDS: list[tuple[Answer, str]] = [
    (
        SpeedAnswer("fake", "1 user", TTFT_P50, Estimate(0.048), Estimate(60.4), "16 users", Estimate(279)),
        "At 1 user TTFT p50 is 48.0 ms and each user gets 60.4 tokens/s; fake serves 279 tokens/s in all at 16 users.",
    ),
    (
        SpeedAnswer("fake", "1 user", TTFT_P50, Estimate(0.048), Estimate(None), "1 user", Estimate(60)),
        "At 1 user TTFT p50 is 48.0 ms; fake serves 60.0 tokens/s in all.",
    ),
    (
        SpeedAnswer("fake", "1 user", TTFT_P50, Estimate(math.inf), Estimate(None), "1 user", Estimate(None)),
        "At 1 user at least half of the requests fail.",
    ),
    (
        SpeedAnswer("fake", "1 user", TTFT_P50, Estimate(None), Estimate(None), "1 user", Estimate(None)),
        "At 1 user the first token was not measured.",
    ),
]

few, many = Replicas("b", b, 5, None, 6570.0), Replicas("a", a, 12, 12, 15768.0)
REPLICAS: list[tuple[Answer, str]] = [
    (
        ReplicasAnswer(Users(120), (few, replace(many, capacity=b))),
        "Plan 5 replicas of b for 120 users, $6,570 a month; a needs 12, $15,768.",
    ),
    (
        ReplicasAnswer(Users(120), (few, many)),
        "Plan 5 replicas of b for 120 users, $6,570 a month; a needs 12, $15,768, which is not confirmed.",
    ),
    (
        ReplicasAnswer(Users(100), (many, replace(many, name="c"), replace(many, name="d"), replace(few, count=40))),
        "Plan 12 replicas of a, c or d for 100 users, $15,768 a month (not confirmed).",
    ),
    (ReplicasAnswer(Users(80), (Replicas("b", b, 4, None, 5800.0),)), "Plan 4 replicas for 80 users, $5,800 a month."),
    (ReplicasAnswer(Rate(2.5), (Replicas("b", b, 1, None, None),)), "Plan 1 replica for 2.5 req/s."),
    (
        ReplicasAnswer(
            Users(120),
            (few, Replicas("c", none, None, None, None, NotPlanned.MISSED), Replicas("d", None, None, None, None)),
        ),
        "Plan 5 replicas of b for 120 users, $6,570 a month; c cannot be planned: every measured load misses the SLO; "
        "d cannot be planned: the capacity was not measured.",
    ),
    (
        ReplicasAnswer(
            Users(120),
            (Replicas("c", none, None, None, None, NotPlanned.MISSED), Replicas("d", None, None, None, None)),
        ),
        "No number of replicas for 120 users is known: every measured load misses the SLO (c); the capacity was not "
        "measured (d).",
    ),
    (
        ReplicasAnswer(Users(120), (Replicas("c", None, None, None, None),)),
        "No number of replicas for 120 users is known: the capacity was not measured.",
    ),
]

BURSTS: list[tuple[Answer, str]] = [
    (
        BurstAnswer("mock", "", False, 30.1, 91.2, True, 0),
        "The SLO is missed in the burst (the first token takes up to 30.1 s) and for 91 s after it (one run).",
    ),
    (
        BurstAnswer("mock", "", False, 13.4, 19.2, True, 0, total=3, unabsorbed=2),
        "The SLO is missed in 2 of the 3 bursts (the first token takes up to 13.4 s) "
        "and for up to 19 s after each (one run).",
    ),
    (
        BurstAnswer("mock", "", False, 13.4, 19.2, True, 0, total=2, unabsorbed=2),
        "The SLO is missed in both bursts (the first token takes up to 13.4 s) "
        "and for up to 19 s after each (one run).",
    ),
    (
        BurstAnswer("mock", "", False, 0.9, 0.0, True, 0),
        "The SLO is missed in the burst (the first token takes up to 900 ms) and not afterwards (one run).",
    ),
    (
        BurstAnswer("mock", "", True, 0.54, 0.0, True, 0),
        "The SLO is met in the burst: the first token takes up to 540 ms (one run).",
    ),
    (
        BurstAnswer("mock", "kill -9 1", False, 3.0, None, True, 40, 0.34),
        "The SLO is missed in the outage (the first token takes up to 3.00 s and 40 requests fail) "
        "and not met again (34 % within limits afterwards; one run).",
    ),
    (
        BurstAnswer("mock", "", False, 2.0, 312.4, False, 0),
        "Latency rises in the burst (the first token takes up to 2.00 s) and for 312 s after it (one run).",
    ),
    (
        BurstAnswer("mock", "", False, None, None, False, 0),
        "Latency rises in the burst (the first token was not measured) and does not return to what it was (one run).",
    ),
]

ttft = Check("", "8 users", Column(BY_NAME[TTFT], "p95"), Estimate(0.1), Estimate(0.121), Estimate(1.21, 1.15, 1.28, 5))
failed = Column(QUANTITY_BY_NAME[FAILURE_SHARE], "value")
failures = Check("fake", "8 users", failed, Estimate(0.0), Estimate(0.021), Estimate(0.021, 0.012, 0.03))
GATES: list[tuple[Answer, str]] = [
    (
        GateAnswer(False, 0.1, (failures, ttft, ttft), 12, 0),
        "FAILED: failed share of fake at 8 users is 2.1 points [1.2, 3.0] higher than the baseline (limit 10 %); "
        "2 more comparisons failed. 9 other comparisons passed.",
    ),
    (
        GateAnswer(False, 0.1, (replace(ttft, change=Estimate(math.inf)),), 2, 0),
        "FAILED: TTFT p95 at 8 users falls among failed requests (limit 10 %). 1 other comparison passed.",
    ),
    (
        GateAnswer(True, 0.1, (), 12, 2),
        "PASSED: no regression of more than 10 % in 12 comparisons; 2 unclear.",
    ),
]

decode = Lead("b", Estimate(21.1), "a", Estimate(1.92, 1.5, 2.4), True)
prefill = Lead("a", Estimate(283.0), "b", Estimate(4.47, 3.9, 5.1), True)
bench = BenchAnswer(decode, prefill, 128)
referee = RefereeAnswer("tool", 0, "TTFT p99", 0.2, 0.2123, 788, 789)
OTHERS: list[tuple[Answer, str]] = [
    (
        bench,
        "b decodes 21.1 tokens/s (1.9× [1.5, 2.4] a); a prefills prompts of 128 tokens at 283 tokens/s "
        "(4.5× [3.9, 5.1] b).",
    ),
    (
        replace(bench, decode=replace(decode, significant=False), prefill=replace(prefill, best="b", next="a")),
        "b decodes 21.1 tokens/s (not significantly faster than a) and prefills prompts of 128 tokens at 283 tokens/s "
        "(4.5× [3.9, 5.1] a).",
    ),
    (
        BenchAnswer(replace(decode, ratio=Estimate(1.9), significant=None), None, 0),
        "b decodes 21.1 tokens/s (1.9× a, not tested).",
    ),
    (BenchAnswer(Lead("b", Estimate(21.1)), None, 0), "b decodes 21.1 tokens/s."),
    (BenchAnswer(Lead("b", Estimate(None)), None, 0), "b decodes an unknown number of tokens/s."),
    (
        CalibrationAnswer(0.00038, 1200.0),
        "Up to 1,200 chunks/s the load generator's own error is at most 0.38 ms at p99.",
    ),
    (referee, "tool reports TTFT p99 12.3 ms too high (true: 200 ms) and counts 788 of 789 answered requests."),
    (
        replace(referee, reported=0.15, counted=1, answered=1),
        "tool reports TTFT p99 50.0 ms too low (true: 200 ms) and counts 1 of 1 answered request.",
    ),
    (
        replace(referee, exit_code=3, reported=None),
        "tool (exit code 3) reports no TTFT p99 and counts 788 of 789 answered requests.",
    ),
    (
        replace(referee, exit_code=3, reported=None, counted=None),
        "tool (exit code 3) left no results with answered requests: compare what it printed with the true TTFT p99 of "
        "200 ms.",
    ),
    (NoAnswer.ALL_FAILED, "Every request failed."),
    (NoAnswer.NONE_ENDED, "No request ended while it was measured."),
]


@pytest.mark.parametrize(("answer", "text"), [*CAPACITIES, *BESTS, *SPEEDS, *REPLICAS, *BURSTS, *GATES, *OTHERS])
def test_sentences(answer: Answer, text: str) -> None:
    assert sentence(answer) == text
    words = re.sub(r"(?<=\d) (?:ms|s|%)|\[[^]]*\]", "", text).split()
    assert len(words) <= MAX_WORDS


def test_every_enum_has_its_words() -> None:
    assert set(GROWN) <= set(QUANTITY_BY_NAME)
    assert set(NO_ANSWER) == set(NoAnswer)
