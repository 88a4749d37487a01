"""A bench compared with a saved one, by the rules of `enginebench gate`, with rounds as runs."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.compare.gate import Gate, GateRefused, gate_of
from analysis.compare.gate_checks import Sample
from analysis.settings import CRITICAL
from engines.bench.document import BenchResult, Measure, Result
from records.formatting import in_words

NOT_JUDGED = {"kv cache"}  # neither more nor less of it is better
HOST = ("cpu", "usable_cores", "memory")
ASKED = ("prompt_tokens", "batch_tokens")


def judge(
    baseline: BenchResult, current: BenchResult, fail_at: float = CRITICAL, allow_different: bool = False
) -> Gate:
    """Raises `GateRefused`."""
    differ = differences(baseline, current, allow_different)
    before = {one.label: one for one in baseline.measured}
    now = {one.label: one for one in current.measured}
    found = [one for label, result in now.items() for one in _samples(before[label], result)]
    if not any(isinstance(one, Sample) for one in found):
        raise GateRefused("the bench and its baseline have no measure in common: save a new baseline.")
    notes = [f"{label}: not measured" for label in before if label not in now]
    try:
        return gate_of(found, fail_at, len(current.rounds), len(baseline.rounds), [*notes, *differ])
    except GateRefused as error:
        raise GateRefused(f"{str(error).rstrip('.')}: a run is a round here, see --rounds.") from None


def differences(baseline: BenchResult, current: BenchResult, allow_different: bool) -> list[str]:
    """What makes the two incomparable, which one round of the current bench shows already. Raises `GateRefused`."""
    before = {one.label for one in baseline.measured}
    new = [one.label for one in current.measured if one.label not in before]
    if new or not current.measured:
        raise GateRefused(
            f"the baseline has no figures of {in_words(new) or 'these engines'}; it has {', '.join(before) or 'none'}: "
            "save a new one."
        )
    differ = list(_differences(baseline, current))
    if differ and not allow_different:
        raise GateRefused(f"{differ[0]}: save a new baseline, or judge them anyway with --allow-different.")
    return differ


def _differences(baseline: BenchResult, current: BenchResult) -> Iterator[str]:
    for name in HOST:
        if baseline.host.get(name) != current.host.get(name):
            yield f"another machine: {name} was {baseline.host.get(name)} and is {current.host.get(name)}"
    for name in ASKED:
        if baseline.settings.get(name) != current.settings.get(name):
            yield f"{name} was {baseline.settings.get(name)} and is {current.settings.get(name)}"
    before = {one.label: one for one in baseline.measured}
    for now in current.measured:
        was = before[now.label]
        assert was.info is not None
        assert now.info is not None
        pairs = {
            "model": (was.model, now.model),
            "number format": (was.info.dtype, now.info.dtype),
            "device": (was.info.device, now.info.device),
            "options": (dict(was.options), dict(now.options)),
        }
        yield from (f"{now.label}: {name} was {a} and is {b}" for name, (a, b) in pairs.items() if a != b)


def _samples(before: Result, now: Result) -> Iterator[Sample | str]:
    """Samples, and a sentence for what was not measured in every round."""
    for then in before.series:
        measure, here = then.measure, now.of(then.measure.name)
        if measure.name in NOT_JUDGED:
            continue
        if here is None or len(here.medians) < len(here.rounds) or len(then.medians) < len(then.rounds):
            yield f"{now.label}: {measure.title} was not measured in every round"
            continue
        yield Sample(
            engine=now.label,
            stage=_load_of(measure),
            measure=measure.name,
            title=measure.title,
            unit=measure.unit,
            better=measure.better,
            relative=measure.unit != "share",
            baseline=tuple(then.medians),
            current=tuple(here.medians),
        )


def _load_of(measure: Measure) -> str:
    if measure.family == "loading":
        return "loading"
    return f"{measure.size} requests" if measure.family == "batch" and measure.size != 1 else "1 request"
