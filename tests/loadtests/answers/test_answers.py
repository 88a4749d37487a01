"""`enginebench answers`: where answers part, by how much probabilities differ, and what the command says."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
from typer.testing import CliRunner, Result

from enginebench import app
from loadtests.harness.answers.agreement import Agreement, Answer, agreement
from loadtests.harness.answers.asking import Asking, NoAnswer, Perplexity
from loadtests.harness.client.access import Access
from tests.support.servers.wire_script import WireServer, json_answer

ONE = Answer("a b c", ("a", " b", " c"), (-0.1, -0.2, -0.3))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            Answer("a b c", ("a", " b", " c"), (-0.1, -0.2001, -0.3)),
            Agreement(1, 1, "token", None, None, pytest.approx(0.0001)),  # type: ignore[arg-type]
            id="the same tokens, one a little less likely",
        ),
        pytest.param(
            Answer("a b d", ("a", " b", " d"), (-0.1, -0.2, -9.0)),
            Agreement(1, 0, "token", 3, 3, 0.0),
            id="the third differs, and its probability is not compared",
        ),
        pytest.param(
            Answer("a b", ("a", " b"), (-0.1, -0.2)), Agreement(1, 0, "token", 3, 3, 0.0), id="it ends before the third"
        ),
        pytest.param(Answer("a b c"), Agreement(1, 1, "word", None, None, None), id="no tokens, the same words"),
        pytest.param(Answer("a x c"), Agreement(1, 0, "word", 2, 2, None), id="no tokens, another word"),
        pytest.param(Answer("a b c "), Agreement(1, 0, "word", 4, 4, None), id="a space more is another answer"),
    ],
)
def test_where_an_answer_parts(answer: Answer, expected: Agreement) -> None:
    assert agreement({"q": ONE}, [("q", answer)]) == expected


def test_the_earliest_and_the_typical_difference_over_many_answers() -> None:
    words = ["a", "b", "c", "d", "e", "f", "g", "h"]
    reference = {str(place): Answer(" ".join(words)) for place in range(5)}
    changed = [(str(place), Answer(" ".join([*words[:place], "x", *words[place + 1 :]]))) for place in (1, 3, 4)]
    found = agreement(reference, [*changed, ("0", reference["0"])])
    assert (found.answers, found.identical, found.earliest, found.typical) == (4, 1, 2, 4)
    assert found.share == 0.25


def chat(*tokens: tuple[str, float]) -> bytes:
    listed = [{"token": token, "logprob": logprob} for token, logprob in tokens]
    message = {"role": "assistant", "content": "".join(token for token, _ in tokens)}
    return json_answer("200 OK", {"choices": [{"message": message, "logprobs": {"content": listed}}]})


def answers(*words: str) -> Result:
    return CliRunner().invoke(app, ["answers", *words, "--json"])


def test_a_server_whose_answers_change_under_load_is_told_from_one_whose_do_not() -> None:
    models = json_answer("200 OK", {"data": [{"id": "m"}]})
    missing = json_answer("404 Not Found", {})
    alone, loaded = chat(("a", -0.5), (" b", -0.25)), chat(("a", -0.5), (" c", -0.75))
    with WireServer([models], [missing], [alone], [loaded], [loaded], [missing]) as server:
        done = answers("--url", server.url, "--prompts", "1", "--users", "1", "--at-least", "1")
    assert done.exit_code == 1, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["under_load"]["answers"], found["under_load"]["identical"]) == (2, 0)
    assert (found["under_load"]["earliest"], found["under_load"]["unit"]) == (2, "token")
    assert found["under_load"]["logprob_difference"] == 0.0
    assert found["perplexity"] is None
    asked = json.loads(server.requests[2].partition(b"\r\n\r\n")[2])
    assert (asked["temperature"], asked["max_tokens"], asked["logprobs"]) == (0, 48, True)


@pytest.mark.parametrize(
    ("status", "asked_again"),
    [
        pytest.param("400 Bad Request", [True, None, None], id="refused: it has none"),
        pytest.param("503 Service Unavailable", [True], id="busy: nothing is known of them"),
    ],
)
def test_only_a_server_that_refuses_log_probabilities_is_asked_without(
    status: str, asked_again: list[bool | None]
) -> None:
    async def ask(url: str) -> list[Answer]:
        async with Asking(url, Access(), "m", 8) as asking:
            return list((await asking.alone(["q", "r"])).values())

    with WireServer([json_answer(status, {})], [chat(("a", -0.5))], [chat(("b", -0.5))]) as server:
        if len(asked_again) == 1:
            with pytest.raises(NoAnswer, match="answered 503"):
                asyncio.run(ask(server.url))
        else:
            assert [answer.text for answer in asyncio.run(ask(server.url))] == ["a", "b"]
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests]
    assert [body.get("logprobs") for body in bodies] == asked_again


def test_the_fake_engine_answers_alike_under_load() -> None:
    done = answers("--engine", "fake", "--prompts", "4", "--users", "8", "--at-least", "1")
    assert done.exit_code == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["under_load"]["identical"], found["under_load"]["answers"]) == (8, 8)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param([], "say what to test", id="nothing to ask"),
        pytest.param(
            ["--engine", "fake", "--engine", "fake"], "give each --engine and each --url only once", id="twice"
        ),
        pytest.param(["--url", "http://127.0.0.1:9"], "cannot reach http://127.0.0.1:9", id="no server"),
        pytest.param(["--url", "127.0.0.1:9"], "`127.0.0.1:9` is not a server's address", id="an address without http"),
        pytest.param(
            ["--engine", "candle", "--engine", "burn", "--model", "random:llama-3.2-tiny"],
            "has different weights in each engine",
            id="random weights",
        ),
    ],
)
def test_a_mistake_gets_a_sentence(words: list[str], sentence: str) -> None:
    done = answers(*words)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2
    assert sentence in " ".join(done.stderr.split())


def test_perplexity_is_that_of_the_tokens_given_those_before_them() -> None:
    def likely(**logprobs: float) -> bytes:
        return json_answer("200 OK", {"choices": [{"logprobs": {"top_logprobs": [logprobs]}}]})

    def text(piece: str) -> bytes:
        return json_answer("200 OK", {"prompt": piece})

    tokens = json_answer("200 OK", {"tokens": [5, 6, 7]})
    script = ([tokens], [text("b")], [likely(b=-1.0, x=-2.0)], [text("c")], [likely(x=-0.5, y=-3.0)])

    async def ask(url: str) -> Perplexity | None:
        async with Asking(url, Access(), "m", 8) as asking:
            return await asking.perplexity("a b c")

    with WireServer(*script) as server:
        found = asyncio.run(ask(server.url))
    assert found == Perplexity(pytest.approx(math.exp(2.0)), 2, 1)  # type: ignore[arg-type]
    first, second = (json.loads(server.requests[index].partition(b"\r\n\r\n")[2]) for index in (2, 4))
    assert (first["prompt"], second["prompt"]) == ([5], [5, 6])
