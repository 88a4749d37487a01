"""Which variants a command line asks for."""

import pytest

from bench.measuring.variants import variants_of


def labels(
    *engines: str, models: tuple[str, ...] = (), options: tuple[str, ...] = (), sweeps: tuple[str, ...] = ()
) -> list[str]:
    return [one.label for one in variants_of(engines, models, options, sweeps)]


def test_engines_alone_are_called_by_their_names() -> None:
    assert labels("candle", "burn", options=("dtype=float32",)) == ["candle", "burn"]


def test_a_sweep_makes_a_variant_of_each_value() -> None:
    found = variants_of(["candle"], [], ["concurrency=8"], ["dtype=float32,q8_0"])
    assert [one.label for one in found] == ["candle dtype=float32", "candle dtype=q8_0"]
    assert [dict(one.options) for one in found] == [
        {"concurrency": "8", "dtype": "float32"},
        {"concurrency": "8", "dtype": "q8_0"},
    ]


def test_a_sweep_of_one_engine_leaves_the_others_alone() -> None:
    assert labels("candle", "burn", sweeps=("candle.dtype=float32,q8_0",)) == [
        *("candle dtype=float32", "candle dtype=q8_0", "burn")
    ]


def test_several_sweeps_are_all_combinations_and_several_models_are_named() -> None:
    found = labels("fake", models=("a", "b"), sweeps=("ttft=1,2", "tpot=3,4"))
    assert len(found) == 8
    assert found[0] == "fake ttft=1 tpot=3 a"
    assert len(set(found)) == 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"engines": ["fake", "fake"]}, "name each engine once", id="twice"),
        pytest.param({"engines": ["fake"], "sweeps": ["ttft"]}, "name=value", id="no value"),
        pytest.param({"engines": ["fake"], "options": ["burn.dtype=f"]}, "not among the engines: fake", id="another's"),
    ],
)
def test_mistakes_get_a_sentence(given: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        variants_of(given["engines"], [], given.get("options", []), given.get("sweeps", []))
