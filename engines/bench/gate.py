"""A bench compared with a saved one, by the rules of `enginebench gate`, with rounds as runs."""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.analysis.settings import CRITICAL
from enginebench.analysis.stats.samples import Sample
from enginebench.analysis.verdict.gate import Check, Gate, check, decided, lacking
from enginebench.records.formatting import in_words
from enginebench.records.metrics import Column, Quantity
from enginebench.records.view import Estimate
from enginebench.settings.schema import UserMistake
from engines.bench.document import BenchResult, Measure, Result, Series

NOT_JUDGED = {"kv cache"}  # neither more nor less of it is better
HOST = ("cpu", "usable_cores", "memory")
ASKED = ("prompt_tokens", "batch_tokens")
PAGE = 4096  # bytes of memory that are given at a time


def judge(
    baseline: BenchResult,
    current: BenchResult,
    limit: float = CRITICAL,
    allow_different: bool = False,
    allow_missing: bool = False,
) -> Gate:
    """Raises `UserMistake` if the two cannot be compared."""
    differences(baseline, current, allow_different)
    before = {result.label: result for result in baseline.measured}
    now = {result.label: result for result in current.measured}
    rounds = len(current.rounds), len(baseline.rounds)
    checks = [lacking(label, runs=(0, rounds[1])) for label in before if label not in now]
    checks += [each for label, result in now.items() for each in _checks(before[label], result)]
    return Gate(decided(checks, limit), limit, rounds, allow_missing)


def differences(baseline: BenchResult, current: BenchResult, allow_different: bool) -> list[str]:
    """What makes the two incomparable, which one round of the current bench shows already. Raises `UserMistake`."""
    before = {one.label for one in baseline.measured}
    new = [one.label for one in current.measured if one.label not in before]
    if new or not current.measured:
        raise UserMistake(
            f"the baseline has no figures of {in_words(new) or 'these engines'}; it has {', '.join(before) or 'none'}: "
            "save a new one."
        )
    differ = list(_differences(baseline, current))
    if differ and not allow_different:
        raise UserMistake(f"{differ[0]}: save a new baseline, or judge them anyway with --allow-different.")
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


def _checks(before: Result, now: Result) -> Iterator[Check]:
    for then in before.series:
        measure, here = then.measure, now.of(then.measure.name)
        if measure.name in NOT_JUDGED:
            continue
        place, column = _load_of(measure), column_of(measure)
        if here is None or len(here.medians) < len(here.rounds) or len(then.medians) < len(then.rounds):
            counts = 0 if here is None else len(here.medians), len(then.medians)
            yield lacking(now.label, place, column, counts)
        else:
            yield check(now.label, place, column, sample_of(then), sample_of(here))


def sample_of(series: Series) -> Sample:
    """The median of each round."""
    step = PAGE if series.measure.unit == "B" else 0.0
    return Sample(tuple(Estimate(median) for median in series.medians), step)


def column_of(measure: Measure) -> Column:
    """As the analysis compares metrics."""
    return Column(Quantity(measure.name, measure.title, measure.unit, "", measure.title, measure.better), "value")


def _load_of(measure: Measure) -> str:
    if measure.family == "loading":
        return "loading"
    return f"{measure.size} requests" if measure.family == "batch" and measure.size != 1 else "1 request"
