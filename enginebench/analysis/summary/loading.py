"""Summarise the runs named on a command line: runs, folders of runs, and saved summaries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from enginebench.analysis.data.requests_table import READ_ONLY
from enginebench.analysis.data.run_data import NotARun, find_run, load_run
from enginebench.analysis.summary.run_summary import SUMMARY, RunSummary, read_summary, summarise, write_summary
from enginebench.records.files import META, has_requests
from enginebench.records.plain_text import plain
from enginebench.records.slo import Objective


def summaries_of(
    names: Sequence[str],
    runs: Path,
    objectives: tuple[Objective, ...] = (),
    tokenizer: Path | None = None,
    reading: Callable[[Path], None] = lambda run: None,
    tell_apart: bool = True,
    need_requests: bool = False,
) -> list[RunSummary]:
    """Summarise each run from its records and write its `summary.json`; if a run has no records, read its
    `summary.json`. Without names, summarise the newest run.

    A name may be a folder of runs. Files among several names are ignored, so `runs/*` may contain a report.
    If two folders have runs with the same label, the end of the folder's path is added, `vllm (before)` and
    `vllm (after)`, unless `tell_apart` is false. `need_requests` refuses summaries without records. A read-only folder
    is not changed. Raises `NotARun`, and `ValueError` for an objective that cannot be judged.
    """
    names = [name for name in names if len(names) == 1 or not Path(name).is_file()] or names
    groups = {name: _folders(name, runs) for name in names or ("",)}
    summaries: dict[Path, RunSummary] = {}
    for folder in (folder for folders in groups.values() for folder in folders):
        if folder.resolve() not in summaries:
            reading(folder)
            relative = Path(os.path.relpath(folder))
            shown = folder.absolute() if relative.parts[:1] == ("..",) else relative  # shorter
            summaries[folder.resolve()] = _summary(shown, objectives, tokenizer, need_requests)
    if not tell_apart:
        return list(summaries.values())
    labels = {name: {summaries[folder.resolve()].label for folder in folders} for name, folders in groups.items()}
    places = {name: Path(name).resolve() for name in groups}
    for name, folders in groups.items():
        elsewhere = [group for group in groups if places[group] != places[name]]
        ambiguous = {label for group in elsewhere for label in labels[group]}
        named = _shortest_suffix(places[name], [places[group] for group in elsewhere])
        for folder in (folder.resolve() for folder in folders if not _is_run(Path(name))):
            if summaries[folder].label in ambiguous and folder.parent == places[name]:
                summaries[folder] = replace(summaries[folder], label=f"{summaries[folder].label} ({named})")
    return list(summaries.values())


def _shortest_suffix(place: Path, distinct_from: Sequence[Path]) -> Path:
    """Return `after`, or `after/runs` if another place has that name."""
    lengths = range(1, len(place.parts))
    tails = (place.parts[-length:] for length in lengths)
    distinct = (tail for tail in tails if all(path.parts[-len(tail) :] != tail for path in distinct_from))
    return Path(*next(distinct, place.parts))


def _folders(name: str, runs: Path) -> tuple[Path, ...]:
    if not name:
        return (find_run(None, runs),)
    path = Path(name)
    if path.is_dir() and not _is_run(path):
        several = tuple(sorted(folder for folder in path.iterdir() if _is_run(folder)))
        if several:
            return several
    return (path,) if _is_run(path) else (find_run(name, runs),)


def _is_run(folder: Path) -> bool:
    return (folder / META).exists() or (folder / SUMMARY).exists()


def _summary(
    folder: Path, objectives: tuple[Objective, ...], tokenizer: Path | None, need_requests: bool
) -> RunSummary:
    if (folder / SUMMARY).exists() and not has_requests(folder):
        summary = read_summary(folder)
        if summary.statistics_only and objectives:
            raise NotARun(f"{folder} was imported as statistics, without requests to judge: report it without --slo.")
        if objectives and objectives != summary.objectives:
            raise NotARun(f"{folder} has a summary and no requests to judge by another SLO: leave out --slo.")
        if need_requests and not summary.statistics_only:
            raise NotARun(f"{folder} has a summary and no requests: compare it with `enginebench compare` or `gate`.")
        return summary
    try:
        summary = summarise(load_run(folder, tokenizer), objectives)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise NotARun(f"{folder} has a damaged requests.parquet ({plain(str(error))[:200]}): delete it.") from None
    try:
        write_summary(summary)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
    return summary


if __name__ == "__main__":  # Locust's page runs this to judge the run so far
    summaries_of(sys.argv[1:], Path())
