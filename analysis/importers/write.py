"""Imported results as a run's folder."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from analysis.importers.source import ImportedStage, NotImportable, Results
from records.command import publishable
from records.files import write_meta
from records.run import Imported, RunMeta
from records.stage import SECOND, Extent, Stage, StagePlan


def write_run(results: Results, file: Path, folder: Path, label: str, repeat: int) -> Path:
    """Write `folder`/<run id>. Raises `NotImportable`, `OSError`."""
    source = results.source
    place = folder / _run_id(results, label, file)
    stages = tuple(_stage(index, stage, file) for index, stage in enumerate(results.stages))
    meta = RunMeta(
        run_id=place.name,
        started_at=source.started_at or datetime.now(UTC).isoformat(),
        scenario=source.tool,
        url=source.url or "",
        model=source.model,
        workload=dict(source.settings),
        engine=None,
        host={},
        versions={source.tool: source.version} if source.version else {},
        label=label,
        command=("enginebench", "import", *publishable([str(file)])),
        repeat=repeat,
        plan=tuple(stage.plan for stage in stages),
        stages=stages,
        imported=Imported(source.tool, file.name, source.lacks),
    )
    place.mkdir(parents=True, exist_ok=True)
    write_meta(place, meta)
    lines = "".join(record.to_line() for stage in results.stages for record in stage.requests)
    (place / "requests-imported.jsonl").write_text(lines, encoding="utf-8")
    return place


def _run_id(results: Results, label: str, file: Path) -> str:
    """The same for the same contents, so that importing a file again replaces the run; repeats in files of the same
    name stay apart."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in f"{label}-{file.stem}")
    started = results.source.started_at
    stamp = datetime.fromisoformat(started).strftime("%Y%m%d-%H%M%S") if started else "undated"
    return f"{stamp}-{plain}-{sha256(file.read_bytes()).hexdigest()[:8]}"


def _stage(index: int, stage: ImportedStage, file: Path) -> Stage:
    if stage.load is None:
        raise NotImportable(f"{file} has no one number of users or rate: measure with one, not with a ramp.")
    begin = min([stage.start, *(record.t_sched for record in stage.requests)])
    ended = max([stage.end, *(record.t_end for record in stage.requests)])
    plan = StagePlan(stage.load, Extent((stage.start - begin) / SECOND), Extent((stage.end - stage.start) / SECOND))
    return Stage(index, plan, begin, stage.start, stage.end, ended)
