"""Imported results as a run's folder: records where there are requests, else a `summary.json` of aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from analysis.imports.source import Aggregates, ImportedStage, NotImportable, Percentiles, Results
from analysis.verdict.findings.checks import imported_from
from analysis.verdict.stages.answers import AnswerCounts
from analysis.verdict.stages.client_use import ClientUse
from analysis.verdict.stages.distributions import EMPTY, Distribution
from analysis.verdict.stages.stage import Concurrency, StageSummary
from analysis.verdict.statistics import Estimate
from analysis.verdict.summary import FlowSeries, RunSummary, write_summary
from records.command import publishable
from records.files import write_meta
from records.load import Load, Rate
from records.metrics import REQUEST_METRICS
from records.request import RequestRecord
from records.run import Imported, RunMeta
from records.stage import SECOND, Extent, Stage, StagePlan

NO_INTERVAL = "imported aggregates"
USER_CLOCK = {"ttft_user": "ttft", "e2e_user": "e2e"}  # the same where nothing says when a request was due


def write_run(results: Results, file: Path, folder: Path, label: str, load: Load | None, repeat: int) -> Path:
    """Write `folder`/<run id>. `load` is that of stages for which the file does not say. Raises `NotImportable`,
    `OSError`."""
    loads = [one.load or load for one in results.stages or results.aggregates]
    if None in loads:
        raise NotImportable(f"{file} does not state its load: add --users N or --rate REQUESTS_PER_SECOND.")
    known = [one for one in loads if one is not None]
    place = folder / _run_id(results, label, file)
    place.mkdir(parents=True, exist_ok=True)
    if results.stages:
        _write_requests(results, file, place, label, known, repeat)
    else:
        write_summary(_summary(results, file, place, label, known, repeat))
    return place


def _run_id(results: Results, label: str, file: Path) -> str:
    """The same for the same contents, so that importing a file again replaces the run; repeats in files of the same
    name stay apart."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in f"{label}-{file.stem}")
    started = results.source.started_at
    stamp = datetime.fromisoformat(started).strftime("%Y%m%d-%H%M%S") if started else "undated"
    return f"{stamp}-{plain}-{sha256(file.read_bytes()).hexdigest()[:8]}"


def _write_requests(results: Results, file: Path, place: Path, label: str, loads: Sequence[Load], repeat: int) -> None:
    plans = tuple(_plan(stage, load) for stage, load in zip(results.stages, loads, strict=True))
    stages = tuple(
        Stage(index, plan, _begin(stage), stage.start, stage.end, max([stage.end, *(r.t_end for r in stage.requests)]))
        for index, (stage, plan) in enumerate(zip(results.stages, plans, strict=True))
    )
    write_meta(place, RunMeta(plan=plans, stages=stages, **_head(results, file, place, label, repeat)))
    records = [record for stage in results.stages for record in stage.requests]
    lines = "".join(_fitted(record).to_line() for record in records)
    (place / "requests-imported.jsonl").write_text(lines, encoding="utf-8")


def _plan(stage: ImportedStage, load: Load) -> StagePlan:
    warm_up = max(stage.start - _begin(stage), 0) / SECOND
    return StagePlan(load, Extent(warm_up), Extent((stage.end - stage.start) / SECOND))


def _begin(stage: ImportedStage) -> int:
    return min([stage.start, *(one.t_sched for one in stage.requests)])


def _fitted(record: RequestRecord) -> RequestRecord:
    """A first output token that the tool does not tell from the first token is that one."""
    return record if record.t_first_out is not None else replace(record, t_first_out=record.t_first)


def _head(results: Results, file: Path, place: Path, label: str, repeat: int) -> dict[str, Any]:
    source = results.source
    return {
        "run_id": place.name,
        "started_at": source.started_at or datetime.now(UTC).isoformat(),
        "scenario": source.tool,
        "url": source.url or "",
        "model": source.model,
        "workload": dict(source.settings),
        "engine": None,
        "host": {},
        "versions": {source.tool: source.version} if source.version else {},
        "label": label,
        "command": ("enginebench", "import", *publishable([str(file)])),
        "repeat": repeat,
        "imported": Imported(source.tool, file.name, source.lacks),
    }


def _summary(results: Results, file: Path, place: Path, label: str, loads: Sequence[Load], repeat: int) -> RunSummary:
    head = _head(results, file, place, label, repeat)
    finding = replace(imported_from(head.pop("imported")), label=label)
    stages = tuple(_stage(index, *pair) for index, pair in enumerate(zip(results.aggregates, loads, strict=True)))
    return RunSummary(
        folder=place,
        client_error=None,
        requests=sum(stage.requests for stage in stages),
        objectives=(),
        stages=stages,
        flow=FlowSeries(1.0, (), ()),
        findings=(finding,),
        **head,
    )


def _stage(index: int, one: Aggregates, load: Load) -> StageSummary:
    requests, seconds = one.ok + one.failed, one.seconds or 0.0
    latencies = {metric.name: EMPTY for metric in REQUEST_METRICS} | {"icl": EMPTY}
    latencies |= {name: _distribution(each, one) for name, each in one.latencies.items()}
    latencies |= {user: latencies[name] for user, name in USER_CLOCK.items()}
    tpot = latencies["tpot"].p50.value
    rate = one.ok / seconds if seconds else 0.0
    given: dict[str, Any] = {
        "index": index,
        "label": load.label,
        "load": load.value,
        "load_unit": load.unit,
        "is_open": isinstance(load, Rate),
        "end": seconds,
        "complete": True,
        "requests": requests,
        "ok": one.ok,
        "failed": one.failed,
        "outcomes": {"ok": one.ok} | ({"http_error": one.failed} if one.failed else {}),
        "failure_share": _estimate(one.failed / requests if requests else None, requests),
        "failure_rate": one.failed / seconds if seconds else 0.0,
        "offered_rate": requests / seconds if seconds else 0.0,
        "achieved_rate": rate,
        "throughput": _estimate(one.throughput, one.ok),
        "user_throughput": 1 / tpot if tpot else None,
        "latencies": latencies,
        "concurrency": Concurrency(rate * (one.latencies["e2e"].mean or 0.0), None),
        "answers": _answers(one),
        "client": ClientUse(),
    }
    return StageSummary(**_unknown(StageSummary) | given)


def _answers(one: Aggregates) -> AnswerCounts:
    known = {"prompt_tokens": one.prompt_tokens, "output_tokens": one.output_tokens}
    return AnswerCounts(**_unknown(AnswerCounts) | known)


def _unknown(kind: type[Any]) -> dict[str, Any]:
    """The value of nothing for each field: `None` where it may be, else zero or empty."""
    empty = {"int": 0, "float": 0.0, "bool": False, "str": ""}
    found: dict[str, Any] = {}
    for field in fields(kind):
        hint = str(field.type)
        if hint.endswith("| None"):
            found[field.name] = None
        elif hint.startswith(("Mapping", "dict")):
            found[field.name] = {}
        else:
            found[field.name] = empty.get(hint, ())
    return found


def _distribution(one: Percentiles, of: Aggregates) -> Distribution:
    """Where some requests failed, the tool's percentiles of the answered ones stand under that name too."""
    n = of.ok if of.answered_alone else of.ok + of.failed
    percentiles = {"p50": one.p50, "p90": one.p90, "p95": one.p95, "p99": one.p99}
    answered: Mapping[str, float] | None = None
    if of.failed and of.answered_alone and all(value is not None for value in percentiles.values()):
        answered = {name: value for name, value in percentiles.items() if value is not None}
    return Distribution(
        n=n,
        failed=0,
        mean=one.mean,
        deviation=one.deviation,
        least=one.least,
        largest=one.largest,
        answered=answered,
        **{name: _estimate(value, n) for name, value in percentiles.items()},
    )


def _estimate(value: float | None, n: int) -> Estimate:
    return Estimate(value, n=n, why=NO_INTERVAL if value is not None else "not in the imported file")
