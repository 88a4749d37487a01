"""Sections on what was not measured, what speaks against the numbers, and all it takes to repeat the study."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from enginebench.analysis.compare.tables import tables_of
from enginebench.analysis.console import TextTable
from enginebench.analysis.data.table import has_columns, scan
from enginebench.analysis.report.card import records_hash
from enginebench.analysis.summary.remarks import Remark, remarks
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import MISSING, counted, format_error, format_seconds, in_words
from enginebench.studies.report.contents import StudyReport, distinct
from enginebench.studies.report.section import NO_LOAD, Section, of_part
from enginebench.studies.study.cells import cells_of
from engines.bench.document import to_json

UNKNOWN = "not recorded"
MISSED, REPEAT = "What was not measured", "To repeat it"
DIGITS = 16  # of a hash


def comparisons(study: StudyReport) -> Section:
    """Every engine at every load, and metric by metric: the tables behind each verdict above."""
    folded, sentences = [], []
    for each in study.measured:
        named = f"{of_part(each, study)}: "
        tables = tables_of(each.comparison)
        folded += [TextTable(f"{named}{of.title}", of.headers, of.rows, of.texts, of.caption) for of in tables]
        sentences += [f"{named}{each.report.headline}"]
    criteria = [each.report.criteria for each in study.measured if each.report.criteria][:1]
    return Section("Every comparison", (*sentences, *criteria), folded=tuple(folded), why=NO_LOAD)


def study_remarks(study: StudyReport) -> tuple[Remark, ...]:
    """The findings of all runs and comparisons, gravest first, each kind said once."""
    findings = [finding for each in study.measured for finding in each.comparison.findings]
    findings += [finding for each in study.measured for run in each.runs for finding in run.findings]
    return remarks(findings, [run.label for run in study.runs])


def not_measured(study: StudyReport, empty: Sequence[Section]) -> Section:
    """Cells that were skipped, failed or not reached, what the grid leaves out, and sections without a number."""
    rows = [(missing.what, missing.why) for missing in study.source.missing]
    rows += [(section.title, section.why) for section in empty]
    if not rows:
        return Section(MISSED, ("Every cell of the grid was measured.",))
    table = TextTable(MISSED, ("what", "why"), tuple(rows), (0, 1), "")
    return Section(MISSED, tables=(table,))


def repeating(study: StudyReport) -> Section:
    source, runs = study.source, study.runs
    facts = source.facts
    rows = {
        "machine": study.machine,
        "GPU driver and power limit": _gpus(study) or "no GPU",
        "operating system": in_words(distinct(host.get("os") for host in _hosts(study))) or UNKNOWN,
        "versions": _versions(study),
        "engines": _engines(study),
        "image": in_words(distinct(sitting.image for sitting in source.sittings)) or "no container",
        "commit": in_words(distinct([facts.commit if facts else None, *(run.commit for run in runs)])) or UNKNOWN,
        "seed": UNKNOWN if facts is None else str(facts.grid.seed),
        "prompts": _prompts(runs),
        "order": _order(study),
        "sittings": _sittings(study),
        "excluded": "warm-up and cool-down of every stage; cells of the table above; no measured value was removed",
        "client error": _client_error(runs),
        "records": f"sha256 {_records_hash(study)[:DIGITS]}" if runs or study.benches else UNKNOWN,
    }
    table = TextTable(REPEAT, ("", "of this study"), tuple(rows.items()), (0, 1), "")
    commands = [] if facts is None else [shlex.join(facts.command)]
    commands += distinct(shlex.join(sitting.command) for sitting in source.sittings)
    return Section(REPEAT, tables=(table,), code=tuple(dict.fromkeys(commands)))


def _hosts(study: StudyReport) -> list[Mapping[str, Any]]:
    hosts = [sitting.host for sitting in study.source.sittings] or [run.host for run in study.runs]
    return [*hosts, *(bench.result.host for bench in study.benches)]


def _gpus(study: StudyReport) -> str:
    """Driver and power limit of each GPU."""
    gpus = [gpu for sitting in study.source.sittings for gpu in sitting.gpus]
    texts = [", ".join(f"{name.replace('_', ' ')} {value}" for name, value in gpu.items()) for gpu in gpus]
    return in_words(distinct(texts))


def _versions(study: StudyReport) -> str:
    found: dict[str, list[str]] = {}
    versions = [sitting.versions for sitting in study.source.sittings] + [run.versions for run in study.runs]
    for each in versions:
        for name, version in each.items():
            found.setdefault(name, []).append(version)
    return ", ".join(f"{name} {'/'.join(distinct(of_name))}" for name, of_name in found.items()) or UNKNOWN


def _engines(study: StudyReport) -> str:
    found = [(run.label, run.engine or {}) for run in study.runs]
    for bench in study.benches:
        found += [(one.label, asdict(one.info)) for one in bench.result.results if one.info is not None]
    named = []
    for label, engine in found:
        libraries = ", ".join(f"{name} {version}" for name, version in (engine.get("libraries") or {}).items())
        version = f" {engine['version']}" if engine.get("version") else ""
        named.append(f"{label}{version}{f' ({libraries})' if libraries else ''}")
    return "; ".join(distinct(named)) or UNKNOWN


def _records_hash(study: StudyReport) -> str:
    """Of the runs' records, or of what the benches wrote."""
    if study.runs:
        return records_hash([run.folder for run in study.runs])
    return hashlib.sha256("".join(to_json(bench.result) for bench in study.benches).encode()).hexdigest()


def _prompts(runs: Sequence[RunSummary]) -> str:
    """How many different ones were sent, and their hash: that of their digests in order, a line each."""
    tables = [path for run in runs if has_columns(path := run.folder / "requests.parquet")]
    ids: set[str] = set()
    for path in tables:
        ids.update(scan(path).select(pl.col("prompt_id").unique()).collect()["prompt_id"].drop_nulls())
    if not ids:
        return UNKNOWN
    digest = hashlib.sha256("".join(f"{each}\n" for each in sorted(ids)).encode()).hexdigest()
    sets = len(distinct(run.workload.get("prompt_set") for run in runs))
    return (
        f"{len(ids):,} different ones, sha256 {digest[:DIGITS]}, in {counted(sets, 'set')}: the same for all engines "
        "of a repeat, others in the next"
    )


def _order(study: StudyReport) -> str:
    first: dict[int, list[str]] = {}
    ran = [(run.repeat, run.label) for run in sorted(study.runs, key=lambda run: run.started_at)]
    if not ran and study.source.facts is not None:
        ran = [(cell.repeat, cell.engine) for cell in cells_of(study.source.facts.grid)]
    for repeat, label in ran:
        first.setdefault(repeat, []).append(label)
    orders = [", ".join(distinct(labels)) for _, labels in sorted(first.items())]
    return f"repeats interleaved: {'; then '.join(distinct(orders))}" if orders else UNKNOWN


def _sittings(study: StudyReport) -> str:
    sittings = study.source.sittings
    if not sittings:
        return MISSING
    starts = [sitting.started_at[:16].replace("T", " ") for sitting in sittings]
    return f"{len(sittings)}, begun {in_words(starts)} UTC"


def _client_error(runs: Sequence[RunSummary]) -> str:
    if not runs:
        return NO_LOAD
    errors = [run.client_error for run in runs]
    known = [error for error in errors if error is not None]
    unknown = len(errors) - len(known)
    if known:
        without = f"; {counted(unknown, 'run')} exceeded the calibration" if unknown else ""
        return f"TTFT {format_error(max(known))} at p99 in the worst run, as calibrated{without}"
    lags = [lag for run in runs for view in run.stages if (lag := view.value("client_lag", "p99")) is not None]
    if not lags:
        return "not calibrated (enginebench calibrate)"
    return (
        f"not calibrated (enginebench calibrate); first tokens were read up to {format_seconds(max(lags))} late (p99)"
    )
