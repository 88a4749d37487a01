"""Keys go where nobody else can read them."""

import pytest

from loadtests.harness.client.access import access_to

KEY = {"OPENAI_API_KEY": "a-secret"}


@pytest.mark.parametrize(
    ("url", "environment", "insecure_key", "sent"),
    [
        pytest.param("https://models.example.org", KEY, False, True, id="https"),
        pytest.param("http://127.0.0.1:8000", KEY, False, True, id="this machine"),
        pytest.param("http://[::1]:8000", KEY, False, True, id="this machine by its other address"),
        pytest.param("http://localhost:8000", KEY, False, True, id="this machine by name"),
        pytest.param("http://models.example.org", KEY, False, False, id="plain http to another machine"),
        pytest.param("http://10.0.0.7:8000", KEY, False, False, id="plain http in a network of one's own"),
        pytest.param("http://127.0.0.1.example.org", KEY, False, False, id="a name that looks like this machine"),
        pytest.param("http://models.example.org", KEY, True, True, id="as was asked for"),
        pytest.param("http://10.0.0.7", {"ENGINEBENCH_API_KEY": "a-secret"}, False, True, id="a key for load tests"),
    ],
)
def test_another_clients_key_is_not_sent_in_the_clear(
    url: str, environment: dict[str, str], insecure_key: bool, sent: bool
) -> None:
    access = access_to(url, "chat", (), False, environment, insecure_key)
    assert access.headers == ({"Authorization": "Bearer a-secret"} if sent else {})
    assert access.withheld == (None if sent else "OPENAI_API_KEY")
