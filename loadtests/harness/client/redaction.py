"""The redaction of keys in records and messages: a server may quote a request in an error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from enginebench.records.plain_text import plain
from loadtests.harness.client.model_answer import CUT

HIDDEN = "***"
MIN_SECRET = 4  # characters: shorter values are parts of ordinary words
PUBLIC = {"anthropic-version", "x-amz-date"}  # an API's headers without a secret


def redacted(text: str, headers: Mapping[str, str]) -> str:
    """Return a server's `text` without control characters, and with `***` in place of the values of `headers`,
    including a partial value at the end, where the text may have been cut."""
    text = plain(text)
    secrets = sorted(_secrets(headers), key=len, reverse=True)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    kept = text.removesuffix(CUT)
    for secret in secrets:
        if secret[:MIN_SECRET] not in kept[-len(secret) :]:
            continue
        for length in range(len(secret) - 1, MIN_SECRET - 1, -1):
            if kept.endswith(secret[:length]):
                return kept[:-length] + HIDDEN + text[len(kept) :]
    return text


def _secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield each secret in its own form, escaped as in JSON, and with its white space as in a single line."""
    for name, value in headers.items():
        if name.lower() in PUBLIC:
            continue
        if name.lower().endswith("authorization"):
            value = value.partition(" ")[2] or value  # without the scheme, such as Bearer
        for written in {value, json.dumps(value)[1:-1], " ".join(value.split())}:
            if len(written) >= MIN_SECRET:
                yield written
