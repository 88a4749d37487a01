"""The tab `Tokens` of Locust's page, which opens first: the live metrics, SLO verdict and findings of each stage, over
all workers. In the start form, page.js shows the planned stages and their time."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
from flask import Response, jsonify, request
from locust import argument_parser, events
from locust.env import Environment
from locust.runners import STATE_INIT

from enginebench.records.metrics import IN_FLIGHT, columns
from enginebench.records.stage import SECOND, Stage
from enginebench.records.view import StageView
from enginebench.settings.schema import UserMistake
from loadtests.harness.live.live_text import cell, findings_text, phase_of, slo_text
from loadtests.harness.live.same_origin import SameOrigin
from loadtests.harness.run.duration import duration_of
from loadtests.harness.run.options import read_options
from loadtests.harness.users.failures import forget, last_failure
from loadtests.harness.users.locust_events import process
from loadtests.harness.users.locust_run import Run

START_LIMIT = 30 * SECOND
KEY = "tokens"  # of the tab, in the page's address
SHOWN_BY_LOCUST = {"user_count", "spawn_rate", "run_time", "host", "profile"}
SCRIPT = "enginebench/page.js"
PLAN = "enginebench/plan"


def _rows(run: Run) -> list[dict[str, str]]:
    """Return a row of `titles` for each stage that has begun, the newest first."""
    assert run.planner is not None
    document = run.planner.live.document
    rows = []
    for stage in reversed(run.meta.stages):
        view = document.stage(stage.index)
        row = {"stage": f"{stage.index + 1}", "load": stage.label if view is None else view.label}
        row["phase"] = phase_of(stage)
        row["slo"] = _slo(stage, view) if run.metrics.objectives.for_all else ""
        row |= {"answered": f"{view.ok:,}", "failed": f"{view.failed:,}"} if view is not None else {}
        row |= {column.key: cell(view, column) for column in columns("live")}
        row[IN_FLIGHT] = f"{document.in_flight:,}" if stage.end is None else ""
        row["findings"] = findings_text(view)
        rows.append(dict.fromkeys(titles(), "") | row)
    return rows


def _slo(stage: Stage, view: StageView | None) -> str:
    """Return the verdict, or the stage's phase until there is one."""
    if stage.end is None:
        return "counting"
    return slo_text(view) if view is not None and view.judgements else "judging"


@events.init.add_listener
def _add_tab(environment: Environment, **_: Any) -> None:
    page = environment.web_ui
    if page is None or page.app is None:
        return
    page.app.jinja_env.policies["json.dumps_kwargs"] = {"sort_keys": False}  # most used settings first
    options = environment.parsed_options
    display_name = getattr(options, "web_host_display_name", None) or ""
    page.app.wsgi_app = SameOrigin(  # type: ignore[method-assign]
        page.app.wsgi_app, page.host, "--web-host-display-name", display_name
    )
    shown = SHOWN_BY_LOCUST | argument_parser.ui_extra_args_dict().keys()
    page.template_args |= {
        "extended_tabs": [{"title": "Tokens", "key": KEY}],
        "extended_tables": [
            {"key": KEY, "structure": [{"key": key, "title": title} for key, title in titles().items()]}
        ],
    }

    @page.app.before_request
    def refuse_hidden_options() -> Response | None:
        """Refuse options that the page does not show: Locust would accept any option, including paths and commands."""
        sent, allowed = set(request.form), shown
        if request.endpoint == "locust.update_user":
            edited = request.get_json(force=True, silent=True)
            sent, allowed = set(edited) if isinstance(edited, dict) else {"JSON"}, set()
        if hidden := sorted(sent - allowed):
            message = f"This page does not show `{hidden[0]}`: give it on the command line."
            refusal = jsonify({"success": False, "message": message})
            refusal.status_code = 400
            return refusal
        if request.endpoint == "locust.swarm":
            forget()
        return None

    @page.app.after_request
    def explain_failed_start(response: Response) -> Response:
        if request.path.endswith("/swarm") and response.is_json and response.get_json()["success"]:
            failure = _failure_to_start(environment)
            if failure is not None:
                answer = response.get_json() | {"success": False, "message": failure}
                response.set_data(json.dumps(answer))
        return response

    @page.app.after_request
    def add_rows(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.status_code == 200:
            rows = _rows(process.last) if process.last is not None else []
            stats = json.loads(response.get_data()) | {"extended_stats": [{"key": KEY, "data": rows}]}
            response.set_data(json.dumps(stats))
        return response

    @page.app.after_request
    def add_script(response: Response) -> Response:
        if request.endpoint == "locust.index" and response.mimetype == "text/html":
            html = response.get_data(as_text=True)
            response.set_data(html.replace("<head>", f'<head>\n    <script src="./{SCRIPT}"></script>', 1))
        return response

    def script() -> Response:
        return Response(Path(__file__).with_name("page.js").read_text(encoding="utf-8"), mimetype="text/javascript")

    def plan() -> Response:
        """Describe the stages and their time for the values of the start form, or the mistake in the values."""
        values = {name: text for name, text in request.args.items() if name in shown}
        try:
            scenario, _ = read_options(vars(environment.parsed_options) | values, process.scenario)
            return Response(duration_of(scenario).sentence(), mimetype="text/plain")
        except UserMistake as mistake:
            return Response(str(mistake), mimetype="text/plain")

    for path, view in ((SCRIPT, script), (PLAN, plan)):
        rule = f"{page.app.blueprints['locust'].url_prefix or ''}/{path}"
        page.app.add_url_rule(rule, path, page.auth_required_if_enabled(view))  # type: ignore[no-untyped-call]


def _failure_to_start(environment: Environment) -> str | None:
    """Wait until users are started or the run has failed; return the reason, or `None` if the run has begun."""
    runner = environment.runner
    assert runner is not None
    limit = monotonic_ns() + START_LIMIT
    while runner.state == STATE_INIT and last_failure() is None and monotonic_ns() < limit:
        gevent.sleep(0.02)
    return last_failure()


def titles() -> dict[str, str]:
    declared = {column.key: column.title for column in columns("live")}
    counts = {
        "stage": "Stage",
        "load": "Load",
        "phase": "Phase",
        "slo": "SLO",
        "answered": "Answers",
        "failed": "Failed",
    }
    return counts | declared | {IN_FLIGHT: "In flight", "findings": "Findings"}
