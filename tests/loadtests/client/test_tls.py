"""TLS: what is trusted, stamps below the encryption, and bytes that belong to no request."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import gevent
import pytest
import trustme

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.client import Client
from loadtests.harness.client.connection import tls_context
from loadtests.harness.run.prepare import prepare
from loadtests.harness.scenario import Scenario, users
from loadtests.harness.settings.run import RunSettings
from tests.support.loadtests.asking import CHAT, GOOD_END, ask, due
from tests.support.servers.wire_script import (
    HEAD,
    HEAD_UNTIL_CLOSE,
    Step,
    WireServer,
    delta,
    finish,
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
        tls_context.cache_clear()  # as a new process
        seen = ask(server)
        write = server.writes[-1][1]
    assert (seen.outcome, seen.chunks, seen.output_tokens) == ("ok", 2, 2)
    if sys.platform == "linux":  # decryption comes after the stamp, so TLS costs no truth
        assert seen.stamps == "kernel"
    assert seen.t_first is not None
    assert write.before - 0.0001e9 < seen.t_first < write.after + 0.04e9


def test_the_certificate_is_checked_however_the_scheme_is_written(tls_server: ssl.SSLContext, tmp_path: Path) -> None:
    scenario = Scenario(stages=users("1"))
    with WireServer([HEAD, GOOD_END], tls=tls_server) as server:
        url = server.url.replace("https", "HTTPS")
        with pytest.raises(UserMistake, match="certificate verify failed"):
            prepare("single", scenario, RunSettings(runs=tmp_path), url, scenario.plan(), 1, 1, grace=0.0)
    assert server.requests == [], "no key has left this machine"


def test_all_clients_of_a_process_share_one_context() -> None:
    """Each took 63 ms to read the trust store, a minute for a thousand users."""
    contexts = {id(Client("https://127.0.0.1:1", insecure=True)._tls) for _ in range(3)}
    assert len(contexts) == 1
    assert tls_context(False) is not tls_context(True)


def test_session_tickets_after_the_handshake_close_no_connection(tls_server: ssl.SSLContext) -> None:
    """A TLS 1.3 server sends them unasked: bytes that belong to no request, on a connection that is fine."""
    assert tls_server.num_tickets == 2
    with WireServer([HEAD, frame(token()), GOOD_END], tls=tls_server) as server:
        client = Client(server.url, insecure=True)
        client.connect()
        gevent.sleep(0.1)
        seen = client.request(CHAT, due(0), lambda _: None)
        client.close()
        assert (seen.outcome, seen.t_connect, server.connections) == ("ok", None, 1)


def test_a_tls_stream_has_ended_though_the_server_waits_for_the_client_to_close_the_connection(
    tls_server: ssl.SSLContext,
) -> None:
    """As asyncio's servers do; the message of TLS that ends it may come in the read that holds the last bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            accepted, _ = listener.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = tls_server.wrap_bio(incoming, outgoing, server_side=True)

            def until_done(step: Callable[[], object]) -> None:
                while True:
                    try:
                        step()
                        break
                    except ssl.SSLWantReadError:
                        accepted.sendall(outgoing.read())
                        incoming.write(accepted.recv(65536))

            until_done(tls.do_handshake)
            until_done(lambda: tls.read(65536))
            tls.write(HEAD_UNTIL_CLOSE + token() + finish())
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
            accepted.sendall(outgoing.read())
            closed.append(accepted.recv(65536))
            accepted.close()

        closed: list[bytes] = []
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        client = Client(f"https://127.0.0.1:{listener.getsockname()[1]}", insecure=True, silence_timeout=5)
        seen = client.request(CHAT, due(0), lambda _: None)
        client.close()
        thread.join(5)
    assert (seen.outcome, seen.chunks, seen.finish_reason) == ("ok", 1, "stop")
    assert len(closed) == 1, "the server saw the client close"
