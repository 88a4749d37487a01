"""Queries of the committed pages as Grafana sends them: with values in place of the variables."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import httpx

from grafana.build import BOARDS, target

DASHBOARDS: dict[str, dict[str, Any]] = {name: json.loads(target(name).read_text("utf-8")) for name in BOARDS}
VARIABLES: dict[str, dict[str, Any]] = {
    variable["name"]: variable for board in DASHBOARDS.values() for variable in board["templating"]["list"]
}
ALL = ".+"  # what Grafana sends for "All" if the variable has no value of its own for it


def filled_in(expr: str, **chosen: str) -> str:
    """Fill in variables: the values in `chosen`, and for the others those with which the pages open."""
    values = {name: _at_first(variable) for name, variable in VARIABLES.items()} | chosen
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), expr)


def _at_first(variable: dict[str, Any]) -> str:
    value = variable.get("current", {}).get("value", variable.get("query", ""))
    return value if isinstance(value, str) else ALL


def asked(api: httpx.Client, at: float | None, expr: str) -> list[dict[str, Any]]:
    """Ask at a Unix time, or now."""
    answer = api.get("/api/v1/query", params={"query": expr, "time": at or time.time()}).json()
    assert answer["status"] == "success", f"{expr}: {answer}"
    series: list[dict[str, Any]] = answer["data"]["result"]
    return series


def choices(api: httpx.Client, variable: dict[str, Any], at: float, seconds: int, chosen: dict[str, str]) -> list[str]:
    """Return a variable's choices in Grafana's order, on a page that covers the `seconds` up to `at`.

    The query's answer becomes text, which the variable's regular expression matches, as in Grafana's own libraries
    (@grafana/prometheus 13, @grafana/scenes 9).
    """
    query = re.fullmatch(r"query_result\((.+)\)", variable["query"]["query"])
    assert query is not None
    assert variable.get("sort", 0) == 0 or variable["includeAll"], "as Prometheus has sorted them"
    answer = asked(api, at, filled_in(query[1], **(chosen | {"__range_s": str(seconds)})))
    texts = [
        "{"
        + ",".join(f'{name}="{value}"' for name, value in series["metric"].items())
        + f"}} {series['value'][1]} {at}"
        for series in answer
    ]
    matches = [re.search(variable["regex"].strip("/"), text) for text in texts]
    return [match[1] for match in matches if match is not None]


def chosen_at_first(
    api: httpx.Client, board: dict[str, Any], at: float, seconds: int = 60, **chosen: str
) -> dict[str, str]:
    """Return the values of the variables that query Prometheus when the page opens; `chosen` are in its address."""
    values = {"__rate_interval": "4s", **chosen}
    for variable in board["templating"]["list"]:
        if "query_result" in str(variable["query"]) and variable["name"] not in values:
            offered = choices(api, variable, at, seconds, values)
            values[variable["name"]] = "|".join(offered) if variable.get("includeAll") else "".join(offered[:1])
    return values


def colour(panel: dict[str, Any], value: float) -> str:
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    colours: list[str] = [step["color"] for step in steps if step["value"] is None or step["value"] <= value]
    return colours[-1]
