"""Engines that are compared compute alike, unless somebody says otherwise."""

import pytest

from loadtests.harness.command.formats import same_format
from settings.schema import UserMistake


@pytest.mark.parametrize(
    ("options", "chosen", "says"),
    [
        pytest.param(
            {"transformers": [], "mistralrs": ["concurrency=8"]},
            {"transformers": ["dtype=float32"], "mistralrs": ["concurrency=8", "dtype=float32"]},
            "transformers, mistralrs compute in float32",
            id="the format that both have",
        ),
        pytest.param(
            {"transformers": ["dtype=bfloat16"], "mistralrs": []},
            {"transformers": ["dtype=bfloat16"], "mistralrs": []},
            None,
            id="what was set by hand stays",
        ),
        pytest.param({"transformers": []}, {"transformers": []}, None, id="one engine computes as it likes"),
        pytest.param(
            {"transformers": [], "fake": []},
            {"transformers": [], "fake": []},
            None,
            id="the fake engine computes nothing",
        ),
    ],
)
def test_engines_are_served_in_one_format(
    options: dict[str, list[str]], chosen: dict[str, list[str]], says: str | None
) -> None:
    got, sentence = same_format(options)
    assert got == chosen
    assert (sentence or "").startswith(says or "")
    assert (sentence is None) == (says is None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param({"fake": [], "vlm": []}, "no engine called `vlm`; choose from fake", id="an engine"),
        pytest.param(
            {"fake": [], "remote": ["url=http://x", "apii=chat"]},
            "remote: no option called `apii`; choose from api, concurrency",
            id="an option",
        ),
        pytest.param(
            {"fake": [], "transformers": ["dtype=foo"]},
            "transformers: option `dtype` is one of auto, float32",
            id="a value",
        ),
        pytest.param(
            {"fake": [], "remote": ["retries=1"]},
            "remote: no option called `retries`",
            id="an option of another engine",
        ),
    ],
)
def test_what_does_not_exist_is_refused_before_the_first_engine_is_measured(
    options: dict[str, list[str]], sentence: str
) -> None:
    with pytest.raises(UserMistake, match=sentence):
        same_format(options)
