"""`enginebench run` and its sisters against servers that are hard to reach, through the real command lines."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import trustme

from enginebench.records.files import read_meta, read_requests
from loadtests.harness.run.options import processes_options
from tests.support.loadtests.locust_process import CONCURRENT, LOCUST
from tests.support.loadtests.run_command import ENVIRONMENT
from tests.support.servers import odd
from tests.support.servers.odd import Odd, OddServer, answer
from tests.support.servers.wire_script import json_answer, token

ENGINEBENCH = (sys.executable, "-m", "enginebench")
SHORT = ("--stages", "1", "--stage-seconds", "1.5", "--warm-up", "0.5", "--output-tokens", "2")
ALONE = dict.fromkeys(("/v1/models", "/v1/engine", "/tokenize", "/metrics"), odd.closes)
CLEAN = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("ANTHROPIC", "LOCUST", "SSL"))}
GOOD = answer(token(), token(), gap=0.02, usage={"prompt_tokens": 9, "completion_tokens": 2})


def command(
    *words: str, folder: Path, environment: Mapping[str, str] = {}, code: int | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=folder, env=CLEAN | {"PYTHONPATH": os.getcwd()} | dict(environment)
    )
    assert "Traceback" not in done.stderr + done.stdout
    assert code is None or done.returncode == code, done.stderr + done.stdout
    return done


def test_an_endpoint_alone_is_measurable_whatever_is_configured_for_locust(tmp_path: Path) -> None:
    """By its full address, its model named, TLS with a CA of one's own, and a header in place of the key."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "locust.conf").write_text("users = 5\nmaster = true\nexpect-workers = 3\n")
    (tmp_path / "pyproject.toml").write_text("[tool.locust]\nspawn-rate = 7\nprocesses = 2\n")
    (tmp_path / ".locust.conf").write_text("run-time = 1h\nnot a line of a configuration\n")
    environment = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "HOME": str(tmp_path), "OPENAI_API_KEY": "a-key"}
    environment |= {"LOCUST_USERS": "9", "LOCUST_MODE_WORKER": "true", "LOCUST_HOST": "http://127.0.0.1:9"}
    path = "/openai/deployments/gpt/chat/completions"
    with OddServer(Odd(chat=GOOD, path=path, routes=ALONE), tls=context) as server:
        url = f"{server.url}{path}?api-version=2024-02-01"
        words = ("run", "concurrent", "--url", url, "--model", "gpt", "--header", "authorization: Basic x", *SHORT)
        command(*ENGINEBENCH, *words, "--header", "X_Api_Key: 7", folder=tmp_path, environment=environment, code=0)
        asked = server.asked_at(f"{path}?api-version=2024-02-01")
    (run,) = (tmp_path / "runs").iterdir()
    assert read_meta(run).url == url
    records = list(read_requests(run))
    assert {record.outcome for record in records} == {"ok"}
    assert len(asked) == len(records) + 1, "and the one that was tried before"
    assert {(request.headers["authorization"], request.headers["x_api_key"]) for request in asked} == {("Basic x", "7")}


LOCUSTS = (LOCUST, "-f", str(CONCURRENT), "--headless", "--only-summary")
RUNNERS = pytest.mark.parametrize(
    "start",
    [
        pytest.param((*ENGINEBENCH, "run", "concurrent", *SHORT, "--url"), id="run"),
        pytest.param((*ENGINEBENCH, "quick", "--seconds", "20"), id="quick"),
        pytest.param((*LOCUSTS, *SHORT, "--host"), id="locust"),
    ],
)


@RUNNERS
def test_what_cannot_be_reached_is_said_in_a_sentence(start: Sequence[str], tmp_path: Path) -> None:
    certificate, context = trustme.CA().issue_cert("127.0.0.1"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with OddServer(Odd(), tls=context) as server:
        done = command(*start, server.url, folder=tmp_path, code=2)
        said = " ".join((done.stdout + done.stderr).split())
        assert f"the certificate of {server.url} is not trusted (unable to get local issuer certificate): " in said
        assert "SSL_CERT_FILE, or skip the check with --insecure (ENGINEBENCH_INSECURE=1)." in said


def test_the_address_that_was_tried_is_shown(tmp_path: Path) -> None:
    with OddServer(Odd(path="/elsewhere", routes={"/api/v4/models": odd.MODELS})) as server:
        done = command(*ENGINEBENCH, "quick", f"{server.url}/api/v4", folder=tmp_path, code=2)
        said = " ".join((done.stdout + done.stderr).split())
        assert f"{server.url}/api/v4/chat/completions answers 404 (no such page): choose another --endpoint" in said


@pytest.mark.parametrize(
    "start",
    [
        pytest.param((*ENGINEBENCH, "run", "concurrent", *SHORT, "--url"), id="run"),
        pytest.param((*LOCUSTS, *SHORT, *processes_options(2), "--host"), id="locust with two processes"),
    ],
)
def test_why_all_requests_of_a_short_run_failed_is_said(start: Sequence[str], tmp_path: Path) -> None:
    refusal = json_answer("400 Bad Request", {"error": {"message": "prompts must have at least 7 words"}})
    with OddServer(Odd(chat=[refusal])) as server:
        done = command(*start, server.url, folder=tmp_path)
    reason = "All requests failed, most of them so: HTTP 400: prompts must have at least 7 words"
    assert " ".join(done.stderr.split()).count(reason) == 1


@pytest.mark.parametrize(
    "start",
    [
        pytest.param((*ENGINEBENCH, "run", "rate", "--url"), id="run"),
        pytest.param((LOCUST, "-f", str(CONCURRENT.with_name("rate.py")), "--headless", "--host"), id="locust"),
    ],
)
def test_a_rate_without_an_arrival_is_refused(start: Sequence[str], tmp_path: Path) -> None:
    with OddServer(Odd()) as server:
        words = (*start, server.url, "--rate", "0.05", "--stage-seconds", "4", "--warm-up", "1")
        done = command(*words, folder=tmp_path, code=2)
    assert (
        "no request would be sent: at 0.05 req/s none is due in a window of 3 s; make the stages longer "
        "(--stage-seconds) or the rate higher (--rate)."
    ) in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("file", "text", "variable", "option"),
    [
        pytest.param("locust.conf", "users = 5", "", "users", id="a file in the folder"),
        pytest.param("pyproject.toml", "[tool.locust]\nrun-time = '5s'", "", "run-time", id="toml"),
        pytest.param("x", "", "LOCUST_SPAWN_RATE", "spawn-rate", id="a variable"),
    ],
)
def test_plain_locust_refuses_an_option_without_effect_from_any_source(
    file: str, text: str, variable: str, option: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    with OddServer(Odd()) as server:
        environment = {variable: "5"} if variable else {}
        done = command(*LOCUSTS, "--host", server.url, *SHORT, folder=tmp_path, environment=environment, code=2)
    assert (
        f"--{option} has no effect: users and times come from --stages or --rate; leave it out, as well as "
        f"LOCUST_{option.replace('-', '_').upper()} and `{option}` in Locust's configuration files."
    ) in done.stderr
