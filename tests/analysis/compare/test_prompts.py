"""Two engines on the same prompts: their answers, from the digests that runs keep, and their latencies by prompt."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginebench.analysis.compare.comparison import compare
from enginebench.analysis.compare.headline import headline
from enginebench.analysis.compare.prompts import SameAnswers, same_answers
from enginebench.analysis.data.answers import AnswerDifference
from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.files import read_requests
from tests.support.analysis.synthetic import Engine, meta_of, record, simulate, stages_of, write_run


def measured(folder: Path, label: str, answers: str, temperature: float = 0.0, tokens: int = 16) -> RunSummary:
    """The n-th request asks prompt n modulo 10, and its answer is the n-th letter."""
    texts = {"planned_output_tokens": tokens, "output_tokens": tokens}
    records = [
        record(k, k * 10**8, prompt_id=f"p{k % 10}", answer_digest=letter, **texts) for k, letter in enumerate(answers)
    ]
    meta = meta_of(stages_of((1,), len(answers) / 10), label=label, workload={"temperature": temperature})
    return summarise(load_run(write_run(folder / label, meta, records)))


SAME = "abcdefghij" * 10


@pytest.mark.parametrize(
    ("answers", "identical", "steady"),
    [
        pytest.param(SAME, 10, 10, id="all alike"),
        pytest.param("xbcdefghij" * 10, 9, 10, id="another answer to one prompt, every time"),
        pytest.param("abcdefghij" * 5 + "axcdefghij" + "abcdefghij" * 4, 9, 9, id="another answer, once"),
    ],
)
def test_answers_are_the_same_throughout_or_not(tmp_path: Path, answers: str, identical: int, steady: int) -> None:
    base, engine = measured(tmp_path, "base", SAME), measured(tmp_path, "engine", answers)
    stage = base.stages[0].label
    assert same_answers([engine], [base], stage) == SameAnswers("engine", 10, identical, 10, steady)


def test_where_two_engines_part(tmp_path: Path) -> None:
    runs = []
    for label, texts in (("base", ("one two", "same")), ("engine", ("one ten", "same"))):
        asked = {"planned_output_tokens": 16, "output_tokens": 2}
        records = [
            record(k, k * 10**8, prompt_id=f"p{k}", answer_digest=text, text=text, **asked)
            for k, text in enumerate(texts)
        ]
        meta = meta_of(stages_of((1,), 1.0), label=label, workload={"keep_answers": True})
        runs.append(summarise(load_run(write_run(tmp_path / label, meta, records))))
    base, engine = runs
    found = same_answers([engine], [base], base.stages[0].label)
    assert found.difference == AnswerDifference("character", 6, 6, None)
    assert found.sentence("base") == (
        "engine and base give different answers to 1 of 2 prompts; they differ from character 6 on (median), the first "
        "from character 6 on."
    )


def test_answers_of_the_warm_up_are_answers_too(tmp_path: Path) -> None:
    """A quick engine is past the slow one's prompts when its window begins."""
    stages = stages_of((1,), 2.0, warm_up=0.5, hold=0.0)
    runs = []
    for label, step in (("slow", 10), ("quick", 1)):
        asked = {"planned_output_tokens": 16, "output_tokens": 16}
        records = [
            record(k, k * step * 10**7, prompt_id=f"p{k}", answer_digest=f"a{k}", **asked) for k in range(200 // step)
        ]
        runs.append(summarise(load_run(write_run(tmp_path / label, meta_of(stages, label=label), records))))
    slow, quick = runs
    assert same_answers([quick], [slow], slow.stages[0].label) == SameAnswers("quick", 20, 20, 0, 0)


def test_a_comparison_says_that_answers_differ(tmp_path: Path) -> None:
    runs = [measured(tmp_path, "base", SAME), measured(tmp_path, "engine", "xycdefghij" * 10)]
    sentence = headline(compare(runs, "base", allow_invalid=True), runs)
    assert sentence.endswith("engine and base give different answers to 2 of 10 prompts.")


def test_of_many_engines_it_says_who_answers_otherwise(tmp_path: Path) -> None:
    others = [measured(tmp_path, label, "xycdefghij" * 10) for label in "abcd"]
    runs = [measured(tmp_path, "base", SAME), *others]
    sentence = headline(compare(runs, "base", allow_invalid=True), runs)
    assert sentence.endswith("a, b, c and d give other answers than base.")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"temperature": 0.7}, "not greedy: --temperature 0", id="sampled answers are never compared"),
        pytest.param({"tokens": 8}, "no prompt in common", id="shorter answers are answers to something else"),
    ],
)
def test_what_cannot_be_the_same_is_not_compared(tmp_path: Path, changes: dict[str, float], why: str) -> None:
    base, engine = measured(tmp_path, "base", SAME), measured(tmp_path, "engine", SAME, **changes)  # type: ignore[arg-type]
    found = same_answers([engine], [base], base.stages[0].label)
    assert (found.prompts, found.text, found.sentence("base")) == (0, why, None)


def test_latencies_are_paired_by_prompt_where_prompts_are_the_same(tmp_path: Path) -> None:
    """TTFT depends on the prompt alone, between 0.1 and 1 s, and the engine takes half of it."""
    for label, factor in (("transformers", 1.0), ("candle", 0.5)):
        for k in range(3):
            source = simulate(tmp_path / "source" / f"{label}-{k}", Engine(label, slots=8), (4,), 12.0, seed=k)
            meta = dataclasses.replace(load_run(source).meta, repeat=k)
            records = []
            for index, request in enumerate(read_requests(source)):
                assert request.t_send is not None
                first = request.t_send + round(factor * (0.1 + 0.9 * (index * 7 % 20) / 19) * 1e9)
                stamps: dict[str, Any] = {"t_first": first, "t_last": first + 10**8, "t_end": first + 10**8}
                records.append(msgspec.structs.replace(request, prompt_id=f"{k}-{index * 7 % 20}", **stamps))
            write_run(tmp_path / "runs" / f"{label}-{k}", meta, records)
    comparison = compare([summarise(load_run(folder)) for folder in sorted((tmp_path / "runs").iterdir())])
    ttft = comparison.of(comparison.stage, "candle", "ttft p50")
    assert ttft is not None
    assert ttft.by_prompt is not None
    assert ttft.by_prompt.prompts == 20
    assert ttft.by_prompt.ratio.value == pytest.approx(2, rel=1e-6)
    assert ttft.reversed.by_prompt is not None
    assert ttft.reversed.by_prompt.ratio.value == pytest.approx(0.5, rel=1e-6)
