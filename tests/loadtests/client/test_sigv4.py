"""Signatures against the vectors of Amazon's own test suite (aws-sig-v4-test-suite)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from loadtests.harness.client.dialects.sigv4 import Credentials, signed_headers

KEYS = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwth"
    "Ax7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAk"
    "iY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
AT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "token", "signature"),
    [
        pytest.param("GET", "/", {}, b"", None,
                     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31", id="get-vanilla"),
        pytest.param("GET", "/?Param2=value2&Param1=value1", {}, b"", None,
                     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
                     id="get-vanilla-query-order-key-case"),
        pytest.param("GET", "/ሴ", {}, b"", None,
                     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85", id="get-utf8"),
        pytest.param("POST", "/", {}, b"", None,
                     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b", id="post-vanilla"),
        pytest.param("POST", "/", {"Content-Type": "application/x-www-form-urlencoded"}, b"Param1=value1", None,
                     "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a", id="post-form"),
        pytest.param("POST", "/", {}, b"", TOKEN,
                     "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead", id="post-sts-header-before"),
    ],
)  # fmt: skip
def test_signatures_are_those_of_the_test_suite(
    method: str, path: str, headers: dict[str, str], body: bytes, token: str | None, signature: str
) -> None:
    sent = {"Host": "example.amazonaws.com"} | headers
    added = signed_headers(Credentials(*KEYS, token), "us-east-1", "service", method, path, sent, body, AT)
    assert added["X-Amz-Date"] == "20150830T123600Z"
    assert added["Authorization"].rpartition("Signature=")[2] == signature
    assert added.get("X-Amz-Security-Token") == token
