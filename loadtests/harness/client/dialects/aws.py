"""The signature of requests to Amazon, by botocore with its credentials: variables, profiles, SSO, roles.

https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.dialects.dialect import Signer


def aws_signer(host: str, key_variable: str) -> Signer:
    """Return a signer for the region in `host`, else for the configured one. `key_variable` is for a key that needs no
    signature.

    Raises `UserMistake` if credentials or a region are missing. The signer renews credentials that expire, and raises
    `OSError` if that fails.
    """
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import Session

    session = Session()
    try:
        region = _region_of(host) or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        credentials = session.get_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()  # expired credentials fail here, before the run
    except (BotoCoreError, ClientError) as error:
        raise UserMistake(f"the credentials for Bedrock cannot be used: {error}") from None
    if credentials is None:
        raise UserMistake(
            "Bedrock needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
            f"{key_variable}."
        )
    if region is None:
        raise UserMistake("Bedrock signs requests for a region: set AWS_REGION, such as us-east-1.")

    def sign(authority: str, path: str, body: bytes) -> Mapping[str, str]:
        sent = {"Host": authority, "Content-Type": "application/json"}
        request = AWSRequest("POST", f"https://{authority}{path}", sent, body)
        try:
            SigV4Auth(credentials.get_frozen_credentials(), "bedrock", region).add_auth(request)
        except (BotoCoreError, ClientError) as error:
            raise OSError(errno.EACCES, f"the AWS credentials could not be renewed: {error}") from None
        return {name: value for name, value in request.headers.items() if name not in sent}

    return sign


def _region_of(host: str) -> str | None:
    match = re.match(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com", host)
    return match[1] if match else None
