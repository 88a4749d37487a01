"""Complete records of a request and a run, for tests to modify."""

from typing import Any

import msgspec

from enginebench.records.load import Load, Users
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan

MS = SECOND // 1000

RECORD = RequestRecord(
    request_id="0-1",
    worker="0",
    scenario="concurrent",
    stage=0,
    user=3,
    planned_prompt_tokens=40,
    planned_output_tokens=16,
    prompt_id="00ff00ff00ff00ff",
    outcome="ok",
    status=200,
    t_sched=0,
    t_send=1 * MS,
    t_headers=2 * MS,
    t_first=301 * MS,
    t_first_out=301 * MS,
    t_last=501 * MS,
    t_end=502 * MS,
    read_first=302 * MS,
    stamps="kernel",
    icl=(100 * MS, 100 * MS),
    chunks=3,
    first_chunk_tokens=2,
    prompt_tokens=41,
    output_tokens=12,
    token_source="usage",
    finish_reason="length",
    answer_digest="0123456789abcdef",
    server_queue=0.01,
    server_prefill=0.2,
    server_decode=0.2,
)
"""TTFT 300 ms, 10 tokens in 200 ms after the first chunk's two."""


def record(number: int = 1, **changes: Any) -> RequestRecord:
    """Return `RECORD` with another number and with these fields changed."""
    return msgspec.structs.replace(RECORD, request_id=f"0-{number}", **changes)


TWO_USERS = Users(2)


def plan(load: Load = TWO_USERS, seconds: float = 10.0, warm_up: float = 2.0, **changes: Any) -> StagePlan:
    """Return the plan of a stage of `seconds`, warm-up included."""
    return StagePlan(load, Extent(warm_up), Extent(seconds - warm_up), **changes)


PLAN = plan()
META = RunMeta(
    run_id="a-run",
    started_at="2026-11-21T10:00:00+00:00",
    scenario="concurrent",
    url="http://127.0.0.1:8000",
    model="m",
    plan=(PLAN,),
    stages=(Stage(0, PLAN, 0, 2 * SECOND, 10 * SECOND, 11 * SECOND),),
    workload={"seed": 0},
    engine=None,
    host={"cores": 2},
    versions={"enginebench": "0"},
    label="m",
    command=("locust",),
    client_error=((5000.0, 0.0, 0.0001),),
    workers=2,
)
