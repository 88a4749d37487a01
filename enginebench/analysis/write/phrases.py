"""The fixed texts of a document: the tested system, the SLO, the legend, the next step, and the warnings."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from enginebench.analysis.document import TIMES_LIMIT, Document, Figure, NextStep, Warning
from enginebench.analysis.sections.disruptions import PERIODS
from enginebench.analysis.tested import Tested
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.slo_verdict import SloVerdict
from enginebench.analysis.write.cells import (
    ANSWERED,
    BELOW,
    DASHES,
    INTERVAL,
    MAX_NAMES,
    OPEN_ENDED,
    SIMULATED,
    UNBOUNDED,
    UNCONFIRMED,
    clean,
    load_number,
    show,
    signs_of,
)
from enginebench.records.formatting import INFINITE, ShownUnit, format_limit, in_words, join_labels
from enginebench.records.load import Burst, Rate, Segment
from enginebench.records.metrics import COLD_START, E2E, NTPOT, OBJECTIVES, QUANTITY_BY_NAME, TPOT, TTFT
from enginebench.records.slo import Objective
from enginebench.records.view import Missing

MAX_WARNINGS = 5  # on the first screen
MAX_LOADS = 8  # per line
COLD = QUANTITY_BY_NAME[COLD_START].title
MEANINGS = {
    Missing.NOT_OBSERVED: "not measured",
    Missing.FEW_REPEATS: "fewer than three repeats: not tested",
    Missing.FEW_REQUESTS: "too few requests",
    Missing.CUT_OFF: "unknown: too many requests were cut off by the end of the run",
    Missing.CYCLIC: "requests repeat in cycles: no interval",
    Missing.UNCOUNTED: "the tokens of the answers are unknown",
}
"""Explanations of codes whose names are not clear enough."""
LEGEND = {
    UNCONFIRMED: "not confirmed: a longer test or more repeats are needed; unmarked: confirmed, with 95 % confidence",
    OPEN_ENDED: "nothing higher was tested or could be judged",
    BELOW: "missed at this load; nothing lower was tested or could be judged",
    SIMULATED: "by a model of these runs; plan with the measured number above it",
    INTERVAL: "95 % confidence interval",
    UNBOUNDED: "no upper end was observed",
    INFINITE: "this percentile falls among failed requests",
    ANSWERED: "percentile of the answered requests alone",
    **{
        DASHES[code]: MEANINGS.get(code, code.value.replace("_", " ")) for code in Missing if code is not Missing.FAILED
    },
}
CONFIRMED = (("every", "verdict is confirmed with 95 % confidence, directly or by another load"),)
RECOVERED = (("met again", "20 requests in a row are within the limits, and there is no relapse"),)
SPELLED_OUT = {
    TTFT: "time to first token (TTFT)",
    TPOT: "time per output token (TPOT)",
    E2E: "end-to-end latency (E2E)",
    NTPOT: "normalized time per output token (NTPOT)",
}
PURPOSES = {
    "bracket": "Find the highest load of {engine} within the SLO, between {load} and {beyond}",
    "continue_study": "Measure the cells that are left",
    "continue_tune": "Continue the race; earlier measurements are kept",
    "serve": "Serve with {variant}",
    "confirm_alone": "Tune {variant} alone in longer runs, which vary less",
    "search": "Find the highest load within the SLO",
    "higher": "Test {engine} above {load}",
    "confirm_higher": "Test {engine} again at {load}, and at a higher load",
    "lower": "Test {engine} below {beyond}",
    "repeat": "Repeat the runs, so that the difference can be tested",
    "measure": "Measure longer",
    "count": "Give the model's tokenizer, so that the tokens of the answers can be counted",
    "slo": "Give an SLO to find out how many users can be served within it",
    "plan": "Plan replicas: replace PEAK with your peak, such as {peak}",
    "buy": "Deploy {replicas} of {engine}",
    "spare": "Deploy {replicas} of {engine}; spares for failures are not included",
    "deploy": "Use {engine}, for up to {load} on each server",
    "users": "Measure {engine} with several users at a time",
    "sustained": "Find the highest load that one server sustains within the SLO",
}
"""Sentences by the `purpose` of a `NextStep`, whose `names` fill the braces."""


def title(document: Document) -> str:
    """Return the title or, if there is none, the engines: `vllm and candle`."""
    return clean(document.title or _engines(document.tested))


def tested_line(tested: Tested) -> str:
    """`SmolLM2-135M on vLLM · 32-token prompts · closed loop, 1 and 8 users · one run of 10 s per load · …`"""
    parts = [
        _subject(tested),
        _lengths(tested),
        _load(tested),
        _runs(tested),
        in_words(sorted(set(tested.formats.values()))),
        _hardware(tested),
        _dates(tested.dates),
    ]
    return clean(" · ".join(filter(None, parts)))


def slo_line(objectives: Sequence[Objective]) -> str:
    """`time to first token (TTFT) p95 ≤ 600 ms and time per output token (TPOT) p95 ≤ 60 ms`; empty without an SLO."""
    texts: list[str] = []
    spelled: set[str] = set()
    for objective in objectives:
        text, metric = objective.text, objective.metric
        if metric in SPELLED_OUT and metric not in spelled:
            text = f"{SPELLED_OUT[metric]} {text.partition(' ')[2]}"
            spelled.add(metric)
        texts.append(text)
    return in_words(texts)


def _abbreviations(document: Document) -> tuple[tuple[str, str], ...]:
    """Spell out TTFT and TPOT if the SLO line does not, and explain the cold start."""
    named = {objective.metric for objective in document.objectives}
    titles = {column.title for table in [document.candidates] if table is not None for column in table.columns}
    shorts = {name: OBJECTIVES[name].title.partition(" ")[0] for name in (TTFT, TPOT) if name not in named}
    used = [name for name, short in shorts.items() if any(title.startswith(short) for title in titles)]
    spelled = tuple((shorts[name], SPELLED_OUT[name].partition(" (")[0]) for name in used)
    return spelled + ((COLD, "from launch to the first answer"),) * (COLD in titles)


def legend(document: Document) -> tuple[tuple[str, str], ...]:
    """Return the signs and abbreviations of the first screen with their meanings."""
    table = document.candidates
    signs = _legend(signs_of([table] if table is not None else []))
    judged = table is not None and any(isinstance(cell, Capacity | SloVerdict) for row in table.rows for cell in row)
    again = table is not None and table.key == PERIODS and bool(document.objectives)
    all_confirmed = judged and not any(sign == UNCONFIRMED for sign, _ in signs)
    return (*CONFIRMED * all_confirmed, *signs, *RECOVERED * again, *_abbreviations(document))


def legend_of_sections(document: Document) -> tuple[tuple[str, str], ...]:
    """Return the signs and meanings that only sections use."""
    explained = legend(document)
    return tuple(sign for sign in _legend(signs_of(document.blocks)) if sign not in explained)


def _legend(used: Collection[str]) -> tuple[tuple[str, str], ...]:
    return tuple((sign, meaning) for sign, meaning in LEGEND.items() if sign in used)


def legend_line(signs: Sequence[tuple[str, str]]) -> str:
    return " · ".join(f"{sign} {meaning}" for sign, meaning in signs)


def next_line(step: NextStep) -> str:
    """`Find the highest load of vllm within the SLO, between 8 and 16 users`"""
    text = PURPOSES[step.purpose].format(**{name: clean(value) for name, value in step.names.items()})
    return f"{text}, with answers of varied length" if step.varied else text


def next_command(step: NextStep) -> str:
    return clean(shlex.join(step.command))


def next_title(step: NextStep) -> str:
    return "Next" if step.command else "Now"


def limit_title(figure: Figure, unit: ShownUnit | None = None) -> str:
    """`SLO ≤ 600 ms`, or in the unit of an axis: `SLO ≤ 0.6 s`"""
    if figure.limit is None:
        return ""
    return "limit" if figure.y.unit == TIMES_LIMIT else f"SLO ≤ {limit_text(figure, unit)}"


def limit_text(figure: Figure, unit: ShownUnit | None = None) -> str:
    if figure.limit is None:
        return ""
    if figure.y.unit != "s":
        return f"{figure.limit:g}"
    return format_limit(figure.limit) if unit is None else f"{figure.limit * unit.scale:g} {unit.name}"


def warnings_title(warnings: Sequence[Warning], most: int = MAX_WARNINGS) -> str:
    notes = [warning.severity == "note" for warning in warnings]
    name = "Note" if all(notes) else "Warning"
    if len(notes) == 1:
        return name
    names = "Warnings and notes" if len(set(notes)) > 1 else f"{name}s"
    return f"{names}: the {most} most severe of {len(notes)}" if len(notes) > most else f"{names} ({len(notes)})"


def warning_texts(warning: Warning) -> tuple[str, str]:
    """Return the evidence with its place, and the remedy."""
    return show(warning).text, clean(warning.remedy)


def _subject(tested: Tested) -> str:
    models = in_words(tested.models[:MAX_NAMES]) if len(tested.models) <= MAX_NAMES else f"{len(tested.models)} models"
    models += " (random weights)" if models and tested.random_weights else ""
    address = urlsplit(tested.target or "")
    engines = "" if tested.engines == (address.netloc,) else _engines(tested)
    subject = " on ".join(filter(None, dict.fromkeys((models, engines))))
    return f"{subject} at {(tested.target or '').removeprefix('http://')}" if tested.target else subject


def _engines(tested: Tested) -> str:
    return in_words(tested.engines) if len(tested.engines) <= MAX_NAMES else f"{len(tested.engines)} engines"


def _lengths(tested: Tested) -> str:
    prompts = join_labels(tested.stages)
    pairs = ((None if prompts else tested.prompt_tokens, "prompts"), (tested.output_tokens, "answers"))
    lengths = {noun: tokens for tokens, noun in pairs if tokens is not None}
    texts = [f"{tokens:,.0f}-token {noun}" for noun, tokens in lengths.items()]
    fixed = all(tokens.is_integer() for tokens in lengths.values())
    return ", ".join(filter(None, (prompts, ", ".join(texts) if fixed else f"{' and '.join(texts)} on average")))


def _load(tested: Tested) -> str:
    if not tested.loads:
        return ""
    numbers = [load_number(load) for load in tested.loads]
    loads = in_words(numbers) if len(numbers) <= MAX_LOADS else f"{numbers[0]} to {numbers[-1]}"
    unit = "user" if tested.unit == "users" and tested.loads == (1.0,) else tested.unit
    loads = _profile(tested) or tested.trace or f"{loads} {unit}"
    return f"{'open' if tested.open_loop else 'closed'} loop, {loads}".rstrip()


def _profile(tested: Tested) -> str:
    """`4 req/s for 20 s, then 30 req/s for 10 s, repeated`"""
    parts, length = [], 0.0
    for part in tested.profile:
        length += math.inf if isinstance(part, Segment) and part.seconds is None else getattr(part, "seconds", 0.0)
        if isinstance(part, Burst):
            parts.append(f"{part.requests} requests at once")
        else:
            rates = " to ".join(map(load_number, dict.fromkeys((part.first, part.last))))
            parts.append(f"{rates} {Rate.unit}" + ("" if part.seconds is None else f" for {part.seconds:g} s"))
    repeated = tested.seconds is not None and tested.seconds[1] > length
    return ", then ".join(parts) + (", repeated" if parts and repeated else "")


def _runs(tested: Tested) -> str:
    """`3 interleaved repeats, each 12 s per load`"""
    text = _repeats(tested)
    if tested.seconds is None or tested.profile or tested.trace is not None:
        return text
    shortest, longest = (f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}" for seconds in tested.seconds)
    span = shortest if shortest == longest else f"{shortest} to {longest}"
    joint = ", each" if tested.repeats[0] == tested.repeats[1] > 1 else " of"
    return f"{text}{joint} {span} s{' per load' if len(tested.loads) > 1 else ''}"


def _repeats(tested: Tested) -> str:
    fewest, most = tested.repeats
    several = len(tested.engines) > 1
    if most <= 1:
        return "one run each" if several else "one run"
    if fewest != most:
        return f"{fewest} to {most} runs each"
    if several:
        return f"{most} interleaved repeats" if tested.interleaved else f"{most} repeats, not interleaved"
    return f"{most} repeats"


def _hardware(tested: Tested) -> str:
    """Describe the servers' machine or, if the servers run elsewhere, the load generator's."""
    machines = tested.hardware
    if len(machines) != 1:
        return f"{len(machines)} different machines" if machines else ""
    machine = machines[0]
    cores = "" if machine.cores is None else f"{machine.cores} core{'s' if machine.cores != 1 else ''}"
    gpus = "" if tested.remote else machine.gpus or ("no GPU" if machine.cpu else "")
    text = ", ".join(filter(None, (machine.cpu, cores, gpus)))
    return f"load generator on {text}" if text and tested.remote else text


def _dates(dates: tuple[datetime, datetime] | None) -> str:
    if dates is None:
        return ""
    first, last = (f"{date.day} {date:%b %Y}" for date in dates)
    return first if first == last else f"{first} to {last}"
