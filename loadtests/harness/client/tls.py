"""The TLS settings of all connections, and the sentence about an untrusted certificate."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import cache

from enginebench.settings.schema import UserMistake

CA_FILE = "SSL_CERT_FILE"
UNKNOWN_ISSUER = {2, 18, 19, 20, 21}  # OpenSSL's X509_V_ERR_* of a chain that ends in no trusted certificate


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How a connection is encrypted."""

    insecure: bool = False  # the certificate is not checked


CHECKED = TlsOptions()


@cache
def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context of all connections of a process: reading the trust store takes 40 to 60 ms.

    Unless `options.insecure`, certificates and host names are checked against the system's trust store, or that of
    `SSL_CERT_FILE` and `SSL_CERT_DIR`. Raises `UserMistake`.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    # Python 3.13 requires extensions that internal CAs often lack; OpenSSL itself, curl and browsers do not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif file := os.environ.get(CA_FILE):
        try:
            context.load_verify_locations(file)  # OpenSSL ignores a file that it cannot read
        except OSError as error:
            reason = "no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise UserMistake(f"{CA_FILE} names {file}, which cannot be read ({reason}).") from None
    return context


def not_trusted(where: str, error: ssl.SSLCertVerificationError) -> str:
    """Return why the certificate of `where` was refused, and what to do."""
    reason = error.verify_message.rstrip(".")
    ca = f"name the file of its CA in {CA_FILE}, or " if error.verify_code in UNKNOWN_ISSUER else ""
    skip = "skip the check with --insecure (ENGINEBENCH_INSECURE=1)"
    return f"the certificate of {where} is not trusted ({reason}): {ca}{skip}"
