"""What a server says of itself before a run, and what is said where it is none."""

import pytest

from loadtests.harness.run.target import Target, UnreachableServer, origin_of
from loadtests.harness.workload.words import ASSUMED, WordTokens
from tests.support.scripted import Script, ScriptedServer


def target(url: str) -> Target:
    return Target(url, {}, insecure=False)


def test_the_servers_own_tokenizer_says_how_many_words_make_a_prompt() -> None:
    with ScriptedServer() as server, target(server.url) as asked:
        # The scripted tokenizer counts words and adds seven for a template; the instruction has eight words.
        assert asked.word_tokens("scripted-model", "chat") == WordTokens(7.0, 8.0, 1.0, measured=True)
        assert asked.model(None) == "scripted-model"
        assert asked.model("another") == "another"
        assert asked.engine() == {"name": "scripted", "features": ["ignore_eos"]}


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_server_without_the_extra_pages_will_do(endpoint: str) -> None:
    with ScriptedServer(Script(tokenizes=False, engine=None)) as server, target(server.url) as asked:
        assert asked.word_tokens("scripted-model", endpoint) == ASSUMED[endpoint]
        assert asked.engine() is None


def test_a_server_that_is_not_there_gets_a_sentence() -> None:
    with target("http://127.0.0.1:9") as asked, pytest.raises(UnreachableServer, match=r"cannot reach .*--host"):
        asked.model(None)


def test_a_server_that_lists_no_model_asks_for_one() -> None:
    with ScriptedServer(Script(models=())) as server, target(server.url) as asked:
        with pytest.raises(UnreachableServer, match="--model"):
            asked.model(None)
        assert asked.model("mine") == "mine"


@pytest.mark.parametrize("url", ["http://x:1", "http://x:1/", "http://x:1/v1", "http://x:1/v1/"])
def test_a_base_url_as_openais_clients_take_it_is_fine_too(url: str) -> None:
    assert origin_of(url) == "http://x:1"
