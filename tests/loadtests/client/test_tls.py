"""TLS: what is trusted, stamps below the encryption, and bytes that belong to no request."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import gevent
import pytest
import trustme

from loadtests.harness.client.client import Client
from tests.support.loadtests.asking import CHAT, GOOD_END, ask
from tests.support.servers.wire_script import (
    HEAD,
    Step,
    WireServer,
    delta,
    frame,
    token,
)

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def certificate() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_server(certificate: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.issue_cert("127.0.0.1").configure_cert(context)
    return context


def test_tls_is_verified_unless_told_otherwise(
    certificate: trustme.CA, tls_server: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: list[Step] = [
        HEAD + frame(delta(role="assistant")),
        0.05,
        frame(token()),
        0.05,
        frame(token()),
        0.05,
        GOOD_END,
    ]
    with WireServer(script, tls=tls_server) as server:
        refused = ask(server)
        assert (refused.outcome, refused.t_send) == ("disconnected", None)
        assert "is not trusted" in (refused.detail or "")
        assert ask(server, insecure=True).outcome == "ok"
        certificate.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        seen = ask(server)
        write = server.writes[-1][1]
    assert (seen.outcome, seen.chunks, seen.output_tokens) == ("ok", 2, 2)
    if sys.platform == "linux":  # decryption comes after the stamp, so TLS costs no truth
        assert seen.stamps == "kernel"
    assert seen.t_first is not None
    assert write.before - 0.0001e9 < seen.t_first < write.after + 0.04e9


def test_session_tickets_after_the_handshake_close_no_connection(tls_server: ssl.SSLContext) -> None:
    """A TLS 1.3 server sends them unasked: bytes that belong to no request, on a connection that is fine."""
    assert tls_server.num_tickets == 2
    with WireServer([HEAD, frame(token()), GOOD_END], tls=tls_server) as server:
        client = Client(server.url, insecure=True)
        client.connect()
        gevent.sleep(0.1)
        seen = client.request(CHAT, 0, lambda _: None)
        client.close()
        assert (seen.outcome, seen.t_connect, server.connections) == ("ok", None, 1)
