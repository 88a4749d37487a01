"""A tab of Locust's page: what is declared to be shown live, and the findings, of each stage over all workers."""

from __future__ import annotations

import json
from time import monotonic_ns
from typing import Any

import gevent
from flask import Response, request
from locust import events
from locust.env import Environment
from locust.runners import STATE_INIT

from loadtests.harness.live.cells import cell, findings_text, phase_of
from loadtests.harness.users.events import current_run
from loadtests.harness.users.failures import forget, last_failure
from loadtests.harness.users.run_process import RunProcess
from records.metrics import columns
from records.stage import SECOND

START_LIMIT = 30 * SECOND
KEY = "tokens"  # of the tab, in the page's address

_shown: RunProcess | None = None
"""The run that is on, or was on last."""


@events.init.add_listener
def _add_tab(environment: Environment, **_: Any) -> None:
    page = environment.web_ui
    if page is None or page.app is None:
        return
    page.template_args |= {
        "extended_tabs": [{"title": "Tokens", "key": KEY}],
        "extended_tables": [
            {"key": KEY, "structure": [{"key": key, "title": title} for key, title in titles().items()]}
        ],
    }

    @page.app.before_request
    def forget_the_last_failure() -> None:
        if request.path.endswith("/swarm"):
            forget()

    @page.app.after_request
    def say_why_it_did_not_start(response: Response) -> Response:
        if request.path.endswith("/swarm") and response.is_json and response.get_json()["success"]:
            failure = _failure_to_start(environment)
            if failure is not None:
                answer = response.get_json() | {"success": False, "message": failure}
                response.set_data(json.dumps(answer))
        return response

    @page.app.after_request
    def add_rows(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.status_code == 200:
            stats = json.loads(response.get_data()) | {"extended_stats": [{"key": KEY, "data": _rows()}]}
            response.set_data(json.dumps(stats))
        return response


def _failure_to_start(environment: Environment) -> str | None:
    """Wait until users are started or the run has failed; preparing it asks the server. `None` where it has begun."""
    runner = environment.runner
    assert runner is not None
    limit = monotonic_ns() + START_LIMIT
    while runner.state == STATE_INIT and last_failure() is None:
        if monotonic_ns() > limit:
            break
        gevent.sleep(0.02)
    return last_failure()


@events.test_start.add_listener
def _show(environment: Environment, **_: Any) -> None:
    global _shown
    _shown = current_run()


def titles() -> dict[str, str]:
    """Of the columns, by key."""
    declared = {column.key: column.title for column in columns("live")}
    counts = {"stage": "Stage", "load": "Load", "phase": "Phase", "answered": "Answers", "failed": "Failed"}
    return counts | declared | {"in_flight": "In flight", "findings": "Findings"}


def _rows() -> list[dict[str, str]]:
    """A row of `titles` for each stage that has begun, the newest first."""
    if _shown is None or _shown.live is None:
        return []
    document, rows = _shown.live.document, []
    for stage in reversed(_shown.stages):
        view = document.stage(stage.index)
        row = {"stage": f"{stage.index + 1}", "load": stage.label if view is None else view.label}
        row["phase"] = phase_of(stage)
        row |= {"answered": f"{view.ok:,}", "failed": f"{view.failed:,}"} if view is not None else {}
        row |= {column.key: cell(view, column) for column in columns("live")}
        row |= {"in_flight": f"{document.in_flight:,}" if stage.end is None else "", "findings": findings_text(view)}
        rows.append(dict.fromkeys(titles(), "") | row)
    return rows
