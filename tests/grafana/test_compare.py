"""Two real runs, one after the other on the same port, as the page Compare opens on them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.metrics import BY_NAME
from enginebench.settings.system import free_port
from grafana.load_promql import RUN_START, USERS
from tests.support.dashboards import DASHBOARDS, asked, choices, chosen_at_first, filled_in
from tests.support.loadtests.locust_process import start
from tests.support.prometheus import prometheus, until
from tests.support.servers.scripted import Script, ScriptedServer

BOARD = DASHBOARDS["compare"]
PANELS = {panel["title"]: panel for panel in BOARD["panels"] if panel["type"] != "row"}
TILES = [panel for panel in PANELS.values() if panel["title"].endswith(", B over A")]
# So slow, and so different, that a busy machine adds little to either.
SCRIPTS = {"before": Script(ttft=0.12, tpot=0.024, tokens=8), "after": Script(ttft=0.06, tpot=0.015, tokens=8)}
STAGES = {"before": "2,4,6", "after": "4,6"}
RANGE = 60  # seconds of the page


@dataclass(frozen=True)
class Recorded:
    """A Prometheus that saw both runs, at a time after them; and what their records say."""

    api: httpx.Client
    at: float
    runs: dict[str, RunSummary]
    opened: dict[str, str]  # what *Load test* chose while the first one was on

    @property
    def ids(self) -> list[str]:
        return [run.run_id for run in self.runs.values()]

    def ask(self, expr: str, **chosen: str) -> list[dict[str, Any]]:
        return asked(self.api, self.at, filled_in(expr, **(self.at_first | chosen)))

    def at_left_edge(self, expr: str) -> list[dict[str, Any]]:
        """Over the page's time range, a value a second."""
        span: dict[str, str | float] = {"start": self.at - RANGE, "end": self.at, "step": 1}
        answer = self.api.get("/api/v1/query_range", params={"query": filled_in(expr, **self.at_first), **span}).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    @property
    def at_first(self) -> dict[str, str]:
        return chosen_at_first(self.api, BOARD, self.at)

    def ratio(self, value: Callable[[RunSummary, str], float]) -> float:
        """B over A, over the stages that both have."""
        a, b = self.runs.values()
        common = [view.label for view in a.stages if view.label in {other.label for other in b.stages}]
        assert common == ["4 users", "6 users"]
        return math.prod(value(b, stage) / value(a, stage) for stage in common) ** (1 / len(common))


@pytest.fixture(scope="module")
def recorded(program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    port = free_port()
    folder, runs = tmp_path_factory.mktemp("prometheus") / "here", {}
    opened: dict[str, str] = {}
    folder.mkdir()
    with ExitStack() as stack:
        api = stack.enter_context(prometheus(program("prometheus"), folder, load=[f"127.0.0.1:{port}"]))
        for label, script in SCRIPTS.items():
            options = ["--stages", STAGES[label], "--stage-seconds", "5", "--warm-up", "1", "--label", label]
            with ScriptedServer(script) as server:
                locust = start(server, tmp_path_factory.mktemp(label), *options, "--exporter", f"127.0.0.1:{port}")
                locust.wait_until(lambda locust=locust: locust.stage is not None and locust.stage.index == 1)  # type: ignore[misc]
                started = f'{RUN_START}{{engine="{label}"}}'
                until(partial(asked, api, None, started), "the run has been scraped")
                opened = opened or chosen_at_first(api, DASHBOARDS["load-test"], time.time())
                assert "Traceback" not in locust.wait()
            runs[label] = summarise(load_run(locust.run))
        yield Recorded(api, time.time(), runs, opened)


def test_the_page_opens_on_the_last_two_runs(recorded: Recorded) -> None:
    chosen = recorded.at_first
    assert [chosen["run_a"], chosen["run_b"]] == recorded.ids
    for variable in BOARD["templating"]["list"]:
        if variable["name"] in {"run_a", "run_b"}:
            assert set(choices(recorded.api, variable, recorded.at, RANGE, {})) == set(recorded.ids), (
                "every run is offered"
            )


def test_load_test_follows_the_runs(recorded: Recorded) -> None:
    """A choice stays as long as it is offered: the page shows the run that is on, then the next one, then the last."""
    board = DASHBOARDS["load-test"]
    (run,) = (variable for variable in board["templating"]["list"] if variable["name"] == "run")
    first, second = recorded.ids
    assert recorded.opened["shown_runs"] == first
    assert choices(recorded.api, run, recorded.at, RANGE, {}) == [recorded.opened["run"], second, first]
    for chosen, shown in {recorded.opened["run"]: second, first: first, second: second}.items():
        assert chosen_at_first(recorded.api, board, recorded.at, run=chosen)["shown_runs"] == shown


def test_both_runs_begin_at_the_left_edge(recorded: Recorded) -> None:
    """A run's first sample is as far from it as from the run's start, however late a busy machine scraped."""
    for run, query in zip(recorded.ids, PANELS["Offered load, A and B"]["targets"], strict=True):
        (series,) = recorded.at_left_edge(query["expr"])
        (start,) = recorded.ask(f'last_over_time({RUN_START}{{run="{run}"}}[1h])')
        scraped = min(stage["values"][0][0] for stage in recorded.ask(f'{USERS}{{run="{run}"}}[1h]'))
        shown = series["values"][0][0] - (recorded.at - RANGE)
        rounded, step = 0.5, 1
        assert -rounded <= shown - (scraped - float(start["value"][1])) <= rounded + step


def test_output_b_over_a_is_the_ratio_of_the_records(recorded: Recorded) -> None:
    (tile,) = recorded.ask(PANELS["Output, B over A"]["targets"][0]["expr"])
    truth = recorded.ratio(lambda run, stage: _value(run, stage, "throughput", "value"))
    assert float(tile["value"][1]) == pytest.approx(truth, rel=0.03)
    assert truth > 1.1


@pytest.mark.parametrize("metric", ["ttft_user", "tpot", "e2e_user"])
def test_p99_b_over_a_is_the_ratio_of_the_records(recorded: Recorded, metric: str) -> None:
    (tile,) = recorded.ask(PANELS[f"{BY_NAME[metric].title} p99, B over A"]["targets"][0]["expr"])
    truth = recorded.ratio(lambda run, stage: _value(run, stage, metric, "p99"))
    assert float(tile["value"][1]) == pytest.approx(truth, rel=0.03)


def _value(run: RunSummary, stage: str, name: str, statistic: str) -> float:
    (view,) = (view for view in run.stages if view.label == stage)
    value = view.value(name, statistic)
    assert value is not None
    return value


def test_a_row_for_each_stage_has_its_numbers(recorded: Recorded) -> None:
    load, output_a, output_b, ratio, *_ = (
        {series["metric"]["stage"]: float(series["value"][1]) for series in recorded.ask(query["expr"])}
        for query in PANELS["Stage by stage"]["targets"]
    )
    assert load == {"2 users": 2, "4 users": 4, "6 users": 6}
    assert (set(output_a), set(output_b)) == ({"2 users", "4 users", "6 users"}, {"4 users", "6 users"})
    assert ratio == {stage: pytest.approx(output_b[stage] / output_a[stage]) for stage in output_b}


def test_a_stage_of_load_test_is_what_its_report_says(recorded: Recorded) -> None:
    (table,) = (
        panel for panel in DASHBOARDS["load-test"]["panels"] if panel["title"] == "TTFT (user) p99 against load"
    )
    run = recorded.runs["before"]
    found = recorded.ask(table["targets"][1]["expr"], shown_runs=run.run_id)
    shown = {one["metric"]["stage"]: float(one["value"][1]) for one in found}
    assert shown == {
        view.label: pytest.approx(_value(run, view.label, "ttft_user", "p99"), rel=0.03) for view in run.stages
    }


SAME = "A and B are the same run: choose another one above."
NONE = "A and B are not two load tests of the last 30 days: `enginebench run` makes one."


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        pytest.param({}, "B is {b}, A is {a}: stages that both have: 2", id="two runs"),
        pytest.param({"run_a": "{b}"}, SAME, id="the same run twice"),
        pytest.param({"run_b": "{a}"}, SAME, id="the same run twice, the other way"),
        pytest.param({"run_a": "no such run", "run_b": "neither"}, NONE, id="runs that are not there"),
        pytest.param({"run_a": "", "run_b": ""}, NONE, id="no run at all"),
    ],
)
def test_one_sentence_says_what_is_compared(recorded: Recorded, chosen: dict[str, str], expected: str) -> None:
    names = dict(zip("ab", recorded.ids, strict=True))
    given = {name: value.format(**names) for name, value in chosen.items()}
    values = chosen_at_first(recorded.api, BOARD, recorded.at, RANGE, **given)
    panel = PANELS["B over A"]
    legends = []
    for query in panel["targets"]:
        for series in asked(recorded.api, recorded.at, filled_in(query["expr"], **values)):
            text = re.sub(r"\{\{(\w+)\}\}", lambda match, of=series: of["metric"][match[1]], query["legendFormat"])  # type: ignore[misc]
            legends.append(filled_in(text, **values))
    assert legends == [expected.format(**names)]
    for each in PANELS.values():  # nothing is an error, and tiles have no number without a sentence that gives it sense
        for query in each["targets"]:
            found = asked(recorded.api, recorded.at, filled_in(query["expr"], **values))
            if each in TILES:
                assert bool(found) == (not chosen)


def test_every_query_is_answered(recorded: Recorded) -> None:
    for title, panel in PANELS.items():
        if title not in {"B over A", "Failures, A and B", "Goodput", "Attainment, A and B"}:  # no failures, no SLO here
            for query in panel["targets"]:
                answered = recorded.at_left_edge if query["range"] else recorded.ask
                assert answered(query["expr"]), f"{title}: {query['expr']}"
