"""Keeps keys out of records and messages: a server may quote in an error what it was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from enginebench.records.plain_text import plain
from loadtests.harness.client.model_answer import CUT

HIDDEN = "***"
SHORTEST = 4  # characters; less is no secret, and is a part of ordinary words
PUBLIC = {"anthropic-version", "x-amz-date"}  # an API's own headers that hold no secret


def redacted(text: str, headers: Mapping[str, str]) -> str:
    """A server's `text` without control characters, and with `***` in place of the values of `headers`, and of the
    first part of one at the end, where the text may have been cut."""
    text = plain(text)
    secrets = sorted(_secrets(headers), key=len, reverse=True)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    kept = text.removesuffix(CUT)
    for secret in secrets:
        if secret[:SHORTEST] not in kept[-len(secret) :]:
            continue
        for length in range(len(secret) - 1, SHORTEST - 1, -1):
            if kept.endswith(secret[:length]):
                return kept[:-length] + HIDDEN + text[len(kept) :]
    return text


def _secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """Each as it was sent, as JSON has it, and as it is in a text of one line."""
    for name, value in headers.items():
        if name.lower() in PUBLIC:
            continue
        if name.lower().endswith("authorization"):
            value = value.partition(" ")[2] or value  # without the scheme, such as Bearer
        for written in {value, json.dumps(value)[1:-1], " ".join(value.split())}:
            if len(written) >= SHORTEST:
                yield written
