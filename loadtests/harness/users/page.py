"""A tab of Locust's page: TTFT, TPOT, tokens per second and requests in flight of each stage, over all workers."""

from __future__ import annotations

import json
from time import monotonic_ns
from typing import Any

from flask import Response, request
from locust import events
from locust.env import Environment

from loadtests.harness.recording.live import COLUMNS, rows
from loadtests.harness.users.active_run import ActiveRun
from loadtests.harness.users.events import current_run

KEY = "tokens"  # of the tab, in the page's address

_shown: ActiveRun | None = None
"""The run that is on, or was on last."""


@events.init.add_listener
def _add_tab(environment: Environment, **_: Any) -> None:
    page = environment.web_ui
    if page is None or page.app is None:
        return
    page.template_args |= {
        "extended_tabs": [{"title": "Tokens", "key": KEY}],
        "extended_tables": [
            {"key": KEY, "structure": [{"key": key, "title": title} for key, title in COLUMNS.items()]}
        ],
    }

    @page.app.after_request
    def add_rows(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.status_code == 200:
            stats = json.loads(response.get_data()) | {"extended_stats": [{"key": KEY, "data": _rows()}]}
            response.set_data(json.dumps(stats))
        return response


@events.test_start.add_listener
def _show(environment: Environment, **_: Any) -> None:
    global _shown
    _shown = current_run()


def _rows() -> list[dict[str, str]]:
    if _shown is None or _shown.exporter is None:
        return []
    return rows(_shown.stages, _shown.exporter.total, monotonic_ns() - _shown.start)
