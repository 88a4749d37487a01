"""The view of a stage from given records: 10 s with one user, steady from 2 s to 9 s."""

from pathlib import Path
from typing import Any

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.request import RequestRecord
from enginebench.records.slo import parse_objectives
from enginebench.records.view import StageView
from tests.support.analysis.synthetic import meta_of, stages_of, write_run

MS = 1_000_000
STAGES = stages_of((1,), 10.0)  # steady from 2 s to 9 s


def summary_of(tmp_path: Path, records: list[RequestRecord], **changes: Any) -> RunSummary:
    objectives = parse_objectives(changes.pop("slo", ()))
    samples = changes.pop("samples", None)
    stages = changes.pop("stages", STAGES)
    folder = write_run(tmp_path / "run", meta_of(stages, **changes), records, samples)
    return summarise(load_run(folder), objectives)


def stage_of(tmp_path: Path, records: list[RequestRecord], **changes: Any) -> StageView:
    return summary_of(tmp_path, records, **changes).stages[0]
