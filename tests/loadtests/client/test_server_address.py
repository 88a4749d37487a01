"""Where a server's pages are, by the address that was given."""

from __future__ import annotations

import pytest

from loadtests.harness.client.dialects.endpoints import Endpoint
from loadtests.harness.client.server_address import Address

CHAT, MODELS, METRICS = "/v1/chat/completions", "/v1/models", "/metrics"


@pytest.mark.parametrize(
    ("url", "chat", "models", "metrics"),
    [
        pytest.param("http://x:1", CHAT, MODELS, METRICS, id="an origin"),
        pytest.param("http://x:1/", CHAT, MODELS, METRICS, id="with a slash"),
        pytest.param("http://x:1/v1/", CHAT, MODELS, METRICS, id="a base URL as OpenAI's clients take it"),
        pytest.param("http://x:1//v1//", CHAT, MODELS, METRICS, id="with slashes too many"),
        pytest.param("http://x:1/v1/models", CHAT, MODELS, METRICS, id="the list of models"),
        pytest.param("http://x/proxy", f"/proxy{CHAT}", f"/proxy{MODELS}", "/proxy/metrics", id="a path before v1"),
        pytest.param("http://x/proxy/v1", f"/proxy{CHAT}", f"/proxy{MODELS}", "/proxy/metrics", id="and with it"),
        pytest.param(
            "http://x/api/v1/namespaces/n/services/s:80/proxy/",
            f"/api/v1/namespaces/n/services/s:80/proxy{CHAT}",
            f"/api/v1/namespaces/n/services/s:80/proxy{MODELS}",
            "/api/v1/namespaces/n/services/s:80/proxy/metrics",
            id="a proxy of Kubernetes, whose own version is not the API's",
        ),
        pytest.param(
            "https://x/api/paas/v4", "/api/paas/v4/chat/completions", "/api/paas/v4/models", "/api/paas/metrics",
            id="another version",
        ),
        pytest.param(
            "https://x/v1beta/openai/", "/v1beta/openai/chat/completions", "/v1beta/openai/models", METRICS, id="Gemini"
        ),
        pytest.param("http://x/v2.1", "/v2.1/chat/completions", "/v2.1/models", METRICS, id="a version with a point"),
        pytest.param(
            "https://x/v1/account/gateway/openai",
            "/v1/account/gateway/openai/chat/completions", "/v1/account/gateway/openai/models", METRICS,
            id="Cloudflare's gateway",
        ),
        pytest.param(
            "https://x/openai/v1/?api-version=preview",
            "/openai/v1/chat/completions?api-version=preview", "/openai/v1/models?api-version=preview",
            "/openai/metrics?api-version=preview",
            id="a base URL with a query",
        ),
        pytest.param("http://x:1/v1/chat/completions", CHAT, MODELS, METRICS, id="a full address"),
        pytest.param("http://x:1/v1/chat/completions/", f"{CHAT}/", MODELS, METRICS, id="with a slash, which is kept"),
        pytest.param("http://x/chat/completions", "/chat/completions", "/models", METRICS, id="one without a version"),
        pytest.param(
            "https://x/openai/deployments/gpt%2D4/chat/completions?api-version=2024-02-01&a=b%20c",
            "/openai/deployments/gpt%2D4/chat/completions?api-version=2024-02-01&a=b%20c",
            "/openai/deployments/gpt%2D4/models?api-version=2024-02-01&a=b%20c",
            "/openai/deployments/gpt%2D4/metrics?api-version=2024-02-01&a=b%20c",
            id="Azure's deployments",
        ),
    ],
)  # fmt: skip
def test_what_is_asked_where(url: str, chat: str, models: str, metrics: str) -> None:
    address = Address.parse(url)
    asked = (address.target_of_model(CHAT), address.target(MODELS), address.target(METRICS))
    assert asked == (chat, models, metrics)


@pytest.mark.parametrize(
    ("url", "speaks"),
    [
        ("http://x/v1", None),
        ("http://x/v1/chat/completions", "chat"),
        ("http://x/v1/completions", "completions"),
        ("http://x/v1/responses", "responses"),
        ("http://x/v1/messages?beta=true", "messages"),
        ("http://x/model/a%3Ab/converse-stream", "bedrock"),
    ],
)
def test_a_full_address_is_of_one_endpoint(url: str, speaks: Endpoint | None) -> None:
    address = Address.parse(url)
    assert address.endpoint == speaks
    address.check(speaks or "chat")
    if speaks is not None:
        other: Endpoint = "completions" if speaks == "chat" else "chat"
        with pytest.raises(ValueError, match=f"is an address of --endpoint {speaks}, and {other} is tested: give"):
            address.check(other)


@pytest.mark.parametrize(
    ("url", "host"), [("http://bücher.example/v1", "xn--bcher-kva.example"), ("https://[::1]:8443", "[::1]:8443")]
)
def test_the_host_is_written_as_http_has_it(url: str, host: str) -> None:
    assert Address.parse(url).authority == host


@pytest.mark.parametrize("name", ["key", "api_key", "api-key", "apikey", "access_token", "sig", "X-Amz-Signature"])
def test_a_key_in_a_query_would_be_written_down(name: str) -> None:
    with pytest.raises(ValueError, match="send it by --header instead") as refused:
        Address.parse(f"https://x/v1?{name}=a-secret")
    assert "a-secret" not in str(refused.value)
