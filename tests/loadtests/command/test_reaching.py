"""`enginebench run` and its sisters against servers that are hard to reach."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme

from enginebench.records.files import read_meta, read_requests
from loadtests.harness.run.options import processes_options
from tests.support.loadtests.locust_process import CONCURRENT, LOCUST, launch
from tests.support.loadtests.run_command import ENVIRONMENT, RUN, run_here
from tests.support.servers import odd
from tests.support.servers.odd import Odd, OddServer, answer
from tests.support.servers.wire_script import json_answer, token

SHORT = ("--stages", "1", "--stage-seconds", "1.5", "--warm-up", "0.5", "--output-tokens", "2")
ALONE = dict.fromkeys(("/v1/models", "/v1/engine", "/tokenize", "/metrics"), odd.closes)
ODD = ("ANTHROPIC", "LOCUST", "SSL")
GOOD = answer(token(), token(), gap=0.02, usage={"prompt_tokens": 9, "completion_tokens": 2})


def call(*words: object) -> tuple[int | None, str]:
    """Call `enginebench`, or Locust, in the current folder. Return the exit code, and what it says as one line."""
    if words[0] == LOCUST:
        locust = launch([str(word) for word in words], Path.cwd(), os.environ)
        said, _ = locust.communicate(timeout=120)
        code = locust.returncode
    else:
        done = run_here(*words)
        said, code = done.output, done.exit_code
    assert "Traceback" not in said
    return code, " ".join(said.split())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    for name in os.environ.keys() - ENVIRONMENT.keys() | {name for name in os.environ if name.startswith(ODD)}:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_endpoint_alone_is_measurable_whatever_is_configured_for_locust(folder: Path) -> None:
    """By its full address, its model named, TLS with a CA of one's own, and a header in place of the key."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "locust.conf").write_text("users = 5\nmaster = true\nexpect-workers = 3\n")
    (folder / "pyproject.toml").write_text("[tool.locust]\nspawn-rate = 7\nprocesses = 2\n")
    (folder / ".locust.conf").write_text("run-time = 1h\nnot a line of a configuration\n")
    environment = {"SSL_CERT_FILE": str(folder / "ca.pem"), "HOME": str(folder), "OPENAI_API_KEY": "a-key"}
    environment |= {"LOCUST_USERS": "9", "LOCUST_MODE_WORKER": "true", "LOCUST_HOST": "http://127.0.0.1:9"}
    path = "/openai/deployments/gpt/chat/completions"
    with OddServer(Odd(chat=GOOD, path=path, routes=ALONE), tls=context) as server:
        url = f"{server.url}{path}?api-version=2024-02-01"
        words = ("--url", url, "--model", "gpt", "--header", "authorization: Basic x", "--header", "X_Api_Key: 7")
        done = subprocess.run([*RUN, *SHORT, *words], env=os.environ | environment, capture_output=True, text=True)
        asked = server.asked_at(f"{path}?api-version=2024-02-01")
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    assert read_meta(run).url == url
    records = list(read_requests(run))
    assert {record.outcome for record in records} == {"ok"}
    assert len(asked) == len(records) + 1, "and the one that was tried before"
    assert {(request.headers["authorization"], request.headers["x_api_key"]) for request in asked} == {("Basic x", "7")}


LOCUSTS = (LOCUST, "-f", CONCURRENT, "--headless", "--only-summary")


def test_what_cannot_be_reached_is_said_in_a_sentence() -> None:
    """By plain Locust. By `run`: test_run_cli.py."""
    certificate, context = trustme.CA().issue_cert("127.0.0.1"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with OddServer(Odd(), tls=context) as server:
        url, (code, said) = server.url, call(*LOCUSTS, *SHORT, "--host", server.url)
    assert code == 2
    assert f"the certificate of {url} is not trusted (unable to get local issuer certificate): " in said
    assert "SSL_CERT_FILE, or skip the check with --insecure (ENGINEBENCH_INSECURE=1)." in said


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(("run", "concurrent", *SHORT, "--url"), id="run"),
        pytest.param((*LOCUSTS, *SHORT, *processes_options(2), "--host"), id="locust with two processes"),
    ],
)
def test_why_all_requests_of_a_short_run_failed_is_said(start: Sequence[object]) -> None:
    refusal = json_answer("400 Bad Request", {"error": {"message": "prompts must have at least 7 words"}})
    with OddServer(Odd(chat=[refusal])) as server:
        _, said = call(*start, server.url)
    assert said.count("All requests failed, most of them so: HTTP 400: prompts must have at least 7 words") == 1


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(("run", "rate", "--url"), id="run"),
        pytest.param((LOCUST, "-f", CONCURRENT.with_name("rate.py"), "--headless", "--host"), id="locust"),
    ],
)
def test_a_rate_without_an_arrival_is_refused(start: Sequence[object]) -> None:
    with OddServer(Odd()) as server:
        code, said = call(*start, server.url, "--rate", "0.05", "--stage-seconds", "4", "--warm-up", "1")
    assert code == 2
    assert (
        "no request would be sent: at 0.05 req/s none is due in a window of 3 s; make the stages longer "
        "(--stage-seconds) or the rate higher (--rate)."
    ) in said


def test_plain_locust_refuses_an_option_without_effect_from_its_files_too(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.locust]\nrun-time = '5s'")
    with OddServer(Odd()) as server:
        code, said = call(*LOCUSTS, "--host", server.url, *SHORT)
    assert code == 2
    assert (
        "--run-time has no effect: users and times come from --stages or --rate; leave it out, as well as "
        "LOCUST_RUN_TIME and `run-time` in Locust's configuration files."
    ) in said
