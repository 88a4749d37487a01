"""What load is applied: users or rates, when stages end, and how users behave."""

from __future__ import annotations

from dataclasses import dataclass

from loadtests.harness.schedule.rates import GRAMMAR as RATES
from loadtests.harness.schedule.rates import parse_arrivals, parse_rates, write_rates
from loadtests.harness.schedule.stages import parse_users, parse_warm_up, write_users, write_warm_up
from loadtests.harness.workload.distribution import PAUSE_GRAMMAR, Pause, parse_pause
from loadtests.harness.workload.playback import TraceOptions, parse_options, write_options
from records.load import Load, Rate
from settings_schema import setting

LOAD = "Load"


@dataclass(frozen=True)
class LoadSettings:
    """Seconds."""

    load: tuple[Load, ...] = setting(
        parse_users("10-100:10"),
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
