"""The title of a chart is what it shows, in a plain sentence written from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from analysis.report.charts import Named
from analysis.report.units import format_seconds, format_share, in_words, significant
from analysis.verdict.stages import StageSummary

LIMITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0)  # seconds
PATIENCE = 1.0  # seconds for a first token: the limit that is asked about first
FLAT = 0.1  # less than this from one step to the next is no growth
Value = Callable[[StageSummary], float | None]


def ttft_p95(stage: StageSummary) -> float | None:
    return stage.latencies["ttft"].p95.value


def ttft(runs: Sequence[Named]) -> str:
    """Who holds the tail under a round limit, and up to how many users."""
    known = [run for run in runs if _values(run, ttft_p95)]
    if not known:
        return "No first token was seen"
    best = min(known, key=lambda run: _values(run, ttft_p95)[-1][1])
    limit = _limit([value for _, value in _values(best, ttft_p95)])
    if limit is None:
        users, value = _values(best, ttft_p95)[-1]
        return f"95 % of the first tokens of {best.name} come within {format_seconds(value)} at {users} users"
    said: list[str] = [f"{best.name} holds TTFT under {_round(limit)} to {_held(best, limit)} users"]
    others = sorted(((_held(run, limit) or 0, run.name) for run in known if run is not best), key=lambda one: -one[0])
    said += [f"{name} to {held}" if held else f"{name} at no step" for held, name in others]
    return said[0] + (f", {in_words(said[1:])}" if said[1:] else "")


def _limit(values: Sequence[float]) -> float | None:
    """The tightest round limit that all steps hold, or one second if that tells more: some hold it, some do not."""
    if values[0] <= PATIENCE < max(values):
        return PATIENCE
    fitting = [limit for limit in LIMITS if limit >= max(values)]
    return fitting[0] if fitting else None


def _held(run: Named, limit: float) -> int | None:
    """The largest step up to which every step stays within the limit."""
    held = None
    for users, value in _values(run, ttft_p95):
        if value > limit:
            break
        held = users
    return held


def throughput(runs: Sequence[Named]) -> str:
    """How many tokens each serves at the largest step, and from where on more users bring no more."""
    best = max(runs, key=lambda run: _last(run, _throughput))
    steps = _values(best, _throughput)
    users, most = steps[-1]
    said = f"{best.name} serves {significant(most)} tokens/s at {users} users"
    others = {run.name: stage for run in runs if run is not best and (stage := run.summary.at(users)) is not None}
    ranked = sorted(others.items(), key=lambda one: -(one[1].throughput.value or 0.0))
    if ranked:
        return f"{said}, {in_words([f'{name} {significant(s.throughput.value or 0.0)}' for name, s in ranked[:3]])}"
    full = _saturated_from(steps)
    if full is None:
        return f"{said}, and more users would bring more" if len(steps) > 1 else said
    return f"{said}; from {full} users on, more users bring no more"


def _saturated_from(steps: Sequence[tuple[int, float]]) -> int | None:
    """The step after which throughput grew by less than a tenth for good; `None` while it still grows."""
    full = None
    for (users, value), (_, following) in pairwise(steps):
        if following > value * (1 + FLAT):
            full = None
        elif full is None:
            full = users
    return full


def tpot(runs: Sequence[Named]) -> str:
    """How long one token takes, and what load does to it."""
    known = [run for run in runs if _values(run, _tpot)]
    if not known:
        return "No time per token was seen"
    said = []
    for run in sorted(known, key=lambda run: _last(run, _tpot))[:3]:
        (few, first), (users, last) = _values(run, _tpot)[0], _values(run, _tpot)[-1]
        other = f" ({format_seconds(first)} at {few})" if abs(last - first) > FLAT * first else ""
        said.append(f"a token of {run.name} takes {format_seconds(last)} at {users} users{other}")
    return _capital("; ".join(said))


def parts(runs: Sequence[Named]) -> str:
    """Where most of the longest wait goes."""
    told = [(run, s, s.ttft_parts) for run in runs for s in run.summary.stages if s.ttft_parts is not None]
    top = max(stage.users for _, stage, _ in told)
    run, stage, part = max(
        (one for one in told if one[1].users == top), key=lambda one: one[2].queue + one[2].prefill + one[2].delivery
    )
    lengths = {"waiting for a free slot": part.queue, "prefill": part.prefill, "delivery": part.delivery}
    name, longest = max(lengths.items(), key=lambda item: item[1])
    share = longest / (sum(lengths.values()) or 1.0)
    return f"At {stage.users} users {format_share(share)} of the TTFT of {run.name} is {name}"


def curves(runs: Sequence[Named]) -> str:
    """The median and the tail of the quickest at the largest step."""
    top = max(stage.users for run in runs for stage in run.summary.stages if stage.ttft_curve)
    at_top = [(run, stage) for run in runs for stage in run.summary.stages if stage.users == top and stage.ttft_curve]
    run, stage = min(at_top, key=lambda one: one[1].latencies["ttft"].p50.value or 0.0)
    distribution = stage.latencies["ttft"]
    half, all_of_them = format_seconds(distribution.p50.value), format_seconds(distribution.largest)
    return f"At {top} users half of the first tokens of {run.name} come within {half}, all within {all_of_them}"


def timeline(run: Named) -> str:
    unsteady = sorted({f.users for f in run.summary.findings if f.kind == "never_steady" and f.users is not None})
    if unsteady:
        return f"{run.name} was not steady at {in_words([str(users) for users in unsteady])} users"
    return f"{run.name} was steady at every step"


def _values(run: Named, of: Value) -> list[tuple[int, float]]:
    return [(stage.users, value) for stage in run.summary.stages if (value := of(stage)) is not None]


def _last(run: Named, of: Value) -> float:
    return _values(run, of)[-1][1]


def _throughput(stage: StageSummary) -> float | None:
    return stage.throughput.value


def _tpot(stage: StageSummary) -> float | None:
    return stage.latencies["tpot"].p50.value


def _round(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
