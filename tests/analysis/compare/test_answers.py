"""Whether an engine gives the baseline's answers, from the digests that runs keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.compare.answers import SameAnswers, same_answers
from analysis.compare.contrasts import contrast
from analysis.data.load import load_run
from analysis.summary.run_summary import RunSummary, summarise
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run


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
    base, engine = measured(tmp_path, "base", SAME), measured(tmp_path, "engine", "xycdefghij" * 10)
    found = contrast([base, engine], "base", allow_invalid=True)
    assert found.otherwise == ["engine and base give different answers to 2 of 10 prompts."]
    assert found.sentence.endswith(found.otherwise[0])


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
