"""Signatures of requests to Amazon, against a second computation from what the server received."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import CredentialRetrievalError

from loadtests.harness.client.authentication import access_to
from loadtests.harness.client.call import Call
from loadtests.harness.client.dialects.endpoints import DIALECTS
from tests.support.loadtests.asking import ask
from tests.support.servers.wire_script import WireServer, json_answer

ADDRESS = "https://bedrock-runtime.eu-west-3.amazonaws.com"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
CALL = Call("/model/a%3Amodel/converse", b'{"x": "\xc3\xa4"}', False, DIALECTS["bedrock"])


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither those of who runs the tests nor those of the machine."""
    for name in (*KEYS, "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def set_all(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("token", [None, "a-session-token"])
def test_the_signature_fits_the_request_that_the_server_receives(
    monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    set_all(monkeypatch, {**KEYS, "AWS_REGION": "us-east-1", **({"AWS_SESSION_TOKEN": token} if token else {})})
    with WireServer([json_answer("200 OK", {})]) as server:
        ask(server, CALL, access=access_to(server.url, "bedrock", (), {}))
        server.finish_writing()
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert headers.get("x-amz-security-token") == token
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/(\d{8}/us-east-1/bedrock/aws4_request), "
        r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})",
        headers["authorization"],
    )
    assert found is not None
    scope, names, signature = found.groups()
    assert {"host", "content-type", "x-amz-date"} <= set(names.split(";"))
    method, path, _ = first.split(" ")
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html; the path is encoded once more.
    signed = "".join(f"{name}:{headers[name]}\n" for name in names.split(";"))
    canonical = f"{method}\n{quote(path)}\n\n{signed}\n{names}\n{sha256(body).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    assert hmac.digest(key, text.encode(), "sha256").hex() == signature


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        pytest.param({}, "AWS_PROFILE, or AWS_BEARER_TOKEN_BEDROCK", id="no credentials"),
        pytest.param({"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY", id="half of them"),
        pytest.param({"AWS_PROFILE": "nobody"}, r"nobody", id="no such profile"),
        pytest.param(KEYS, "AWS_REGION", id="no region"),
    ],
)
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], sentence: str
) -> None:
    set_all(monkeypatch, environment)
    with pytest.raises(ValueError, match=sentence):
        access_to("http://127.0.0.1:1", "bedrock", (), {})


def test_without_botocore_its_installation_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtests.harness.client.dialects.bedrock.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"is not installed: pip install 'enginebench\[bedrock\]'"):
        access_to(ADDRESS, "bedrock", (), {"AWS_BEARER_TOKEN_BEDROCK": "k"})


def test_the_credentials_are_a_profiles_and_the_region_that_of_the_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile = f"[load]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(profile)
    set_all(monkeypatch, {"AWS_PROFILE": "load", "AWS_REGION": "us-east-1"})
    signer = access_to(ADDRESS, "bedrock", (), {}).signer
    assert signer is not None
    authorization = signer("h", CALL.path, CALL.body)["Authorization"]
    assert re.search(r"Credential=AKIDPROFILE/\d{8}/eu-west-3/bedrock/", authorization)


def test_credentials_that_cannot_be_renewed_fail_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, KEYS)
    access = access_to(ADDRESS, "bedrock", (), {})

    def expired(self: Credentials) -> ReadOnlyCredentials:
        raise CredentialRetrievalError(provider="sso", error_msg="the token has expired")

    monkeypatch.setattr(Credentials, "get_frozen_credentials", expired)
    with WireServer([]) as server:
        seen = ask(server, CALL, access=access)
    assert (seen.outcome, seen.t_send) == ("disconnected", None)
    assert "the AWS credentials could not be renewed" in (seen.detail or "")
    assert "the token has expired" in (seen.detail or "")
