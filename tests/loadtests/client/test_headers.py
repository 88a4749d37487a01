"""Headers given by hand count before all others, in every request."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from loadtests.harness.client.authentication import access_to
from loadtests.harness.client.dialects.dialect import Message, ModelRequest
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.headers import parse_headers
from loadtests.harness.run.target import Target
from tests.support.loadtests.asking import ask
from tests.support.servers.odd import Odd, OddServer

ANTHROPIC, OPENAI = {"ANTHROPIC_API_KEY": "a-key"}, {"OPENAI_API_KEY": "a-key"}


@pytest.mark.parametrize(
    ("endpoint", "environment", "given", "sent"),
    [
        pytest.param("messages", ANTHROPIC, "", {"x-api-key": ["a-key"]}, id="none"),
        pytest.param("messages", ANTHROPIC, "X-API-Key: mine", {"x-api-key": ["mine"]}, id="a key"),
        pytest.param("messages", ANTHROPIC, "X_Api_Key: mine", {"x-api-key": ["a-key"], "x_api_key": ["mine"]},
                     id="another name"),
        pytest.param("messages", {}, "ANTHROPIC-version: 2", {"anthropic-version": ["2"]}, id="the API's own header"),
        pytest.param("chat", OPENAI, "authorization: Basic x", {"authorization": ["Basic x"]}, id="another scheme"),
        pytest.param("chat", {"OPENAI_API_KEY": "no key"}, "Authorization: Bearer mine",
                     {"authorization": ["Bearer mine"]}, id="a key that replaces a broken one"),
        pytest.param("bedrock", {}, "Authorization: Bearer mine",
                     {"authorization": ["Bearer mine"], "x-amz-date": []}, id="a key in place of a signature"),
        pytest.param("chat", {}, "content-type: application/x\nHOST: other\nuser-agent: me\naccept-encoding: br",
                     {"content-type": ["application/x"], "host": ["other"], "user-agent": ["me"],
                      "accept-encoding": ["br"]}, id="those of every request"),
        pytest.param("chat", {}, "X-A: 1\nx-a: 2", {"x-a": ["2"]}, id="twice: the last one counts"),
    ],
)  # fmt: skip
def test_a_header_that_is_given_replaces_all_of_its_name(
    endpoint: Endpoint, environment: Mapping[str, str], given: str, sent: dict[str, list[str]]
) -> None:
    """In preparation and in the run."""
    with OddServer(Odd()) as server:
        access = access_to(server.url, endpoint, parse_headers(given), environment)
        with Target(server.url, access) as target:
            assert target.engine() is None
            with pytest.raises(ValueError, match="404"):
                target.try_out(ModelRequest("m", (Message("user", "the"),), 16), DIALECTS["responses"])
        ask(server, access=access)
        heads = [message.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:] for message in server.requests]
    assert len(heads) == 3
    for lines in heads:
        headers = [line.partition(": ") for line in lines]
        for name, values in sent.items():
            if name == "content-type" and not any(line.lower().startswith("content-type") for line in lines):
                continue  # a GET has no body
            assert [value for other, _, value in headers if other.lower() == name] == values


def test_a_key_that_a_header_replaces_is_not_said_to_be_withheld() -> None:
    access = access_to("http://models.example.org", "chat", (("authorization", "Bearer mine"),), OPENAI)
    assert (access.withheld, access.headers) == (None, {"authorization": "Bearer mine"})


@pytest.mark.parametrize("name", ["X_Api_Key", "x.tenant", "!#$%&'*+-.^_`|~", "0"])
def test_the_name_of_a_header_is_a_token_of_http(name: str) -> None:
    assert parse_headers(f"{name}: v") == ((name, "v"),)


@pytest.mark.parametrize("text", ["no colon", "Secret:", "Na me: x", ": x", "Näme: x", "a(b): x", "X: a\x1bb", "X: é"])
def test_a_header_that_is_none_gets_a_sentence_without_its_value(text: str) -> None:
    with pytest.raises(ValueError, match="a header is `Name: value`") as refused:
        parse_headers(text)
    assert text not in str(refused.value)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding"])
def test_headers_that_frame_the_body_are_not_the_users(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} follows from the body of each request: leave it out."):
        parse_headers(f"{name}: 5")


def test_a_question_with_a_body_is_json() -> None:
    with OddServer(Odd()) as server:
        with Target(server.url, access_to(server.url, "chat", (), {})) as target:
            target.tokenized({"prompt": "a"})
        (asked,) = server.asked
    assert (json.loads(asked.body), asked.headers["content-type"]) == ({"prompt": "a"}, "application/json")
