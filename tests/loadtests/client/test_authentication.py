"""Keys go where nobody else can read them."""

import pytest

from loadtests.harness.client.authentication import Access, access_to
from loadtests.harness.client.redaction import redacted
from tests.support.loadtests.asking import ask_scripted
from tests.support.servers.wire_script import json_answer

KEY = {"OPENAI_API_KEY": "a-secret"}


@pytest.mark.parametrize(
    ("url", "environment", "sent"),
    [
        pytest.param("https://models.example.org", KEY, True, id="https"),
        pytest.param("http://127.0.0.1:8000", KEY, True, id="this machine"),
        pytest.param("http://[::1]:8000", KEY, True, id="this machine by its other address"),
        pytest.param("http://localhost:8000", KEY, True, id="this machine by name"),
        pytest.param("http://models.example.org", KEY, False, id="plain http to another machine"),
        pytest.param("http://10.0.0.7:8000", KEY, False, id="plain http in a network of one's own"),
        pytest.param("http://127.0.0.1.example.org", KEY, False, id="a name that looks like this machine"),
        pytest.param("http://10.0.0.7", {"ENGINEBENCH_API_KEY": "a-secret"}, True, id="a key for load tests"),
    ],
)
def test_another_clients_key_is_not_sent_in_the_clear(url: str, environment: dict[str, str], sent: bool) -> None:
    access = access_to(url, "chat", (), environment)
    assert access.headers == ({"Authorization": "Bearer a-secret"} if sent else {})
    assert access.withheld == (None if sent else "OPENAI_API_KEY")


SENT = {
    "Authorization": "Bearer a-secret-key",
    "X-Tenant": 'seven "of" nine',
    "X-Short": "the",
    "anthropic-version": "v1-2023",
}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        pytest.param("a-secret-key is no key", "*** is no key", id="the key alone"),
        pytest.param("no `Bearer a-secret-key` here", "no `Bearer ***` here", id="with its scheme, which is no secret"),
        pytest.param('tenant seven "of" nine: no', "tenant ***: no", id="the value of another header"),
        pytest.param(r'{"tenant": "seven \"of\" nine"}', '{"tenant": "***"}', id="in JSON that is shown as it came"),
        pytest.param("no such key: a-secr…", "no such key: ***…", id="cut off where the text was shortened"),
        pytest.param("no such key: a-secr", "no such key: ***", id="cut off at the end"),
        pytest.param("the key has no quota left", "the key has no quota left", id="a value as short as a word"),
        pytest.param("v1-2023 is too old", "v1-2023 is too old", id="a header that holds no secret"),
        pytest.param("all is well", "all is well", id="nothing of all that"),
    ],
)
def test_what_a_server_quotes_of_keys_and_headers_is_hidden(said: str, shown: str) -> None:
    assert redacted(said, SENT) == shown


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("a-secret-key is not valid", id="short"),
        pytest.param("x" * 290 + " a-secret-key is not valid", id="shortened within the key"),
    ],
)
def test_a_record_of_a_refusal_has_no_key(message: str) -> None:
    refusal = json_answer("401 Unauthorized", {"error": {"message": message}})
    seen = ask_scripted(refusal, access=Access({"Authorization": "Bearer a-secret-key"}))
    assert (seen.outcome, seen.status) == ("http_error", 401)
    assert "***" in (seen.detail or "")
    assert "a-sec" not in (seen.detail or "")
