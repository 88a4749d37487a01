"""Settings of the load: users or rates, the length of stages, and the behaviour of users."""

from __future__ import annotations

from dataclasses import dataclass

from enginebench.records.stage import MAX_DURATION
from loadtests.harness.schedule.arrivals import parse_arrivals
from loadtests.harness.schedule.load_grammar import RATES, USERS, LoadStep, parse_rates, parse_users, write_steps
from loadtests.harness.schedule.stages import parse_warm_up, write_warm_up
from loadtests.harness.setting_groups import load_setting, most_used, trace_setting
from loadtests.harness.workload.distributions import PAUSE_GRAMMAR, Pause, parse_pause


@dataclass(frozen=True)
class LoadSettings:
    """Times are in seconds."""

    stages: tuple[LoadStep, ...] = most_used(
        parse_users("1,10-100:10"),
        f"Users of each stage: {USERS}.",
        metavar="USERS",
        read=parse_users,
        write=write_steps,
    )
    rate: tuple[LoadStep, ...] = most_used(
        (),
        f"Requests per second of each stage, in an open loop instead of users: {RATES}.",
        metavar="RATE",
        read=parse_rates,
        write=write_steps,
    )
    arrivals: str = load_setting(
        "poisson",
        "Arrival process of an open loop: poisson, constant, or gamma:cv=2 (bursty above 1, regular below).",
        metavar="PROCESS",
        read=parse_arrivals,
    )
    stage_seconds: float = most_used(
        30.0,
        "Length of each stage, warm-up included, unless the stage has its own.",
        metavar="S",
        least=0.1,
        most=MAX_DURATION,
    )
    stage_requests: int | None = load_setting(
        None,
        "Requests per stage after its warm-up, instead of --stage-seconds.",
        metavar="N",
        least=1,
        most=MAX_DURATION,
    )
    warm_up: tuple[float, bool] = load_setting(
        (0.2, True),
        "Start of each stage that is not counted: a time (with --stage-requests: requests) or a share of the stage. "
        "It lasts at least until every user has had an answer.",
        metavar="S|%",
        read=parse_warm_up,
        write=write_warm_up,
    )
    think_time: Pause = load_setting(
        Pause("fixed"),
        f"Pause between an answer and the same user's next request: {PAUSE_GRAMMAR}.",
        metavar="S",
        read=parse_pause,
        write=str,
    )
    trace: str = trace_setting(
        "",
        "Trace to replay: Mooncake, Azure, BurstGPT or ShareGPT, or the folder of a run. With --rate only its requests "
        "are used, not its times.",
        metavar="PATH",
        on_page=False,
    )
    needs_trace: bool = False
    command: str | None = load_setting(
        None,
        "Shell command to run once on this host during the first stage, to stop, start or replace a server: after "
        "30 s, or after a time of its own, as in '60s docker restart a'. {engine} is the process ID of the engine that "
        "`enginebench run --engine` has started.",
        metavar="[S] COMMAND",
        on_page=False,
    )
    patience: float | None = load_setting(
        None,
        "Time without a first token after which a user disconnects; the request counts as a timeout.",
        metavar="S",
        least=0.001,
    )
    retries: int = load_setting(
        0,
        "Retries after a refusal, a server error or a lost connection, after the time in Retry-After or else after "
        "half a second, doubled each time, with jitter.",
        metavar="N",
        least=0,
    )
