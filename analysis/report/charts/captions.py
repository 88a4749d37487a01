"""The title of a chart is what it shows, in a plain sentence written from its numbers. It says nothing about loads that
were not measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from analysis.report.axis import Axis
from analysis.report.charts.drawing import Drawn
from analysis.report.decision.decide import Law
from analysis.units import format_seconds, format_share, in_words, join_labels, significant
from analysis.verdict.findings import steady
from analysis.verdict.stages.knee import FLAT, mean_parts, saturated_from
from analysis.verdict.stages.stage import StageSummary
from analysis.verdict.stages.ttft_parts import NAMES
from analysis.verdict.statistics import Estimate
from records.metrics import BY_NAME

LIMITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0)  # seconds
PATIENCE = 1.0  # seconds for a first token: the limit that is asked about first
NAMED = 3  # engines that a title names
REMARKS = r" \([^)]*\)"  # what a title leaves out of a finding
Of = Callable[[StageSummary], Estimate]
Point = tuple[str, float]  # a stage's label, and the value there


def ttft(engines: Sequence[Drawn], axis: Axis, of: Of) -> str:
    """Who keeps the tail under a round limit, and up to which load."""
    asked = [one for one in engines if any(of(stage).n for run in one.contender.runs for stage in run.stages)]
    known = [one for one in asked if _finite(one, axis, of)]
    if not known:
        return "No first token was received"
    best = min(known, key=lambda one: _finite(one, axis, of)[-1][1])
    values = _finite(best, axis, of)
    limit = _limit([value for _, value in values])
    if limit is None or not axis.of_loads:
        label, value = values[-1]
        return f"95 % of the first tokens of {best.name} come within {format_seconds(value)} at {label}"
    held = {one.name: _held(one, axis, of, limit) for one in asked}
    if held[best.name] is None:
        return f"None keeps TTFT under {_round(limit)} for 95 % of the requests at {axis.labels[0]}"
    said = [f"{best.name} keeps TTFT p95 under {_round(limit)} up to {held.pop(best.name)}"]
    for load in sorted(set(held.values()), key=lambda load: -(axis.place(load).at if load else -1.0)):
        names = [name for name, its_load in held.items() if its_load == load]
        who = in_words(names) if len(names) <= NAMED else f"{len(names)} others"
        said.append(f"{who} up to {load}" if load else f"{who} at no load")
    return said[0] + (f", {in_words(said[1:])}" if said[1:] else "")


def _limit(values: Sequence[float]) -> float | None:
    """The tightest round limit that all stages keep, or one second if that tells more: some keep it, some do not."""
    if values[0] <= PATIENCE < max(values):
        return PATIENCE
    return next((limit for limit in LIMITS if limit >= max(values)), None)


def _held(one: Drawn, axis: Axis, of: Of, limit: float) -> str | None:
    """The largest load up to which every stage keeps the limit and serves its requests."""
    held = None
    for label in axis.labels:
        stages = one.contender.at(label)
        if not stages:
            continue
        value = one.contender.estimate(of, label).value
        if value is None or value > limit or any(stage.overloaded for stage in stages):
            break
        held = label
    return held


def throughput(engines: Sequence[Drawn], axis: Axis) -> str:
    """How many tokens each serves at the largest load, and from where on more load brought no more."""
    best = max(engines, key=lambda one: _finite(one, axis, _throughput)[-1][1])
    values = _finite(best, axis, _throughput)
    label, most = values[-1]
    said = f"{best.name} serves {significant(most)} tokens/s at {label}"
    others = {one.name: one.contender.estimate(_throughput, label).value for one in engines if one is not best}
    ranked = sorted(((name, value) for name, value in others.items() if value is not None), key=lambda one: -one[1])
    if ranked:
        return f"{said}, {in_words([f'{name} {significant(value)}' for name, value in ranked[:3]])}"
    full = saturated_from(values)
    if full is None or not axis.of_loads:
        return said
    return f"{said}; above {full} its throughput grew no further"


def tpot(engines: Sequence[Drawn], axis: Axis) -> str:
    """How long one token takes, and what load does to it."""
    known = [one for one in engines if _finite(one, axis, _tpot)]
    if not known:
        return "No time per token was measured"
    said = []
    for one in sorted(known, key=lambda one: _finite(one, axis, _tpot)[-1][1])[:3]:
        (few, first), (label, last) = _finite(one, axis, _tpot)[0], _finite(one, axis, _tpot)[-1]
        other = f" ({format_seconds(first)} at {few})" if abs(last - first) > FLAT * first else ""
        said.append(f"a token of {one.name} takes {format_seconds(last)} at {label}{other}")
    return _capital("; ".join(said))


def e2e(engines: Sequence[Drawn], axis: Axis, of: Of) -> str:
    """How long the whole answers of the quickest take at the last stage."""
    known = [one for one in engines if _finite(one, axis, of)]
    if not known:
        return "No answer was complete"
    best = min(known, key=lambda one: _finite(one, axis, of)[-1][1])
    label, value = _finite(best, axis, of)[-1]
    return f"95 % of the answers of {best.name} are complete within {format_seconds(value)} at {label}"


def memory(engines: Sequence[Drawn], axis: Axis, of: Of) -> str:
    """What each takes at the last stage, and at which stage the most, where that is another."""
    said = []
    ends = [(values[-1][1], one.name, values[-1][0]) for one in engines if (values := _finite(one, axis, of))]
    if len(ends) > NAMED:
        (least, smallest, at), (most, largest, _) = min(ends), max(ends)
        return (
            f"{smallest} takes {significant(least)} GB at {at}, the least; {largest} {significant(most)} GB, the most"
        )
    for one in engines:
        values = _finite(one, axis, of)
        if values:
            (label, last), (where, most) = values[-1], max(values, key=lambda point: point[1])
            other = f", at most {significant(most)} GB at {where}" if significant(most) != significant(last) else ""
            said.append(f"{one.name} takes {significant(last)} GB at {label}{other}")
    return "; ".join(said)


def gpu(engines: Sequence[Drawn], axis: Axis, of: Of) -> str:
    """How busy the GPUs of each are at the last stage."""
    known = [(one.name, values[-1]) for one in engines if (values := _finite(one, axis, of))]
    said = [
        f"the GPU of {name} is busy {significant(value)} % of the time at {label}" for name, (label, value) in known
    ]
    return _capital("; ".join(said))


def scalability(laws: Sequence[Law]) -> str:
    """How far throughput can go, as the fitted laws have it."""
    said = []
    for law in laws:
        most, peak = law.fit.most.value, law.fit.peak
        if most is None or math.isinf(most):
            said.append(f"throughput of {law.engine} grows in proportion to the requests in flight")
        elif peak.value is None or peak.high is None or math.isinf(peak.high):
            said.append(f"throughput of {law.engine} levels off at {significant(most)} tokens/s")
        else:
            at = f"{significant(peak.value)} requests in flight"
            said.append(f"throughput of {law.engine} is highest with {at}, at {significant(most)} tokens/s")
    return _capital("; ".join(said))


def turns(points: Sequence[tuple[Drawn, float, Estimate]]) -> str:
    """How each engine's median goes from the first turn that is drawn to the last."""
    said = []
    for name in dict.fromkeys(one.name for one, _, _ in points):
        own = [(turn, estimate.value) for one, turn, estimate in points if one.name == name]
        (first, early), (last, late) = own[0], own[-1]
        said.append(f"{name} {format_seconds(early)} at turn {first:g} and {format_seconds(late)} at turn {last:g}")
    return f"Half of the first tokens come within: {'; '.join(said)}"


def parts(engines: Sequence[Drawn], axis: Axis) -> str:
    """Where most of the longest wait at the last stage goes."""
    told = [
        (one, label, p)
        for label in axis.labels
        for one in engines
        if (p := mean_parts(one.contender, label)) is not None
    ]
    one, label, part = max((at for at in told if at[1] == told[-1][1]), key=lambda at: at[2].total)
    name, longest = max(part.lengths.items(), key=lambda item: item[1])
    return f"At {label} {format_share(longest / (part.total or 1.0))} of the TTFT of {one.name} is {NAMES[name]}"


def curves(engines: Sequence[Drawn], axis: Axis, metric: str) -> str:
    """The median and the largest of the quickest at the last stage, of the answered requests."""
    drawn = [
        (one, s) for label in axis.labels for one in engines for s in one.contender.at(label) if metric in s.curves
    ]
    last = drawn[-1][1].label
    one, stage = min((at for at in drawn if at[1].label == last), key=lambda at: at[1].curves[metric][49])
    half, all_of_them = (format_seconds(stage.curves[metric][k]) for k in (49, -1))
    title = BY_NAME[metric].title.partition(" (")[0]
    return f"{title} of {one.name} at {last}: {half} or less for half of the requests, {all_of_them} at most"


def flow(one: Drawn) -> str:
    """How the run that is drawn got over a disturbance; else whether its windows were steady, as far as tested."""
    run = one.contender.runs[0]
    recovered = [finding.evidence for finding in run.findings if finding.kind == "recovery"]
    if recovered:
        return f"{one.name}, {re.sub(REMARKS, '', recovered[0]).replace('`', '')}"
    unsteady = [f.stage.label for f in run.findings if f.kind == "never_steady" and f.stage is not None]
    if unsteady:
        return f"{one.name} was not steady at {join_labels(unsteady)}"
    tested = [set(steady.tested(stage)) for stage in run.stages]
    everywhere = [title for title in steady.TITLES if all(title in titles for titles in tested)]
    if not everywhere:
        return f"{one.name}: the windows hold too few requests to tell whether they were steady"
    return f"{one.name}: {in_words(everywhere)} were steady at every stage"


def _finite(one: Drawn, axis: Axis, of: Of) -> list[Point]:
    """The stages at which the engine has a number."""
    found = [(label, one.contender.estimate(of, label).value) for label in axis.labels if one.contender.at(label)]
    return [(label, value) for label, value in found if value is not None and math.isfinite(value)]


def _throughput(stage: StageSummary) -> Estimate:
    return stage.throughput


def _tpot(stage: StageSummary) -> Estimate:
    return stage.latencies["tpot"].p50


def _round(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
