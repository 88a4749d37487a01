"""How long a run takes, as it is said before it starts."""

from pathlib import Path

import pytest

from loadtests.harness.run.duration import duration_of
from loadtests.harness.scenario import Scenario, rates, slo, tokens, users
from loadtests.harness.workload.datasets import QUESTIONS

TRACES = Path(__file__).parents[2] / "data/traces"


@pytest.mark.parametrize(
    ("scenario", "runs", "sentence"),
    [
        pytest.param(
            Scenario(stages=users("10-100:10"), stage_seconds=30), 1,
            "This takes at least 5 min: 10 stages, 10 users to 100 users, 30 s each.", id="stages of one length",
        ),
        pytest.param(
            Scenario(stages=users("10-100:10"), stage_seconds=30), 6,
            "This takes at least 30 min: 6 runs of 5 min: 10 stages, 10 users to 100 users, 30 s each.",
            id="several runs",
        ),
        pytest.param(
            Scenario(stages=users("16"), stage_seconds=4 * 3600), 1, "This takes at least 4 h: 4 h at 16 users.",
            id="hours",
        ),
        pytest.param(
            Scenario(stages=users("1,8"), stage_requests=100), 2,
            "2 runs of 2 stages, 1 user to 8 users, 100 requests each: the duration depends on the server.",
            id="numbers of requests",
        ),
        pytest.param(
            Scenario(rate=rates("2,4"), stage_seconds=60), 1,
            "This takes at least 2 min: 2 stages, 2 req/s to 4 req/s, 60 s each.", id="rates",
        ),
        pytest.param(
            Scenario(by="users", slo=slo("ttft_p95=1"), search_seconds=1800), 1,
            "This takes at most 30 min: a search for the highest number of users within --slo ttft_p95=1.",
            id="a search",
        ),
        pytest.param(
            Scenario(by="growth", slo=slo("ttft_p95=1"), search_seconds=60), 1,
            "This takes at most 60 s: users who double until --slo ttft_p95=1 is missed.", id="growth",
        ),
        pytest.param(
            Scenario(stages=users("16"), stage_seconds=30, dataset=str(TRACES / "burstgpt.csv")), 1,
            "This takes at least 30 s: 30 s at 16 users; 1 row without a prompt or an answer left out.",
            id="a dataset with a row that is not sent",
        ),
        pytest.param(
            Scenario(stages=users("16"), stage_seconds=30, dataset=str(QUESTIONS), output_tokens=tokens("9")), 1,
            "This takes at least 30 s: 30 s at 16 users.", id="a dataset that is sent whole",
        ),
    ],
)  # fmt: skip
def test_it_is_said_what_the_time_is_spent_on(scenario: Scenario, runs: int, sentence: str) -> None:
    assert duration_of(scenario).sentence(runs) == sentence
