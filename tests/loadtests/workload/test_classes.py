"""Classes of requests: their grammar and their shares of users."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from loadtests.harness.workload.classes import RequestClass, class_of, parse_classes, write_classes
from loadtests.harness.workload.lengths import parse_lengths
from tests.loadtests.workload.test_workload import PLAIN, asks

TEXT = "chat: weight=3 prompt=lognormal:60,0.5 output=8 slo=ttft_p95=0.5,tpot_p95=0.04; batch: weight=1 prompt=400"


def test_classes_are_read_and_written() -> None:
    chat, batch = parse_classes(TEXT)
    assert chat == RequestClass(
        "chat", 3, parse_lengths("lognormal:60,0.5"), parse_lengths("8"), "ttft_p95=0.5,tpot_p95=0.04"
    )
    assert batch == RequestClass("batch", 1, parse_lengths("400"))
    assert write_classes((chat, batch)) == TEXT


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((text, "classes are NAME: weight") for text in ("chat", "chat: weight=0", "chat: weight=x", "chat: size=3")),
        (": weight=1", "classes are NAME: weight"),
        ("a: weight=1; a: weight=2", "each class needs its own name"),
        ("chat: prompt=uniform:9-3", r"uniform:16-128.*not `uniform:9-3`"),
        ("chat: slo=ttft=0.5", r"such as ttft_p99=500ms.*not `ttft=0.5`"),
    ],
)
def test_wrong_classes_get_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_classes(text)


@pytest.mark.parametrize("count", [4, 10, 40, 1000])
def test_any_number_of_users_has_the_shares(count: int) -> None:
    drawn = Counter(class_of(number, parse_classes(TEXT)).name for number in range(count))
    assert abs(drawn["chat"] - 0.75 * count) <= 1.5


def test_a_user_stays_in_its_class_and_asks_what_the_class_asks() -> None:
    mixed = dataclasses.replace(PLAIN, classes=parse_classes("chat: weight=1 output=8; batch: prompt=400"))
    found = {}
    for user in range(8):
        asked = [one.record for one in asks(mixed, user=user, count=5)]
        ((name, prompt, output),) = {
            (one.request_class, one.planned_prompt_tokens, one.planned_output_tokens) for one in asked
        }
        found[name] = (prompt, output)
    assert found == {"chat": (40, 8), "batch": (400, 16)}
