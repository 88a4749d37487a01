"""Quality on a fixed text, of real engines, without HTTP and through the server."""

import asyncio
from dataclasses import replace
from math import exp

import pytest

from enginebench.records.quality import NO_WEIGHTS, TEXT, Quality, against
from engines.bench.quality import measure_quality
from engines.process.engine_loading import load_engine
from engines.text.detokenize import tokenizer_of
from loadtests.harness.client.authentication import Access
from loadtests.harness.run.target import Target
from tests.support.engines.reference import Reference
from tests.support.engines.small_model import small_model
from tests.support.servers.served import served


def asked(name: str, **options: str) -> Quality:
    model = replace(small_model(), random_weights=False)

    async def ask() -> Quality:
        engine = load_engine(name, model, {"dtype": "float32"} | options)
        info = await engine.start()
        try:
            return await measure_quality(engine, info, model)
        finally:
            await engine.stop()

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def direct() -> Quality:
    return asked("transformers", attention="eager")


def test_log_probabilities_are_those_of_the_whole_text_read_at_once(direct: Quality) -> None:
    import torch

    model = small_model()
    ids = tokenizer_of(model.folder).encode(TEXT).ids
    logprobs = torch.log_softmax(Reference.of(model.folder).logits(ids)[:-1].double(), -1)
    truth = logprobs[range(len(ids) - 1), ids[1:]].tolist()
    assert len(direct.logprobs) == len(truth) > 100
    assert max(abs(one - other) for one, other in zip(direct.logprobs, truth, strict=True)) < 1e-4
    assert direct.perplexity == pytest.approx(exp(-sum(truth) / len(truth)), rel=1e-4)

    other = against("torch-jit", asked("torch-jit", batches="1", lengths="512"), direct)
    assert other.difference is not None
    assert other.difference < 1e-3
    assert other.perplexity_over is not None
    assert abs(other.perplexity_over) < 1e-4


def test_the_server_gives_them_as_vllm_does(direct: Quality) -> None:
    model = str(small_model().folder)
    with served("dtype=float32", engine="transformers", arguments=("--model", model)) as server:
        answer = server.ask(1, "/v1/completions", prompt="The cat sat", echo=True, logprobs=2, temperature=0).json()
        with Target(server.url, Access()) as target:
            found = target.quality(server.client.get("/v1/models").json()["data"][0]["id"], "float32")
    (choice,) = answer["choices"]
    assert choice["text"].startswith("The cat sat")
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert answer["usage"]["completion_tokens"] == 1
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"] + 1
    assert found.tokens == direct.tokens
    difference = against("it", found, direct).difference
    assert difference is not None
    assert difference < 1e-3


def test_an_engine_that_cannot_says_so() -> None:
    with served() as server, Target(server.url, Access()) as target:
        found = target.quality("fake", "none")
        random = target.quality("random:llama-3.2-1b", "float32")
    assert found.why == "fake gives no log-probabilities of given tokens: leave out `echo`"
    assert random.why == NO_WEIGHTS
