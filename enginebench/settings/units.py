"""Units that people type."""

from __future__ import annotations

import re

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def in_seconds(text: str) -> str:
    """Replace every time with a unit by its seconds: `20x5m,60x90s` becomes `20x300,60x90`."""
    return re.sub(r"(\d*\.?\d+)(ms|s|min|m|h)(?![a-z\d])", lambda time: f"{parse_seconds(time[0]):.15g}", text)


def parse_seconds(text: str) -> float:
    """Read `500ms`, `5s`, `2m`, `1h`, or a bare number of seconds. Raises `ValueError`."""
    match = re.fullmatch(r"(.*?)\s*(ms|s|m|min|h)?", text.strip())
    assert match is not None
    return float(match[1]) * UNITS[match[2] or "s"]
