"""TLS: what is trusted, stamps below the encryption, and bytes that belong to no request."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest
import trustme

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.client import Client
from loadtests.harness.client.dialects.endpoints import DIALECTS
from loadtests.harness.client.tls import CHECKED, TlsOptions, tls_context
from loadtests.harness.recording.telemetry_sampler import Scraper
from loadtests.harness.run.fitting import fitted
from loadtests.harness.run.prepare import prepare
from loadtests.harness.run.target import Target
from loadtests.harness.scenario import Scenario, users
from loadtests.harness.settings.run_settings import RunSettings
from tests.support.loadtests.asking import GOOD_END, ask, due
from tests.support.servers.odd import Odd, OddServer
from tests.support.servers.wire_script import HEAD, HEAD_UNTIL_CLOSE, Step, WireServer, delta, finish, frame, token

pytestmark = pytest.mark.alone

UNCHECKED = Access(tls=TlsOptions(insecure=True))


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """The trust store is read once for each process."""
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


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
        assert ask(server, access=UNCHECKED).outcome == "ok"
        trust(certificate, tmp_path, monkeypatch)
        tls_context.cache_clear()
        seen = ask(server)
        write = server.writes[-1][1]
    assert (seen.outcome, seen.chunks, seen.output_tokens) == ("ok", 2, 2)
    if sys.platform == "linux":  # decryption comes after the stamp, so TLS costs no truth
        assert seen.stamps == "kernel"
    assert seen.t_first is not None
    assert write.before - 0.0001e9 < seen.t_first < write.after + 0.04e9


def trust(certificate: trustme.CA, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate.cert_pem.write_to_path(str(folder / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))


@pytest.mark.parametrize(
    ("wanted", "model"),
    [pytest.param(None, "odd-model", id="a model is listed"), pytest.param("mine", "mine", id="a model is named")],
)
def test_what_the_measuring_client_trusts_the_preparation_trusts_too(
    certificate: trustme.CA,
    tls_server: ssl.SSLContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: str | None,
    model: str,
) -> None:
    trust(certificate, tmp_path, monkeypatch)
    page = [b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nvllm:running 3\n"]
    with OddServer(Odd(routes={"/metrics": page}), tls=tls_server) as server, Target(server.url, Access()) as target:
        workload, _ = fitted(target, Scenario(), RunSettings(model=wanted))
        assert workload.model == model
        assert [request.path for request in server.asked_at("/v1/chat/completions")] == ["/v1/chat/completions"]
        assert Scraper(server.url, Access()).scrape() == {"vllm:running": 3.0}
        assert ask(server).outcome == "ok"


UNKNOWN = "name the file of its CA in SSL_CERT_FILE, or skip the check with --insecure (ENGINEBENCH_INSECURE=1)"


@pytest.mark.parametrize("wanted", [None, "mine"], ids=["a model is listed", "a model is named"])
@pytest.mark.parametrize(
    ("name", "trusted", "reason"),
    [
        pytest.param("127.0.0.1", False, f"unable to get local issuer certificate): {UNKNOWN}", id="an unknown CA"),
        pytest.param("self-signed", False, f"self-signed certificate): {UNKNOWN}", id="self-signed"),
        pytest.param(
            "another.example",
            True,
            "IP address mismatch, certificate is not valid for '127.0.0.1'): skip the check with --insecure",
            id="another name, for which no file helps",
        ),
    ],
)
def test_a_certificate_that_is_not_trusted_gets_the_way_out(
    certificate: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    trusted: bool,
    reason: str,
    wanted: str | None,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if name == "self-signed":
        issuer = trustme.CA()
        issuer.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        issuer.cert_pem.write_to_path(str(tmp_path / "certificate.pem"))
        context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    else:
        certificate.issue_cert(name).configure_cert(context)
    if trusted:
        trust(certificate, tmp_path, monkeypatch)
    scenario = Scenario(stages=users("1"))
    with OddServer(Odd(), tls=context) as server:
        settings = RunSettings(runs=tmp_path, model=wanted)
        url = server.url.replace("https", "HTTPS")  # checked however the scheme is written
        with pytest.raises(UserMistake) as refused:
            prepare("single", scenario, settings, url, scenario.plan(), (0,), 1, grace=0.0)
        assert server.requests == [], "no key has left this machine"
        said = str(refused.value)
        assert said.startswith(f"the certificate of {server.url} is not trusted (")
        assert reason in said
        with Target(server.url, UNCHECKED) as target:
            assert target.model(None, DIALECTS["chat"]) == "odd-model"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), ("", "no certificate in it"), ("x", "no certificate in it")],
)
def test_a_file_of_certificates_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, reason: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(UserMistake, match=re.escape(f"SSL_CERT_FILE names {file}, which cannot be read ({reason}).")):
        Target("https://127.0.0.1:1", Access())
    assert tls_context(UNCHECKED.tls).verify_mode == ssl.CERT_NONE


def test_all_clients_of_a_process_share_one_context() -> None:
    """Each took 63 ms to read the trust store, a minute for a thousand users."""
    contexts = {id(Client("https://127.0.0.1:1", access=UNCHECKED)._tls) for _ in range(3)}
    assert len(contexts) == 1
    assert tls_context(CHECKED) is not tls_context(UNCHECKED.tls)


def test_session_tickets_after_the_handshake_close_no_connection(tls_server: ssl.SSLContext) -> None:
    """A TLS 1.3 server sends them unasked: bytes that belong to no request, on a connection that is fine."""
    assert tls_server.num_tickets == 2
    with WireServer([HEAD, frame(token()), GOOD_END], tls=tls_server) as server:
        client = Client(server.url, access=UNCHECKED)
        client.connect()
        gevent.sleep(0.1)
        seen = client.request(due(0))
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
        client = Client(f"https://127.0.0.1:{listener.getsockname()[1]}", access=UNCHECKED, request_timeout=5)
        seen = client.request(due(0))
        client.close()
        thread.join(5)
    assert (seen.outcome, seen.chunks, seen.finish_reason) == ("ok", 1, "stop")
    assert len(closed) == 1, "the server saw the client close"
