"""What grows with the context."""

from __future__ import annotations

import dataclasses

import pytest

from enginebench.analysis.compare.growth import context_sentences, line_through
from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.view import Estimate
from tests.support.analysis.synthetic import Engine, simulate

PROMPTS = (10, 100, 200, 400)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    names = tuple(f"{prompt} prompt tokens" for prompt in PROMPTS)
    folder = tmp_path_factory.mktemp("context") / "run"
    return summarise(load_run(simulate(folder, Engine("engine"), (1, 1, 1, 1), 5.0, names=names)))


def measured(simulated: RunSummary, prefill: tuple[float, float], token: tuple[float, float]) -> RunSummary:
    """With (base, per token of context) of prefill and of further tokens, and answers of 20 tokens."""
    stages = []
    for stage, prompt in zip(simulated.stages, PROMPTS, strict=True):
        tpot = dataclasses.replace(stage.metrics["tpot"], mean=token[0] + token[1] * (prompt + 10))
        means = {
            "ttft_prefill": prefill[0] + prefill[1] * prompt,
            "prompt_tokens": float(prompt),
            "output_tokens": 20.0,
        }
        quantities = {**stage.quantities, **{name: Estimate(mean) for name, mean in means.items()}}
        stages.append(dataclasses.replace(stage, quantities=quantities, metrics={**stage.metrics, "tpot": tpot}))
    return dataclasses.replace(simulated, stages=tuple(stages))


def test_an_engine_without_a_cache_is_known_by_its_tokens(simulated: RunSummary) -> None:
    (sentence,) = context_sentences([measured(simulated, (0.004, 0.0005), (0.005, 0.0005))])
    assert sentence == (
        "engine, one request alone: prefill takes 4.00 ms + 500 µs per token of context (R² 1.00); each further token "
        "takes 5.00 ms + 500 µs per token of context (R² 1.00); a token takes as long as the prefill of all before it: "
        "the engine keeps no key/value cache."
    )


def test_with_a_cache_a_token_takes_as_long_whatever_the_context(simulated: RunSummary) -> None:
    (sentence,) = context_sentences([measured(simulated, (0.004, 0.0005), (0.02, 1e-6))])
    assert sentence.endswith("(R² 1.00); each further token takes 20.4 ms at every context length.")


def test_several_users_or_lengths_close_together_say_nothing(simulated: RunSummary) -> None:
    two = measured(simulated, (0.004, 0.0005), (0.005, 0.0005))
    crowded = dataclasses.replace(two, stages=tuple(dataclasses.replace(stage, load=2.0) for stage in two.stages))
    assert context_sentences([crowded]) == []
    assert line_through([(100.0, 1.0), (110.0, 1.1), (120.0, 1.2)]) is None
    assert line_through([(100.0, 1.0), (100.0, 1.1), (400.0, 1.2)]) is None
    assert line_through([]) is None


def test_what_is_no_straight_line_is_not_described() -> None:
    line = line_through([(10.0, 1.0), (100.0, 3.0), (200.0, 0.5), (400.0, 2.5)])
    assert line is not None
    assert line.explained < 0.5
