"""What users ask: prompts of the wanted length, no two alike, and the same again for the same seed and prompt set."""

import dataclasses
import json
from random import Random
from typing import Any

import pytest

from enginebench.records.request import RequestRecord
from enginebench.settings.schema import write_list
from loadtests.harness.client.call import Call
from loadtests.harness.client.sampling import Sampling
from loadtests.harness.schedule.trace import Trace
from loadtests.harness.workload.lengths import Lengths, parse_lengths, parse_several
from loadtests.harness.workload.prompt_source import PromptSource
from loadtests.harness.workload.prompt_words import INSTRUCTION, START, WORDS
from loadtests.harness.workload.workload import Workload
from tests.support.records import record

A_TOKEN_A_WORD = PromptSource(
    "words", template=12, instruction=8, words=tuple((word, 1) for word in WORDS), length_measured=True
)
PLAIN = Workload(
    model="some-model", endpoint="chat", streamed=True, prompt_tokens=Lengths("fixed", 40),
    output_tokens=Lengths("fixed", 16), source=A_TOKEN_A_WORD, seed=0, prompt_set="a set",
)  # fmt: skip


def asks(
    workload: Workload, user: int = 0, count: int = 100, dataset: Trace | None = None, **of_the_stage: str
) -> list[Call]:
    one_user = workload.requests_of(user, workload.rows_of(dataset))
    found = []
    for _ in range(count):
        found.append(one_user.next(of_the_stage))
        one_user.answered(record(), "")
    return found


def bodies(workload: Workload, user: int = 0, count: int = 100, dataset: Trace | None = None) -> list[dict[str, Any]]:
    return [json.loads(ask.body) for ask in asks(workload, user, count, dataset)]


def words(body: dict[str, Any]) -> list[str]:
    """What follows the start that all prompts have."""
    text: str = body["messages"][0]["content"]
    start, *rest = text.removesuffix(INSTRUCTION).split()
    assert start == START
    return rest


@pytest.mark.parametrize(
    ("text", "low", "high", "middle"),
    [
        pytest.param("64", 64, 64, 64, id="a number is that number"),
        pytest.param("uniform:16-128", 16, 128, 72, id="uniform reaches both ends"),
        pytest.param("lognormal:64,0.5", 1, 640, 64, id="lognormal scatters around its median, cut at ten times it"),
        pytest.param("lognormal:64,2,200", 1, 200, 64, id="or at a limit of its own"),
        pytest.param("normal:64,10", 1, 140, 64, id="normal scatters around its mean"),
        pytest.param("exponential:64", 1, 640, 44, id="exponential has its median at ln 2 of its mean"),
    ],
)
def test_lengths_are_drawn_as_told(text: str, low: int, high: int, middle: int) -> None:
    rng = Random(1)
    drawn = sorted(parse_lengths(text).draw(rng) for _ in range(20_000))
    assert drawn[0] >= low
    assert drawn[-1] <= high
    assert drawn[10_000] == pytest.approx(middle, rel=0.05)
    if text.startswith("uniform"):
        assert (drawn[0], drawn[-1]) == (16, 128)
    assert str(parse_lengths(text)) == text


def test_no_length_is_beyond_all_contexts() -> None:
    lengths, rng = parse_lengths("lognormal:64,30,99999999999"), Random(1)
    assert max(lengths.draw(rng) for _ in range(100)) == 10_000_000


@pytest.mark.parametrize(
    "text", ["", "0", "-3", "many", "uniform:9-3", "uniform:5", "lognormal:64", "1.5", "3000000000"]
)
def test_wrong_lengths_get_a_sentence_with_the_grammar(text: str) -> None:
    with pytest.raises(ValueError, match="uniform:16-128"):
        parse_lengths(text)


@pytest.mark.parametrize(
    ("text", "several"),
    [
        pytest.param("10,50-150:50", ("10", "50", "100", "150"), id="numbers and ranges: one stage each"),
        pytest.param("64", ("64",), id="one number"),
        pytest.param("128000,1000000", ("128000", "1000000"), id="long contexts"),
        pytest.param("uniform:16-128", ("uniform:16-128",), id="one distribution"),
        pytest.param("lognormal:64,0.5", ("lognormal:64,0.5",), id="a distribution with a comma"),
    ],
)
def test_several_lengths(text: str, several: tuple[str, ...]) -> None:
    lengths = parse_several(text)
    assert tuple(map(str, lengths)) == several
    assert parse_several(write_list(lengths)) == lengths


def test_no_two_requests_are_alike() -> None:
    asked = [tuple(words(body)[:4]) for user in range(50) for body in bodies(PLAIN, user, 20)]
    assert len(set(asked)) == 1000


def test_the_same_seed_and_set_ask_the_same_and_another_of_either_does_not() -> None:
    assert bodies(PLAIN, user=3) == bodies(PLAIN, user=3)
    for changes in ({"seed": 1}, {"prompt_set": "another"}):
        other = dataclasses.replace(PLAIN, **changes)
        assert not {tuple(words(b)) for b in bodies(PLAIN)} & {tuple(words(b)) for b in bodies(other)}


def test_runs_of_different_sets_plan_the_same_lengths() -> None:
    varied = dataclasses.replace(
        PLAIN, prompt_tokens=Lengths("uniform", 30, 90), output_tokens=Lengths("uniform", 1, 9)
    )
    other = dataclasses.replace(varied, prompt_set="another")
    lengths = [
        [(a.record.planned_prompt_tokens, a.record.planned_output_tokens) for a in asks(one)] for one in (varied, other)
    ]
    assert lengths[0] == lengths[1]
    assert len(set(lengths[0])) > 50


def test_a_prompts_id_is_that_of_its_text() -> None:
    asked, again = asks(PLAIN, user=1), asks(PLAIN, user=1)
    assert [one.record.prompt_id for one in asked] == [one.record.prompt_id for one in again]
    assert len({one.record.prompt_id for one in asked}) == 100
    elsewhere = asks(dataclasses.replace(PLAIN, model="another-model", endpoint="completions"), user=1)
    assert [one.record.prompt_id for one in asked] == [one.record.prompt_id for one in elsewhere], (
        "for every engine the same"
    )


def test_a_stage_may_ask_for_lengths_of_its_own() -> None:
    for text, tokens in (("60", 60), ("200", 200)):
        asked = asks(PLAIN, count=5, prompt_tokens=text, output_tokens="3")
        assert {one.record.planned_prompt_tokens for one in asked} == {tokens}
        assert {one.record.planned_output_tokens for one in asked} == {3}
        assert {json.loads(one.body)["max_tokens"] for one in asked} == {3}
        assert {len(words(json.loads(one.body))) for one in asked} == {tokens - 20}


def test_a_prompt_has_the_words_that_make_its_tokens() -> None:
    assert {len(words(body)) for body in bodies(PLAIN)} == {20}  # 40 tokens, less 12 and 8
    bytes_of_words = PromptSource("words", 4, 6, tuple((word, len(word)) for word in WORDS))
    longer = dataclasses.replace(PLAIN, source=bytes_of_words, prompt_tokens=Lengths("fixed", 200))
    assert {sum(len(word) + 1 for word in words(body)) for body in bodies(longer)} == {190}


@pytest.mark.parametrize(
    ("tokens", "words", "with_instruction"),
    [
        pytest.param(40, 20, True, id="both"),
        pytest.param(24, 4, True, id="just enough for both"),
        pytest.param(23, 11, False, id="too short for the instruction: words in its place"),
        pytest.param(10, 4, False, id="never fewer than four words, which keep prompts apart"),
    ],
)
def test_short_prompts_do_without_the_instruction(tokens: int, words: int, with_instruction: bool) -> None:
    prompt = A_TOKEN_A_WORD.prompt(tokens, Random(1))
    assert prompt.endswith(INSTRUCTION) == with_instruction
    assert len(prompt.removesuffix(INSTRUCTION).split()) == 1 + words


def test_a_shared_prefix_is_the_same_for_all_and_the_rest_is_not() -> None:
    workload = dataclasses.replace(PLAIN, prompt_tokens=Lengths("fixed", 60), shared_prefix_tokens=30)
    asked = [words(body) for user in range(5) for body in bodies(workload, user, 10)]
    assert {len(prompt) for prompt in asked} == {40}
    assert len({tuple(prompt[:30]) for prompt in asked}) == 1
    assert len({tuple(prompt[30:]) for prompt in asked}) == 50


def answered(tokens: int = 50, outcome: str = "ok") -> RequestRecord:
    return record(outcome=outcome, prompt_tokens=40, output_tokens=tokens)


def turns_of(workload: Workload, count: int, *answers: RequestRecord) -> list[Call]:
    """`answers` in turn, the last again and again."""
    user = workload.requests_of(0)
    asked = []
    for number in range(count):
        asked.append(user.next({}))
        user.answered(answers[min(number, len(answers) - 1)], f"answer {number}")
    return asked


def test_a_conversation_has_its_turns_and_each_sends_all_that_was_said() -> None:
    talking = dataclasses.replace(PLAIN, turns=Lengths("fixed", 3), turn_tokens=Lengths("fixed", 30))
    asked = turns_of(talking, 7, answered())
    assert [(one.record.session, one.record.turn) for one in asked] == [
        ("0-0", 0), ("0-0", 1), ("0-0", 2), ("0-1", 0), ("0-1", 1), ("0-1", 2), ("0-2", 0),
    ]  # fmt: skip
    assert [one.record.planned_prompt_tokens for one in asked[:4]] == [40, None, None, 40]
    said = [json.loads(one.body)["messages"] for one in asked]
    assert [len(messages) for messages in said] == [1, 3, 5, 1, 3, 5, 1]
    assert said[2][:3] == said[1]
    assert said[2][3] == {"role": "assistant", "content": "answer 1"}
    assert len(said[2][4]["content"].split()) == 30


def test_a_failed_turn_ends_its_conversation() -> None:
    talking = dataclasses.replace(PLAIN, turns=Lengths("fixed", 5))
    asked = turns_of(talking, 3, answered(), answered(outcome="timeout"), answered())
    assert [(one.record.session, one.record.turn) for one in asked] == [("0-0", 0), ("0-0", 1), ("0-1", 0)]


def test_a_conversation_ends_when_the_context_is_full() -> None:
    talking = dataclasses.replace(PLAIN, turns=Lengths("fixed", 99), context=300)
    asked = turns_of(talking, 3, answered(tokens=120), answered(tokens=200), answered())
    # 40 + 120, and 40 + 16 more: there is room; 40 + 200 and 56 more, and 64 for the template: none.
    assert [(one.record.session, one.record.turn) for one in asked] == [("0-0", 0), ("0-0", 1), ("0-1", 0)]


def test_a_stage_that_asks_something_else_begins_a_new_conversation() -> None:
    user = dataclasses.replace(PLAIN, turns=Lengths("fixed", 5)).requests_of(0)
    first, second = user.next({}), user.next({"prompt_tokens": "80"})
    assert (first.record.session, second.record.session, second.record.turn) == ("0-0", "0-1", 0)
    assert second.record.planned_prompt_tokens == 80
    user.answered(answered(), "an answer")
    later = json.loads(user.next({"prompt_tokens": "80"}).body)["messages"]
    assert len(later[-1]["content"].split()) == 80, "a later turn is as long as the stage's prompts"


def test_sampled_answers_carry_a_seed_of_their_own() -> None:
    seeds = [body["seed"] for body in bodies(dataclasses.replace(PLAIN, sampling=Sampling(temperature=0.7)))]
    assert len(set(seeds)) == 100
