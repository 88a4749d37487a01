"""Engines that are compared compute alike, unless somebody says otherwise."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.engine_checks import checked
from tests.support.loadtests.run_command import processes_forked


@pytest.fixture(scope="module", autouse=True)
def forked() -> Iterator[None]:
    with processes_forked():
        yield


def served(options: dict[str, list[str]]) -> list[Contender]:
    """By engine, or by NAME=ENGINE."""
    return [
        Contender(name.partition("=")[0], engine=name.rpartition("=")[2], options=tuple(own))
        for name, own in options.items()
    ]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        pytest.param(
            {"transformers": [], "mistralrs": ["concurrency=8"]},
            {"transformers": ["dtype=float32"], "mistralrs": ["concurrency=8", "dtype=float32"]},
            id="the format that both have",
        ),
        pytest.param({"transformers": ["dtype=bfloat16"], "mistralrs": []}, None, id="what was set by hand stays"),
        pytest.param({"transformers": []}, None, id="one engine computes as it likes"),
        pytest.param({"a=transformers": [], "b=transformers": []}, None, id="also when compared with itself"),
        pytest.param({"transformers": [], "fake": []}, None, id="the fake engine computes nothing"),
    ],
)
def test_engines_are_served_in_one_format(options: dict[str, list[str]], chosen: dict[str, list[str]] | None) -> None:
    got, sentence = checked(served(options))
    assert got == served(chosen or options)
    assert (sentence or "").startswith("transformers, mistralrs compute in float32" if chosen else "")
    assert (sentence is None) == (chosen is None)


@pytest.mark.parametrize(
    ("options", "model", "sentence"),
    [
        pytest.param({"fake": [], "vlm": []}, None, "no engine called `vlm`; did you mean `vllm`?", id="an engine"),
        pytest.param(
            {"fake": [], "remote": ["url=http://x", "apii=chat"]}, None,
            "remote: no option called `apii`; did you mean `api`?", id="an option",
        ),
        pytest.param(
            {"fake": [], "transformers": ["dtype=foo"]}, None,
            "transformers: option `dtype` is one of auto, float32", id="a value",
        ),
        pytest.param({"fake": []}, "nope", "fake: no model called `nope`; choose from smollm2-135m", id="a model"),
        pytest.param({"transformers": []}, "llama-30b", "llama-30b does not fit", id="more than the memory holds"),
        pytest.param({"vllm": []}, None, "vllm cannot run here: .*engines install vllm", id="no such engine here"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_before_anything_is_measured(
    options: dict[str, list[str]], model: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path))  # without engines that were installed here
    with pytest.raises(UserMistake, match=sentence):
        checked([replace(contender, model=model) for contender in served(options)])
