"""A scenario: the load, and the requests. Each file in `loadtests/` defines one and is a locustfile.

Each field is a setting, declared once in `settings/`: it becomes a flag of `locust -f` and of `enginebench run`, a
field of Locust's page and an environment variable. A scenario has its own defaults, which a flag or a variable
overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from enginebench.records.formatting import in_words
from enginebench.records.slo import Objective, parse_objectives
from enginebench.records.stage import StagePlan
from enginebench.settings.schema import UserMistake, settings_of
from loadtests.harness.schedule.growth import Growth
from loadtests.harness.schedule.load_grammar import parse_rates, parse_users
from loadtests.harness.schedule.search.prober import Prober, SearchPlan
from loadtests.harness.schedule.stages import check_arrivals, plan_stages
from loadtests.harness.schedule.trace import Trace, trace_stage
from loadtests.harness.settings.load_settings import LoadSettings
from loadtests.harness.settings.request_settings import RequestSettings
from loadtests.harness.settings.search_settings import PRECISION, SearchSettings
from loadtests.harness.workload.classes import parse_classes
from loadtests.harness.workload.datasets import dataset
from loadtests.harness.workload.distributions import parse_pause
from loadtests.harness.workload.lengths import parse_lengths, parse_several
from loadtests.harness.workload.trace_files import read_trace

# Values of a scenario: `users("10,20-40:10")`, `rates("2,4,8")` and `tokens("10,50")` make one stage for each number;
# `tokens("uniform:64-192")` makes one stage with random lengths.
users, rates, tokens = parse_users, parse_rates, parse_several
# `length("uniform:2-12")` and `pause("lognormal:4,0.7")`, in seconds, are single values or distributions.
length, pause = parse_lengths, parse_pause
# `request_classes("chat: weight=3 prompt=200; batch: prompt=4000")`
request_classes = parse_classes


def slo(objectives: str) -> tuple[Objective, ...]:
    """Read the objectives of a search for capacity, such as `slo("ttft_p95=0.5,failures=0.01")`."""
    return parse_objectives([objectives])


@dataclass(frozen=True, slots=True)
class Scenario(RequestSettings, SearchSettings, LoadSettings):
    """All settings of a scenario, in seconds and tokens, and its plan."""

    def plan(self) -> tuple[StagePlan, ...]:
        """Return the stages; for a search, only the first. Raises `UserMistake` if nothing would be measured."""
        growth = self.growth()
        if growth is not None:
            return (growth.first,)
        search = self.search_plan()
        if search is not None:
            stage = Prober(search).next_stage()
            assert stage is not None
            return (stage,)
        trace = self.played()
        if trace is not None and not self.rate:
            return (trace_stage(self.trace, trace, self.warm_up),)
        stages = plan_stages(
            [step.with_arrivals(self.arrivals) for step in self.rate or self.stages],
            {name: getattr(self, name) for name in ("prompt_tokens", "output_tokens", "shared_prefix_tokens")},
            seconds=self.stage_seconds,
            requests=self.stage_requests,
            warm_up=self.warm_up,
        )
        check_arrivals(stages, self.seed)
        return stages

    def played(self) -> Trace | None:
        """Return the trace, or `None` without one. Raises `UserMistake`."""
        if not self.trace:
            if self.needs_trace:
                raise UserMistake("give a trace with --trace PATH, such as the folder of a run.")
            return None
        return read_trace(str(Path(self.trace).absolute()))

    def rows(self) -> Trace | None:
        """Return what is read of the dataset; `None` without one. Raises `UserMistake`."""
        return dataset(self.dataset) if self.dataset else None

    def recorded(self) -> Trace | None:
        """Return the trace or the dataset; `None` if prompts are generated. Raises `UserMistake`, also for rows that
        only another API accepts."""
        recorded = self.played() or self.rows()
        for request in recorded.requests if recorded is not None else ():
            if request.fields and self.endpoint != "chat":
                names = in_words([f"`{name}`" for name in request.fields])
                raise UserMistake(
                    f"{request.row} of {self.trace or self.dataset} has {names} in a form that only --endpoint "
                    "chat accepts, such as images or tools."
                )
        return recorded

    def growth(self) -> Growth | None:
        """Return how the users grow; `None` without `--by growth`. Raises `UserMistake` without an objective."""
        if self.by != "growth":
            return None
        if not self.slo:
            raise UserMistake("--by growth needs an objective that ends the growth: --slo ttft_p95=1.")
        return Growth(self.slo, self.search_seconds)

    def search_plan(self) -> SearchPlan | None:
        """Return the plan of a search for capacity; `None` without one. Raises `UserMistake` without an objective."""
        if self.by == "stages" or self.by == "growth":
            return None
        if not self.slo:
            raise UserMistake("a search for capacity needs --slo, such as --slo ttft_p95=0.5,failures=0.01.")
        return SearchPlan(self.by, self.slo, *self.search_range, PRECISION, self.search_seconds, self.arrivals)

    def facts(self) -> dict[str, Any]:
        """Return every setting as text or number, for `meta.json`."""
        facts = {}
        for setting in settings_of(Scenario):
            value = getattr(self, setting.name)
            facts[setting.name] = value if isinstance(value, int | float | None) else setting.text(value)
        return facts


def read(defaults: Any, options: Mapping[str, Any]) -> Any:
    """Return `defaults` (a scenario or run settings) with the values of `options`, each a text or a parsed value.

    Raises `UserMistake`.
    """
    values = {}
    for setting in settings_of(type(defaults)):
        if setting.name in options:
            value = options[setting.name]
            text = "" if value is None else value if isinstance(value, str) else setting.text(value)
            values[setting.name] = setting.parse(text)
    if isinstance(defaults, Scenario):
        _choose_loop(defaults, values)
    return replace(defaults, **values)


def _choose_loop(defaults: Scenario, values: dict[str, Any]) -> None:
    """Raise `UserMistake` if `values`, by name, have users for a scenario whose requests arrive at a rate."""
    users_given = values.get("stages", defaults.stages) != defaults.stages
    rates_given = values.get("rate", defaults.rate) != defaults.rate
    if users_given and rates_given:
        raise UserMistake("choose either users (--stages) or requests per second (--rate), not both.")
    if users_given and defaults.rate:
        raise UserMistake(
            "this scenario sends requests at a rate: set it with --rate, or test users with `concurrent`."
        )
