"""Write simulated requests as a run folder, as a load generator would have recorded them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from enginebench.records.files import requests_file, write_meta
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunMeta
from enginebench.records.stage import Stage


def answered(
    number: int, stage: int, user: int | None, sent: int, tokens: Sequence[int], prompt: int | None = None
) -> RequestRecord:
    """Return the record of one request, sent when it was due.

    `tokens` are the instants of its tokens; all in nanoseconds.
    """
    return RequestRecord(
        request_id=f"0-{number}",
        worker="0",
        scenario="simulated",
        stage=stage,
        user=user,
        outcome="ok",
        status=200,
        t_sched=sent,
        t_send=sent,
        t_headers=tokens[0],
        t_first=tokens[0],
        t_first_out=tokens[0],
        t_last=tokens[-1],
        t_end=tokens[-1],
        read_first=tokens[0],
        stamps="kernel",
        icl=tuple(later - earlier for earlier, later in itertools.pairwise(tokens)),
        chunks=len(tokens),
        first_chunk_tokens=1,
        prompt_tokens=prompt,
        output_tokens=len(tokens),
        token_source="usage",
        finish_reason="length",
    )


def write_folder(folder: Path, label: str, stages: Iterable[Stage], records: Iterable[RequestRecord]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stages = tuple(stages)
    meta = RunMeta(
        run_id=folder.name,
        started_at="2026-11-22T00:00:00.000+00:00",
        scenario="simulated",
        url="http://127.0.0.1:8000",
        model="simulated",
        plan=tuple(stage.plan for stage in stages),
        workload={"streamed": True},
        engine=None,
        host={},
        versions={},
        label=label,
        command=("python", "-m", "validation.statistics"),
        stages=stages,
    )
    write_meta(folder, meta)
    (folder / requests_file(0)).write_text("".join(record.to_line() for record in records))
