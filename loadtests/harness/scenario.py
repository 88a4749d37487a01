"""A scenario is a value: what load to apply, and what to ask. A file in `loadtests/` names one and is a locustfile.

Each field is a setting, declared here once: it becomes a flag of `locust -f` and of `enginebench run`, a field of
Locust's page and an environment variable. A scenario gives defaults of its own; a flag or a variable overrides them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from loadtests.harness.client.access import Headers, parse_headers, write_headers
from loadtests.harness.client.dialects.registry import Endpoint
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
from loadtests.harness.schedule.trace import Trace
from loadtests.harness.workload.classes import GRAMMAR as CLASSES_GRAMMAR
from loadtests.harness.workload.classes import RequestClass, parse_classes, with_classes_alone, write_classes
from loadtests.harness.workload.datasets import checked_dataset, checked_pairs
from loadtests.harness.workload.distribution import PAUSE_GRAMMAR, Pause, parse_pause
from loadtests.harness.workload.lengths import (
    GRAMMAR,
    Lengths,
    parse_lengths,
    parse_several,
    whole_numbers,
    write_several,
)
from loadtests.harness.workload.playback import TraceOptions, parse_options, played, trace_stage, write_options
from loadtests.harness.workload.words import Kind
from records.load import Load, Rate, Users
from records.slo import GRAMMAR as OBJECTIVES
from records.slo import Objective, parse_objectives, write_objectives
from records.stage import StagePlan
from settings_schema import setting, settings_of

LOAD, SEARCH, REQUESTS, RUN = "Load", "Capacity search", "Requests", "Run"
TEN_STEPS: tuple[Load, ...] = parse_users("10-100:10")
several_lengths: Any = {"read": parse_several, "write": write_several, "metavar": "N", "group": REQUESTS}


def users(counts: str) -> tuple[Load, ...]:
    """`users("10,20-40:10")`: a stage for each number of users."""
    return tuple(Users(count) for count in whole_numbers(counts))


def rates(per_second: str) -> tuple[Rate, ...]:
    """`rates("2,4,8")`: a stage for each rate of arrivals, in requests per second."""
    return parse_rates(per_second)


def length(text: str) -> Lengths:
    """`length("uniform:2-12")`: one length, which may vary."""
    return parse_lengths(text)


def pause(text: str) -> Pause:
    """`pause("lognormal:4,0.7")`: seconds, which may vary."""
    return parse_pause(text)


def request_classes(text: str) -> tuple[RequestClass, ...]:
    """`request_classes("chat: weight=3 prompt=200; batch: prompt=4000")`"""
    return parse_classes(text)


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


def parse_prefixes(text: str) -> tuple[int, ...]:
    """Raises `ValueError` with a sentence."""
    try:
        numbers = tuple(whole_numbers(text))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0:
        raise ValueError(f"a shared prefix is a number of tokens, or several, such as 0,512, not `{text}`.")
    return numbers


def write_prefixes(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def checked_object(text: str) -> str:
    """The text of a JSON object, or nothing. Raises `ValueError` with a sentence."""
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"this is no JSON ({error}): `{text}`.") from None
    if not isinstance(value, dict):
        raise ValueError(f'a JSON object is expected, such as {{"top_k": 1}}, not `{text}`.')
    return text


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
    think_time: Pause = setting(
        Pause("fixed"),
        f"Seconds between an answer and the same user's next request: {PAUSE_GRAMMAR}.",
        metavar="S",
        read=parse_pause,
        write=str,
        group=LOAD,
    )
    pause_after_failure: float = setting(
        1.0, "Seconds between a failed request and the same user's next one.", metavar="S", least=0, group=LOAD
    )
    trace: str = setting(
        "",
        "Recorded requests to play again: a Mooncake, Azure, BurstGPT or ShareGPT trace, a CSV or JSONL file, or the "
        "folder of a run. With --rate it says only what is asked, and not when.",
        metavar="PATH",
        group=LOAD,
    )
    trace_as: TraceOptions = setting(
        TraceOptions(),
        "How the trace is read and played, as in speed=2,share=0.1,span=600-1200,longest=8192 or, for the columns of a "
        "file of your own, time=ts,prompt=tokens_in,output=tokens_out.",
        metavar="HOW",
        read=parse_options,
        write=write_options,
        group=LOAD,
    )
    needs_trace: bool = False
    command: str | None = setting(
        None,
        "Shell command that this host runs once, --at seconds after the first stage began: to stop, start or replace a "
        "server. {engine} stands for the process of an engine that `enginebench run --engine` has started.",
        metavar="COMMAND",
        group=LOAD,
        on_page=False,
    )
    at: float = setting(
        30.0, "Seconds from the start of the first stage to --command.", metavar="S", least=0, group=LOAD
    )
    prompt_tokens: tuple[Lengths, ...] = setting(
        tokens("uniform:64-192"),
        f"Prompt length in tokens: {GRAMMAR}; several, as in 10,50,100, make a stage each.",
        **several_lengths,
    )
    prompt_kind: Kind = setting(
        "words", "What prompts are made of: words, code, or token ids (--endpoint completions).", group=REQUESTS
    )
    shared_prefix_tokens: tuple[int, ...] = setting(
        (0,),
        "Tokens at the start of every prompt that are the same for all; several, as in 0,512, make a stage each.",
        metavar="N",
        read=parse_prefixes,
        write=write_prefixes,
        group=REQUESTS,
    )
    output_tokens: tuple[Lengths, ...] = setting(
        tokens("uniform:32-96"),
        "Most tokens of an answer: as for prompts.",
        **several_lengths,
    )
    lengths_from: str = setting(
        "",
        "JSONL or Parquet file with prompt_tokens and output_tokens, from which both lengths are drawn together.",
        metavar="FILE",
        read=checked_pairs,
        group=REQUESTS,
    )
    dataset: str = setting(
        "",
        "JSONL or Parquet file of what to ask: prompt or messages, and perhaps output_tokens.",
        metavar="FILE",
        read=checked_dataset,
        group=REQUESTS,
    )
    classes: tuple[RequestClass, ...] = setting(
        (),
        f"Kinds of requests, each with a share of the users: {CLASSES_GRAMMAR}.",
        metavar="CLASSES",
        read=parse_classes,
        write=write_classes,
        group=REQUESTS,
    )
    isolate: bool = setting(
        False, "After each stage of several classes, run each class alone with its share of the load.", group=REQUESTS
    )
    turns: Lengths = setting(
        Lengths("fixed", 1),
        "Requests of a conversation, each of which sends all that was said before, the real answers included.",
        metavar="N",
        read=parse_lengths,
        write=str,
        group=REQUESTS,
    )
    turn_tokens: Lengths | None = setting(
        None,
        "Tokens that each turn after the first adds to its conversation. Default: as --prompt-tokens.",
        metavar="N",
        read=parse_lengths,
        write=str,
        group=REQUESTS,
    )
    for_context: int | None = setting(
        None,
        "Context for which the lengths are meant: they are scaled down for a server that has less.",
        metavar="N",
        least=1,
        group=REQUESTS,
    )
    patience: float | None = setting(
        None,
        "Seconds after which a user leaves who has no first token: the connection is closed; it counts as a timeout.",
        metavar="S",
        least=0.001,
        group=LOAD,
    )
    retries: int = setting(
        0,
        "Times that a client asks again after a refusal, a server's error or a lost connection: as Retry-After says, "
        "else after half a second, doubled each time, with jitter.",
        metavar="N",
        least=0,
        group=LOAD,
    )
    ignore_eos: Literal["auto", "yes", "no"] = setting(
        "auto", "Make answers run to full length; auto: where the server says it can.", group=REQUESTS
    )
    endpoint: Endpoint = setting(
        "chat", "API to use: OpenAI's three, Anthropic's Messages, Amazon Bedrock's Converse.", group=REQUESTS
    )
    extra_body: str = setting(
        "",
        'JSON object that is merged into each request, as in {"top_k": 1}; null removes a field.',
        metavar="JSON",
        read=checked_object,
        group=REQUESTS,
    )
    max_tokens_field: Literal["auto", "max_tokens", "max_completion_tokens"] = setting(
        "auto", "Name of the answer's limit in OpenAI's chat API; auto: the one that the server takes.", group=REQUESTS
    )
    no_stream: bool = setting(False, "Ask for whole answers instead of streams; there is no TTFT then.", group=REQUESTS)
    temperature: float | None = setting(
        0.0,
        "Sampling temperature; 0 is greedy, none leaves it to the server, as some models require.",
        metavar="T",
        least=0,
        group=REQUESTS,
    )
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
        trace = self.played()
        if trace is not None and not self.rate:
            return (trace_stage(self.trace, trace, self.warm_up),)
        stages = plan_stages(
            tuple(replace(rate, arrivals=self.arrivals) for rate in self.rate) or self.load,
            self.prompt_tokens,
            self.output_tokens,
            prefixes=self.shared_prefix_tokens,
            seconds=self.stage_seconds,
            requests=self.stage_requests,
            warm_up=self.warm_up,
            seed=self.seed,
        )
        return with_classes_alone(stages, self.classes) if self.isolate else stages

    def played(self) -> Trace | None:
        """The trace, read and scaled; `None` where there is none. Raises `ValueError` with a sentence."""
        if not self.trace:
            if self.needs_trace:
                raise ValueError("give the trace to play again with --trace PATH, such as the folder of a run.")
            return None
        return played(str(Path(self.trace).absolute()), self.trace_as, self.seed)

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
    tokenizer: Path | None = setting(
        None,
        "The model's tokenizer.json, or a folder with it, to make prompts of exact lengths where the server has no "
        "/tokenize.",
        metavar="PATH",
        group=REQUESTS,
    )
    insecure: bool = setting(False, "Do not check the server's TLS certificate.", group=RUN)
    header: Headers = setting(
        (),
        "Header of every request; may be repeated. Never written to disk.",
        metavar="'NAME: VALUE'",
        read=parse_headers,
        write=write_headers,
        group=RUN,
        secret=True,
        on_page=False,
        repeatable=True,
    )


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
