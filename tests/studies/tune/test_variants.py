"""Variants are read from options, or from what an engine declares."""

import math
from dataclasses import replace

import pytest

from enginebench.settings.schema import UserMistake
from enginebench.studies.tune.proposals import BATCH, BATCHES, Values, propose
from enginebench.studies.tune.variants import Axis, entrants
from loadtests.harness.command.contenders import contenders

COMMAND = "serve --seqs {seqs} --dtype {dtype}"


def names(engine: str, *options: str) -> list[str]:
    (entrant,) = entrants(contenders([engine], [], options), {})
    return [variant.name for variant in entrant.variants]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["concurrency=4,8"], ["default", "concurrency=4", "concurrency=8"]),
        (["concurrency=4,256"], ["default", "concurrency=4"]),  # 256 is the default
        (["concurrency=8..40", "tpot=0.1"], ["default", *(f"concurrency={n}" for n in (8, 16, 32, 40))]),
        (
            ["tokens_per_chunk=2,4", "concurrency=1,2"],
            ["default", *(f"tokens_per_chunk={t} concurrency={n}" for t in (2, 4) for n in (1, 2))],
        ),
    ],
)
def test_every_combination_of_values_is_a_variant(options: list[str], expected: list[str]) -> None:
    assert names("fake", *options) == expected


def test_a_single_value_is_for_the_default_too() -> None:
    (entrant,) = entrants(contenders(["fake"], [], ["tpot=0.1", "concurrency=4,8"]), {})
    assert [variant.contender.options for variant in entrant.variants] == [
        ("tpot=0.1",),
        ("tpot=0.1", "concurrency=4"),
        ("tpot=0.1", "concurrency=8"),
    ]


@pytest.mark.parametrize(("engine", "number"), [("vllm", 12), ("mistralrs", 5), ("burn", 12), ("sglang", 4)])
def test_engines_declare_options_worth_tuning(engine: str, number: int) -> None:
    assert len(names(engine)) == number


def test_several_engines_race_together() -> None:
    entered = entrants(contenders(["fast=fake", "slow=fake"], [], ["fast.concurrency=2,4", "slow.tpot=0.1"]), {})
    named = [variant.name for entrant in entered for variant in entrant.variants]
    assert named == ["fast default", "fast concurrency=2", "fast concurrency=4", "slow"]


def test_the_first_values_of_a_restarted_server_are_its_default() -> None:
    chosen = {"seqs": "64,128", "dtype": "float16"}
    (server,) = contenders([], ["http://127.0.0.1:8000"])
    (entrant,) = entrants([replace(server, restart=COMMAND)], chosen)
    assert [(variant.name, variant.contender.restart) for variant in entrant.variants] == [
        ("default", "serve --seqs 64 --dtype float16"),
        ("seqs=128", "serve --seqs 128 --dtype float16"),
    ]


@pytest.mark.parametrize(
    ("engines", "urls", "options", "sentence"),
    [
        (["fake"], [], [], "fake declares no options worth tuning: name them, such as -o NAME=16,64."),
        (["fake"], [], ["concurency=2,4"], "no option called `concurency`; did you mean `concurrency`?"),
        (["fake"], [], ["concurrency=2,x"], "option `concurrency` is a whole number, not `x`."),
        (["fake"], [], ["concurrency=9..2"], "a range is LOW..HIGH with 0 < LOW < HIGH, as in 512..8192, not `9..2`."),
        (
            [],
            ["http://127.0.0.1:8000"],
            [],
            "there is nothing to tune: give --restart 'COMMAND with {NAME}' and -o NAME=16,64, or several --url.",
        ),
        (
            [],
            ["http://127.0.0.1:8000"],
            ["seqs=1,2"],
            "-o seqs=… has no effect: write {seqs} into the command of --restart.",
        ),
    ],
)
def test_mistakes(engines: list[str], urls: list[str], options: list[str], sentence: str) -> None:
    chosen = {} if engines else dict(option.split("=") for option in options)
    with pytest.raises(UserMistake) as mistake:
        entrants(contenders(engines, urls, options if engines else []), chosen)
    assert str(mistake.value) == sentence


def test_proposals_follow_the_scores() -> None:
    pytest.importorskip("optuna")
    axes = [
        Axis("tokens", ("512", "8192"), (512.0, 8192.0)),
        Axis("share", ("0.5", "0.9"), (0.5, 0.9)),
        Axis("x", ("a", "b")),
    ]

    def proposed(seed: int) -> list[list[Values]]:
        batches: list[list[Values]] = []

        def run(batch: list[Values]) -> list[float | None]:
            batches.append(batch)
            scores = [-abs(math.log(int(values["tokens"]) / 2000)) for values in batch]
            return [None if values["x"] == "b" else score for values, score in zip(batch, scores, strict=True)]

        propose(axes, seed, run)
        return batches

    batches = proposed(1)
    assert batches == proposed(1)
    assert [len(batch) for batch in batches] == [BATCH] * BATCHES
    assert all(512 <= int(values["tokens"]) <= 8192 for batch in batches for values in batch)
    assert all(0.5 <= float(values["share"]) <= 0.9 for batch in batches for values in batch)
    failing = [sum(values["x"] == "b" for values in batch) for batch in batches]
    assert failing[-1] < failing[0]
