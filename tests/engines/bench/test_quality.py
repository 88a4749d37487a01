"""Quality on a fixed text through the server. That of each engine without HTTP: tests/engines/contract."""

from math import exp, fsum

import pytest

from enginebench.records.quality import NO_WEIGHTS
from loadtests.harness.client.authentication import Access
from loadtests.harness.run.target import Target
from tests.support.engines.small_model import small_model
from tests.support.engines.ten_questions import assert_text_of_transformers, recorded_text
from tests.support.servers.served import served


def test_the_server_gives_log_probabilities_as_vllm_does() -> None:
    model = str(small_model().folder)
    with served("dtype=float32", engine="transformers", arguments=("--model", model)) as server:
        answer = server.ask(1, "/v1/completions", prompt="The cat sat", echo=True, logprobs=2, temperature=0).json()
        with Target(server.url, Access()) as target:
            quality = target.quality(server.client.get("/v1/models").json()["data"][0]["id"], "float32")
    (choice,) = answer["choices"]
    assert choice["text"].startswith("The cat sat")
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert answer["usage"]["completion_tokens"] == 1
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"] + 1
    assert_text_of_transformers(quality)
    assert len(recorded_text()) > 100
    truth = exp(-fsum(log for log, _ in recorded_text()) / len(recorded_text()))
    assert quality.perplexity == pytest.approx(truth, rel=1e-4)


def test_an_engine_that_cannot_says_so() -> None:
    with served() as server, Target(server.url, Access()) as target:
        found = target.quality("fake", "none")
        random = target.quality("random:llama-3.2-1b", "float32")
    assert found.why == "fake gives no log-probabilities of given tokens: leave out `echo`"
    assert random.why == NO_WEIGHTS
