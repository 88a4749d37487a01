"""A scenario is a value: what load to apply, and what to ask. A file in `loadtests/` names one and is a locustfile.

Each field is a setting, declared here once: it becomes a flag of `locust -f` and of `enginebench run`, a field of
Locust's page and an environment variable. A scenario gives defaults of its own; a flag or a variable overrides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from loadtests.harness.schedule.rates import GRAMMAR as RATES
from loadtests.harness.schedule.rates import parse_arrivals, parse_rates, write_rates
from loadtests.harness.schedule.search.prober import Prober, SearchPlan
from loadtests.harness.schedule.stages import (
    parse_users,
    parse_warm_up,
    plan_stages,
    write_users,
    write_warm_up,
)
from loadtests.harness.workload.lengths import GRAMMAR, Lengths, parse_several, whole_numbers, write_several
from records.load import Load, Rate, Users
from records.slo import GRAMMAR as OBJECTIVES
from records.slo import Objective, parse_objectives, write_objectives
from records.stage import StagePlan
from settings_schema import setting, settings_of

Endpoint = Literal["chat", "completions"]
LOAD, SEARCH, REQUESTS, RUN = "Load", "Capacity search", "Requests", "Run"
TEN_STEPS: tuple[Load, ...] = parse_users("10-100:10")
several_lengths: Any = {"read": parse_several, "write": write_several, "metavar": "N", "group": REQUESTS}


def users(counts: str) -> tuple[Load, ...]:
    """`users("10,20-40:10")`: a stage for each number of users."""
    return tuple(Users(count) for count in whole_numbers(counts))


def rates(per_second: str) -> tuple[Rate, ...]:
    """`rates("2,4,8")`: a stage for each rate of arrivals, in requests per second."""
    return parse_rates(per_second)


def slo(objectives: str) -> tuple[Objective, ...]:
    """`slo("ttft_p95=0.5,failures=0.01")`: what a search for capacity must keep."""
    return parse_objectives([objectives])


def parse_range(text: str) -> tuple[float, float]:
    """`"1-500"` → the first load tried and the highest. Raises `ValueError` with a sentence."""
    try:
        first, last = (float(part) for part in text.split("-"))
        if not 0 < first <= last < float("inf"):
            raise ValueError
    except ValueError:
        raise ValueError(f"a range of loads is FIRST-HIGHEST, such as 1-500, not `{text}`.") from None
    return first, last


def write_range(loads: tuple[float, float]) -> str:
    return "-".join(f"{load:g}" for load in loads)


def tokens(lengths: str) -> tuple[Lengths, ...]:
    """`tokens("10,50")`: a stage for each length; `tokens("uniform:64-192")`: one stage of lengths that vary."""
    return parse_several(lengths)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Seconds and tokens."""

    load: tuple[Load, ...] = setting(
        TEN_STEPS,
        "Users of each stage: 10,20,40 or 10-100:10 (from, to, step).",
        flag="--stages",
        metavar="USERS",
        read=parse_users,
        write=write_users,
        group=LOAD,
    )
    rate: tuple[Rate, ...] = setting(
        (),
        f"An open loop in place of users: requests per second of each stage, however long answers take: {RATES}.",
        metavar="RATE",
        read=parse_rates,
        write=write_rates,
        group=LOAD,
    )
    arrivals: str = setting(
        "poisson",
        "When requests arrive in an open loop: poisson, constant, or gamma:cv=2 (in bursts; below 1 evenly).",
        metavar="PROCESS",
        read=parse_arrivals,
        group=LOAD,
    )
    max_in_flight: int = setting(
        5000,
        "Most requests in flight in an open loop, over all processes; an arrival beyond it is not sent and counts as "
        "dropped, a failure.",
        metavar="N",
        least=1,
        group=LOAD,
    )
    by: Literal["stages", "rate", "users", "agents"] = setting(
        "stages",
        "What is searched for: the highest rate, or number of users or agents, that meets --slo; stages: no search.",
        group=SEARCH,
    )
    slo: tuple[Objective, ...] = setting(
        (),
        f"What a load must keep to be met: {OBJECTIVES}; several with commas between.",
        metavar="SLO",
        read=lambda text: parse_objectives([text]),
        write=write_objectives,
        group=SEARCH,
    )
    search_range: tuple[float, float] = setting(
        (1.0, 10_000.0),
        "The first load that a search tries, and the highest; it goes below the first where that is too much.",
        metavar="FIRST-HIGHEST",
        read=parse_range,
        write=write_range,
        group=SEARCH,
    )
    search_seconds: float = setting(
        3600.0,
        "Seconds after which a search ends, with what it has certified by then.",
        metavar="S",
        least=1,
        group=SEARCH,
    )
    stage_seconds: float = setting(
        30.0, "Length of a stage in seconds, warm-up included.", metavar="S", least=0.1, group=LOAD
    )
    stage_requests: int | None = setting(
        None,
        "Requests of a stage after its warm-up, in place of a length in seconds.",
        metavar="N",
        least=1,
        group=LOAD,
    )
    warm_up: tuple[float, bool] = setting(
        (0.2, True),
        "Start of each stage that is not counted: seconds (with --stage-requests: requests) or a share. It is "
        "prolonged until every user has had an answer.",
        metavar="S|%",
        read=parse_warm_up,
        write=write_warm_up,
        group=LOAD,
    )
    think_time: float = setting(
        0.0, "Seconds between an answer and the same user's next request.", metavar="S", least=0, group=LOAD
    )
    pause_after_failure: float = setting(
        1.0, "Seconds between a failed request and the same user's next one.", metavar="S", least=0, group=LOAD
    )
    prompt_tokens: tuple[Lengths, ...] = setting(
        tokens("uniform:64-192"),
        f"Prompt length in tokens: {GRAMMAR}; several, as in 10,50,100, make a stage each.",
        **several_lengths,
    )
    shared_prefix_tokens: int = setting(
        0, "Tokens at the start of every prompt that are the same for all.", metavar="N", least=0, group=REQUESTS
    )
    output_tokens: tuple[Lengths, ...] = setting(
        tokens("uniform:32-96"),
        "Most tokens of an answer: as for prompts.",
        **several_lengths,
    )
    ignore_eos: Literal["auto", "yes", "no"] = setting(
        "auto", "Make answers run to full length; auto: where the server says it can.", group=REQUESTS
    )
    endpoint: Endpoint = setting("chat", "API to use.", group=REQUESTS)
    no_stream: bool = setting(False, "Ask for whole answers instead of streams; there is no TTFT then.", group=REQUESTS)
    temperature: float = setting(0.0, "Sampling temperature; 0 is greedy.", metavar="T", least=0, group=REQUESTS)
    seed: int = setting(0, "Seed of lengths and arrivals, and of the prompts.", metavar="N", group=REQUESTS)
    same_prompts: bool = setting(
        False,
        "Draw the prompts from the seed alone, so that every run asks the same ones; a prefix cache may know them.",
        group=REQUESTS,
    )
    request_timeout: float = setting(
        600.0, "Seconds after which a request is given up.", metavar="S", least=0.1, group=REQUESTS
    )

    def plan(self) -> tuple[StagePlan, ...]:
        """The stages, of a search the first. Raises `ValueError` with a sentence when nothing would be measured."""
        search = self.search_plan()
        if search is not None:
            stage = Prober(search).next_stage()
            assert stage is not None
            return (stage,)
        return plan_stages(
            tuple(replace(rate, arrivals=self.arrivals) for rate in self.rate) or self.load,
            self.prompt_tokens,
            self.output_tokens,
            seconds=self.stage_seconds,
            requests=self.stage_requests,
            warm_up=self.warm_up,
            seed=self.seed,
        )

    def search_plan(self) -> SearchPlan | None:
        """What is searched for; `None` where the stages are given. Raises `ValueError` without an objective."""
        if self.by == "stages":
            return None
        if not self.slo:
            raise ValueError("a search for capacity needs --slo, such as --slo ttft_p95=0.5,failures=0.01.")
        return SearchPlan(self.by, self.slo, *self.search_range, self.search_seconds, self.arrivals)

    def facts(self) -> dict[str, Any]:
        """Every setting as it is in force, as text or number, for `meta.json`."""
        return {
            one.name: value if isinstance(value := getattr(self, one.name), int | float | None) else one.text(value)
            for one in settings_of(Scenario)
        }


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where and under what name a run is kept, and how the server is reached."""

    model: str | None = setting(
        None, "Model to ask for. Default: the first one the server lists.", metavar="NAME", group=REQUESTS
    )
    runs: Path = setting(
        Path("runs"), "Folder in which each run gets a folder of its own.", metavar="FOLDER", group=RUN
    )
    label: str | None = setting(
        None, "What reports call this run. Default: the server's engine, else its address.", metavar="NAME", group=RUN
    )
    run_id: str | None = setting(
        None,
        "Name of the run's folder. Default: time, label and four random letters.",
        metavar="NAME",
        group=RUN,
        on_page=False,
    )
    repeat_index: int = setting(
        0, "Which of an engine's repeats this run is.", metavar="N", least=0, group=RUN, on_page=False
    )
    prompt_set: str | None = setting(
        None,
        "Runs of the same set ask the same prompts. Default: a new set for each run.",
        metavar="NAME",
        group=RUN,
        on_page=False,
    )
    insecure: bool = setting(False, "Do not check the server's TLS certificate.", group=RUN)
    api_key: str | None = setting(
        None,
        "Key for the server; also taken from OPENAI_API_KEY. Never written to disk.",
        metavar="KEY",
        group=RUN,
        secret=True,
        on_page=False,
    )

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def read(defaults: Any, given: Mapping[str, Any]) -> Any:
    """`defaults` (a scenario or run settings) with the values in `given` in place of its own, each as text or as read.

    Raises `ValueError` with a sentence.
    """
    values = {}
    for one in settings_of(type(defaults)):
        if one.name in given:
            value = given[one.name]
            values[one.name] = one.parse(
                "" if value is None else one.text(value) if not isinstance(value, str) else value
            )
    if isinstance(defaults, Scenario):
        _choose_loop(defaults, values)
    return replace(defaults, **values)


def _choose_loop(defaults: Scenario, values: dict[str, Any]) -> None:
    """Users take the place of a scenario's own rates, and rates that of its users. `values` are read ones, by name."""
    users_given = values.get("load", defaults.load) != defaults.load
    rates_given = values.get("rate", defaults.rate) != defaults.rate
    if users_given and rates_given:
        raise ValueError("a load is users (--stages) or requests per second (--rate), not both.")
    if users_given:
        values["rate"] = ()
