"""The long tables of a page: every number of every stage, and the settings of every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.report.ends import has_ends, upper_end
from analysis.report.figures import Number, duration, rate
from analysis.summary.run_summary import RunSummary
from records.formatting import MISSING, format_bytes, format_seconds, format_share, significant
from records.metrics import PERCENTILES, REQUEST_METRICS
from records.view import Distribution, StageView

TITLES = {metric.name: metric.title for metric in REQUEST_METRICS} | {"icl": "ICL, token-weighted"}
Cells = list[tuple[Number, str]]  # a number, and what stands under it


@dataclass(frozen=True, slots=True)
class Details:
    """`rows` are (what, one cell per stage)."""

    stages: tuple[str, ...]
    rows: tuple[tuple[str, Cells], ...]


def details_of(summary: RunSummary) -> Details:
    """What was observed, with one column per stage."""
    stages = summary.stages
    rows = [*_loads(stages), *(row for name, title in TITLES.items() for row in _distribution(stages, name, title))]
    observed = [(what, cells) for what, cells in rows if any(number.text != MISSING for number, _ in cells)]
    return Details(tuple(stage.label for stage in stages), tuple(observed))


def _distribution(stages: Sequence[StageView], name: str, title: str) -> list[tuple[str, Cells]]:
    found = [stage.latencies[name] for stage in stages]
    return [
        (f"{title} mean", [(duration(one.mean), _deviation(one.deviation)) for one in found]),
        (f"{title} least", [(duration(one.least), "") for one in found]),
        *((f"{title} {p}", [_percentile(one, p) for one in found]) for p in PERCENTILES),
        (f"{title} largest", [(duration(one.largest), "") for one in found]),
    ]


def _deviation(seconds: float | None) -> str:
    return "" if seconds is None else f"SD {format_seconds(seconds)}"


def _percentile(distribution: Distribution, p: str) -> tuple[Number, str]:
    estimate, answered = distribution.percentile(p), distribution.answered
    ends = f"{format_seconds(estimate.low)} to {upper_end(estimate, format_seconds)}" if has_ends(estimate) else ""
    said = [ends] if ends else []
    if estimate.low is None and estimate.why and estimate.value is not None and estimate.why != "failed":
        said.append(f"{MISSING}, {estimate.why}")
    if answered:
        said.append(f"answered: {format_seconds(answered[p])}")
    unknown = estimate.value is None and estimate.n
    number = Number(None, f"{MISSING}, {estimate.why}") if unknown else duration(estimate.value)
    return number, "; ".join(said)


def _loads(stages: Sequence[StageView]) -> list[tuple[str, Cells]]:
    """Rates, concurrency, counts and telemetry."""

    def plain(of: Callable[[StageView], float | None]) -> Cells:
        return [(rate(of(stage)), "") for stage in stages]

    return [
        ("window, seconds", plain(lambda s: s.seconds)),
        ("users running, mean", plain(lambda s: s.users_there)),
        ("requests scheduled per second", plain(lambda s: s.offered_rate)),
        ("requests completed per second", plain(lambda s: s.achieved_rate)),
        ("failed, of the attempts", [(_share(s.failure_share.value), _share_spread(s)) for s in stages]),
        ("failed per second", plain(lambda s: s.failure_rate)),
        ("requests in flight", plain(lambda s: s.concurrency.average)),
        ("the same by Little's law, λW", plain(lambda s: s.concurrency.little)),
        ("index of dispersion of arrivals", plain(lambda s: s.dispersion)),
        ("tokens per second for the median user", plain(lambda s: s.user_throughput)),
        ("good requests per second (goodput)", plain(lambda s: s.attainment.goodput.value if s.attainment else None)),
        ("prompt tokens, mean", plain(lambda s: s.answers.prompt_tokens)),
        ("of them from the prefix cache", plain(lambda s: s.answers.cached_tokens)),
        ("output tokens, mean", plain(lambda s: s.answers.output_tokens)),
        ("of them reasoning", plain(lambda s: s.answers.reasoning_tokens)),
        ("output tokens planned, mean", plain(lambda s: s.answers.planned_tokens)),
        ("tokens per chunk", plain(lambda s: s.answers.per_chunk)),
        ("joules per output token", plain(lambda s: s.energy_per_token)),
        ("load generator, cores", plain(lambda s: s.client.cpu.mean if s.client.cpu else None)),
        (
            "load generator, waiting for a core",
            [(_share(s.client.run_delay.mean if s.client.run_delay else None), "") for s in stages],
        ),
        ("chunks per second, peak", plain(lambda s: s.client.chunk_rate)),
        ("TTFT ±, by calibration", [(duration(s.client.error), "") for s in stages]),
        *_telemetry(stages),
    ]


def _share(value: float | None) -> Number:
    return Number(value, format_share(value))


def _share_spread(stage: StageView) -> str:
    share = stage.failure_share
    return "" if share.low is None else f"{format_share(share.low)} to {format_share(share.high)}"


def _telemetry(stages: Sequence[StageView]) -> list[tuple[str, Cells]]:
    rows = []
    for quantity in dict.fromkeys(name for stage in stages for name in stage.telemetry):
        write = format_bytes if quantity.endswith("_bytes") else significant
        cells: Cells = []
        for stage in stages:
            level = stage.telemetry.get(quantity)
            number = Number(None, MISSING) if level is None else Number(level.mean, write(level.mean))
            cells.append((number, "" if level is None else f"peak {write(level.peak)}"))
        rows.append((f"server: {quantity.replace('_bytes', '').replace('_', ' ')}", cells))
    return rows


def setup_of(summaries: Sequence[RunSummary]) -> list[tuple[str, list[tuple[str, list[str], bool]]]]:
    """Sections of (setting, one value per run, whether they differ)."""
    sections = []
    sources: tuple[tuple[str, Callable[[RunSummary], Mapping[str, Any]]], ...] = (
        ("Engine", lambda s: s.engine or {}),
        ("Workload", lambda s: {"scenario": s.scenario} | dict(s.workload)),
        ("Load generator", lambda s: s.host),
        (
            "Versions",
            lambda s: dict(s.versions) | {"commit": s.commit, "url": s.url, "run": s.run_id, "workers": s.workers},
        ),
    )
    for title, of in sources:
        given: list[Mapping[str, Any]] = [of(summary) for summary in summaries]
        rows = []
        for key in dict.fromkeys(key for one in given for key in one):
            values = [_plain(key, one.get(key)) for one in given]
            rows.append((key.replace("_", " "), values, len(set(values)) > 1))
        if rows:
            sections.append((title, rows))
    return sections


def _plain(key: str, value: Any) -> str:
    """A setting as a person would write it."""
    if value is None or value in ([], {}, ""):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "memory" and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(name, one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(key, one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
