"""What a server says of itself before a run, and what is said where it is none."""

import pytest

from loadtests.harness.client.access import Access
from loadtests.harness.client.dialects.registry import DIALECTS, Endpoint
from loadtests.harness.run.counting import material_for
from loadtests.harness.run.target import Target, UnreachableServer, origin_of
from tests.support.scripted import Script, ScriptedServer


def target(url: str) -> Target:
    return Target(url, Access())


CHAT = DIALECTS["chat"]


def not_tried(text: str) -> int | None:
    raise AssertionError("the tokenizer tells")


def test_the_servers_own_tokenizer_says_how_many_words_make_a_prompt() -> None:
    with ScriptedServer() as server, target(server.url) as asked:
        # The scripted tokenizer counts words and adds seven for a template; the instruction has eight words.
        material = material_for(asked, "scripted-model", "chat", "words", None, not_tried)
        assert (material.template, material.instruction, material.exact) == (8, 8, True)
        assert {cost for _, cost in material.words} == {1}
        assert asked.model(None, CHAT) == "scripted-model"
        assert asked.model("another", CHAT) == "another"
        assert asked.engine() == {"name": "scripted", "features": ["ignore_eos"]}


@pytest.mark.parametrize(("endpoint", "template"), [("chat", 11), ("completions", 1)])
def test_a_server_without_the_extra_pages_will_do(endpoint: Endpoint, template: int) -> None:
    with ScriptedServer(Script(tokenizes=False, engine=None)) as server, target(server.url) as asked:
        material = material_for(asked, "scripted-model", endpoint, "words", None, lambda text: None)
        assert (material.template, material.exact) == (template, False)
        assert asked.engine() is None


def test_a_server_that_is_not_there_gets_a_sentence() -> None:
    with target("http://127.0.0.1:9") as asked, pytest.raises(UnreachableServer, match=r"cannot reach .*--host"):
        asked.model(None, CHAT)


def test_a_server_that_lists_no_model_asks_for_one() -> None:
    with ScriptedServer(Script(models=())) as server, target(server.url) as asked:
        with pytest.raises(UnreachableServer, match="--model"):
            asked.model(None, CHAT)
        assert asked.model("mine", CHAT) == "mine"


@pytest.mark.parametrize("url", ["http://x:1", "http://x:1/", "http://x:1/v1", "http://x:1/v1/"])
def test_a_base_url_as_openais_clients_take_it_is_fine_too(url: str) -> None:
    assert origin_of(url) == "http://x:1"
