"""Queries of the committed pages as Grafana sends them: with values in place of the variables."""

from __future__ import annotations

import json
import re
from typing import Any

from grafana.build import BOARDS, target

DASHBOARDS: dict[str, dict[str, Any]] = {name: json.loads(target(name).read_text("utf-8")) for name in BOARDS}
VARIABLES: dict[str, dict[str, Any]] = {
    variable["name"]: variable for board in DASHBOARDS.values() for variable in board["templating"]["list"]
}
ALL = ".+"  # what Grafana sends for "All" where a variable names no value for it


def filled_in(expr: str, **chosen: str) -> str:
    """`chosen` are values of variables; the others have those that the pages open with."""
    values = {name: _at_first(variable) for name, variable in VARIABLES.items()} | chosen
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), expr)


def _at_first(variable: dict[str, Any]) -> str:
    value = variable.get("current", {}).get("value", variable.get("query", ""))
    return value if isinstance(value, str) else ALL
