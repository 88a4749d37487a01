"""Signatures of requests to Amazon, version 4.

https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def signed_headers(
    credentials: Credentials,
    region: str,
    service: str,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    at: datetime | None = None,
) -> dict[str, str]:
    """The headers to add to a request that is sent with `headers`, all of which are signed, `Host` among them.

    `path` is the one of the request line, encoded, perhaps with a query. `at` is the time of signing, by default now; a
    signature is accepted for five minutes.
    """
    now = (at or datetime.now(UTC)).astimezone(UTC)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    added = {"X-Amz-Date": stamp}
    if credentials.session_token is not None:
        added["X-Amz-Security-Token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in {**headers, **added}.items()}
    names = ";".join(sorted(signed))
    uri, _, query = path.partition("?")
    canonical = "\n".join(
        [
            method,
            quote(uri, safe="/-_.~"),  # encoded once more than in the request line, for every service but S3
            "&".join(sorted(query.split("&"))),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            sha256(body).hexdigest(),
        ]
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    to_sign = "\n".join([ALGORITHM, stamp, scope, sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    authorization = f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, "
    return added | {"Authorization": authorization + f"Signature={signature}"}
