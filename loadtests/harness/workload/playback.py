"""How a recorded trace is played again: in what format it is, which part of it, how fast, how densely."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from enginebench.records.load import TRACE, Rate
from enginebench.records.stage import Extent, StagePlan
from enginebench.settings.schema import UserMistake, from_text, setting, settings_of
from loadtests.harness.schedule.trace import Trace, clipped, scaled
from loadtests.harness.workload.trace_files import READERS, read_trace

LEAST_BOUND = 60.0  # seconds that the last requests of a trace get
LAST = 1e-6  # seconds by which a stage is longer than its last arrival


def _format(text: str) -> str:
    known = ("auto", *READERS, "columns")
    if text not in known:
        raise UserMistake(f"the format of a trace is one of {', '.join(known)}, not `{text}`.")
    return text


def _span(text: str) -> tuple[float, float]:
    start, _, end = text.partition("-")
    try:
        if float(start) < float(end):
            return float(start), float(end)
    except ValueError:
        pass
    raise UserMistake(f"the span of a trace is two seconds of it, such as 600-1200, not `{text}`.")


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a trace is read and played: `speed=2,share=0.1,span=600-1200`."""

    format: str = setting("auto", "Format.", read=_format)
    speed: float = setting(1.0, "How many times as fast it is played.", least=1e-6)
    share: float = setting(1.0, "Arrivals for each one of the trace; above 1 with copies.", least=1e-6)
    span: tuple[float, float] | None = setting(
        None, "Seconds of the trace, from and to.", read=_span, write=lambda span: f"{span[0]:g}-{span[1]:g}"
    )
    longest: int | None = setting(None, "Requests with more tokens, prompt and answer, are left out.", least=2)
    time: str = setting("", "Column of the arrival: seconds, or a date and time.")
    time_ms: str = setting("", "The same in milliseconds.")
    time_ns: str = setting("", "The same in nanoseconds.")
    prompt: str = setting("", "Column of the prompt's tokens.")
    output: str = setting("", "Column of the answer's tokens.")
    session: str = setting("", "Column of the conversation.")

    @property
    def columns(self) -> str:
        names = ("time", "time_ms", "time_ns", "prompt", "output", "session")
        return ",".join(f"{name}={value}" for name in names if (value := getattr(self, name)))


def parse_options(text: str) -> TraceOptions:
    """Raises `UserMistake`."""
    given = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise UserMistake(f"how a trace is played is given as speed=2,share=0.1,span=600-1200, not `{text}`.")
        given[name.strip()] = value.strip()
    options: TraceOptions = from_text(TraceOptions, given)
    return options


def write_options(options: TraceOptions) -> str:
    """What differs from the defaults."""
    given = {one.name: one for one in settings_of(TraceOptions, flags=False)}
    return ",".join(
        f"{field.name}={given[field.name].text(value)}"
        for field in fields(TraceOptions)
        if (value := getattr(options, field.name)) != field.default
    )


@cache
def played(path: str, options: TraceOptions, seed: int) -> Trace:
    """The trace as it is to be played. Raises `UserMistake`."""
    trace = read_trace(path, options.format, options.columns)
    trace = scaled(clipped(trace, options.span, options.longest), options.speed, options.share, seed)
    if not trace.arrivals:
        raise UserMistake(f"nothing is left of the trace {path} ({write_options(options)}).")
    return trace


def trace_stage(path: str, trace: Trace, warm_up: tuple[float, bool]) -> StagePlan:
    """The one stage in which a trace is played to its end. Raises `UserMistake` where it has no times.

    Of sessions, whose requests come when their answers allow, the stage lasts until all requests were sent.
    """
    name = Path(path).name
    if not trace.is_timed:
        what = "sessions" if trace.has_sessions else "requests"
        raise UserMistake(f"the trace {name} has no times: set the {what} per second with --rate.")
    seconds = trace.times[-1] + LAST
    amount, share = warm_up
    before = amount * seconds if share else amount
    rate = Rate(len(trace.arrivals) / max(seconds, 1.0), TRACE)
    if trace.has_sessions:
        requests = Extent(sum(1 for _ in trace.requests), "requests")
        return StagePlan(rate, Extent(0.0 if share else amount), requests, LEAST_BOUND, name)
    if before >= seconds:
        raise UserMistake(f"the trace {name} is over after {seconds:g} s, before its warm-up of {before:g} s.")
    return StagePlan(rate, Extent(before), Extent(seconds - before), max(seconds, LEAST_BOUND), name)
