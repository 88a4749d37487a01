"""How a request ended, and whether the load on the server explains it."""

from __future__ import annotations

import pytest

from enginebench.records.request import Outcome
from loadtests.harness.client.outcome import load_explains
from tests.support.records import record


@pytest.mark.parametrize(
    ("outcome", "status", "reason", "unexplained"),
    [
        pytest.param("http_error", 400, None, True, id="a request that the server does not take"),
        pytest.param("http_error", 401, None, True, id="a key that is not valid"),
        pytest.param("http_error", 404, None, True, id="no such address or model"),
        pytest.param("http_error", 307, None, True, id="moved"),
        pytest.param("bad_stream", 200, None, True, id="not streamed, or malformed"),
        pytest.param("bad_stream", 200, "abort", False, id="aborted by the server"),
        pytest.param("http_error", 500, None, False, id="a server that breaks"),
        pytest.param("http_error", 408, None, False, id="a server that waited for too long"),
        pytest.param("rejected", 429, None, False, id="a server that refuses"),
        pytest.param("timeout", None, None, False, id="silence"),
        pytest.param("disconnected", None, None, False, id="no connection"),
        pytest.param("ok", 200, None, False, id="an answer"),
    ],
)
def test_what_load_does_not_explain(
    outcome: Outcome, status: int | None, reason: str | None, unexplained: bool
) -> None:
    assert load_explains(record(1, outcome=outcome, status=status, finish_reason=reason)) is not unexplained
