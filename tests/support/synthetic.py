"""Run folders without a server: closed-loop users before a queue with so many slots, simulated, written as records."""

from __future__ import annotations

import dataclasses
import heapq
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from records.request import RequestRecord, RunMeta, Stage, TelemetrySample, write_meta

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Engine:
    """Seconds. Each of `slots` requests at a time takes `prefill`, then `tpot` a token, both with some noise."""

    label: str = "fake"
    slots: int = 4
    prefill: float = 0.05
    tpot: float = 0.01
    tokens: int = 16
    tokens_per_chunk: int = 1
    noise: float = 0.1
    failures: float = 0.0
    timing: bool = True


def stages_of(
    steps: tuple[int, ...], seconds: float, warm_up: float = 0.2, cool_down: float = 0.1
) -> tuple[Stage, ...]:
    plan = []
    for index, users in enumerate(steps):
        start, length = int(index * seconds * SECOND), int(seconds * SECOND)
        steady = (start + int(warm_up * length), start + length - int(cool_down * length))
        plan.append(Stage(index, users, start, *steady, start + length))
    return tuple(plan)


def meta_of(stages: tuple[Stage, ...], label: str = "fake", **changes: Any) -> RunMeta:
    meta = RunMeta(
        run_id=f"20261121-100000-{label}-abcd",
        started_at="2026-11-21T10:00:00.000+00:00",
        scenario="concurrent",
        url="http://127.0.0.1:8000",
        model="smollm2-135m",
        stages=stages,
        workload={
            "endpoint": "chat",
            "streamed": True,
            "prompt_tokens": "40",
            "shared_prefix_tokens": 0,
            "output_tokens": "16",
            "temperature": 0.0,
            "ignore_eos": True,
            "seed": 0,
            "think_time": 0.0,
        },
        engine={
            "name": label,
            "version": "1.0",
            "language": "Python",
            "model": "smollm2-135m",
            "dtype": "bfloat16",
            "device": "cpu",
            "batching": "continuous",
            "max_concurrency": 4,
            "context_length": 2048,
        },
        host={"cpu": "Test CPU", "cores": 2, "memory": 8 << 30, "os": "Linux", "python": "3.11"},
        versions={"enginebench": "0.1.0", "locust": "2.47"},
        label=label,
        command=("enginebench", "run", "concurrent", "--engine", label, "--steps", "10,20,40"),
        client_error=((10.0, 0.00002), (10_000.0, 0.00004)),
    )
    return dataclasses.replace(meta, **changes)


def record(number: int, t_sched: int, **changes: Any) -> RequestRecord:
    """A request that went well: sent at once, first token after 100 ms, three chunks 20 ms apart."""
    t_first = t_sched + SECOND // 10
    whole = RequestRecord(
        request_id=f"0-{number}",
        worker="0",
        scenario="concurrent",
        stage=0,
        users=1,
        outcome="ok",
        detail=None,
        status=200,
        t_sched=t_sched,
        t_send=t_sched,
        t_headers=t_first,
        t_first=t_first,
        t_first_out=t_first,
        t_last=t_first + 2 * SECOND // 50,
        t_end=t_first + 2 * SECOND // 50,
        read_first=t_first,
        stamps="kernel",
        merged_first=False,
        icl=(SECOND // 50, SECOND // 50),
        chunks=3,
        first_chunk_tokens=1,
        prompt_tokens=40,
        output_tokens=3,
        token_source="usage",
        text=None,
        reconnected=False,
        streamed=True,
        server_queue=None,
        server_prefill=None,
        server_decode=None,
    )
    return dataclasses.replace(whole, **changes)


def write_run(
    folder: Path, meta: RunMeta, records: list[RequestRecord], samples: list[TelemetrySample] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_meta(folder, meta)
    (folder / "requests-0.jsonl").write_text("".join(one.to_line() for one in records))
    if samples is not None:
        lines = (json.dumps(dataclasses.asdict(sample)) + "\n" for sample in samples)
        (folder / "telemetry.jsonl").write_text("".join(lines))
    return folder


def simulate(
    folder: Path,
    engine: Engine,
    steps: tuple[int, ...] = (2, 4, 8),
    seconds: float = 20.0,
    seed: int = 0,
    **changes: Any,
) -> Path:
    """A whole run of a closed loop, cut off at its end. First come, first served."""
    rng = Random(f"{engine.label} {seed}")
    stages = stages_of(steps, seconds)
    end = stages[-1].end
    ready = [(stages[i].start + rng.randrange(SECOND), u) for i in range(len(steps)) for u in _joining(steps, i)]
    heapq.heapify(ready)
    free = [0] * engine.slots
    records: list[RequestRecord] = []
    while ready:
        t, user = heapq.heappop(ready)
        if t >= end:
            continue
        stage = next(stage for stage in stages if stage.start <= t < stage.end)
        one = _request(engine, rng, len(records), t, stage, free)
        records.append(one if one.t_end <= end else _cut_off(one, end))
        heapq.heappush(ready, (one.t_end + 20_000, user))
    samples = [_sample(t, records, engine, stages) for t in range(SECOND, end, SECOND)]
    return write_run(folder, meta_of(stages, engine.label, **changes), records, samples)


def _joining(steps: tuple[int, ...], index: int) -> range:
    return range(steps[index - 1] if index else 0, steps[index])


def _request(engine: Engine, rng: Random, number: int, t: int, stage: Stage, free: list[int]) -> RequestRecord:
    sent = t + rng.randrange(100_000)
    place: dict[str, Any] = {"stage": stage.index, "users": stage.users, "t_send": sent}
    if rng.random() < engine.failures:
        return record(number, t, **place, **FAILED | {"t_end": sent + SECOND // 100})

    def about(duration: float) -> int:
        return max(int(duration * SECOND * rng.lognormvariate(0, engine.noise)), 1)

    start = max(sent, heapq.heappop(free))
    prefill = about(engine.prefill)
    first = start + prefill + 300_000
    chunks = -(-engine.tokens // engine.tokens_per_chunk)
    gaps = tuple(about(engine.tpot * engine.tokens_per_chunk) for _ in range(chunks - 1))
    last = first + sum(gaps)
    heapq.heappush(free, last)
    if engine.timing:
        place |= {"server_queue": (start - sent) / SECOND, "server_prefill": prefill / SECOND}
    return record(
        number,
        t,
        **place,
        t_headers=first,
        t_first=first,
        t_first_out=first,
        t_last=last,
        t_end=last + 50_000,
        read_first=first + rng.randrange(200_000),
        icl=gaps,
        chunks=chunks,
        first_chunk_tokens=engine.tokens_per_chunk,
        output_tokens=engine.tokens,
    )


NOTHING_CAME: dict[str, Any] = {
    "t_first": None,
    "t_first_out": None,
    "t_last": None,
    "read_first": None,
    "icl": (),
    "chunks": 0,
    "first_chunk_tokens": None,
    "output_tokens": None,
    "token_source": None,
}
FAILED: dict[str, Any] = NOTHING_CAME | {"outcome": "rejected", "status": 429, "detail": "queue full"}


def _cut_off(one: RequestRecord, end: int) -> RequestRecord:
    return dataclasses.replace(
        one, **NOTHING_CAME | {"outcome": "cut_off", "t_end": end, "text": "", "t_headers": None}
    )


def _sample(t: int, records: list[RequestRecord], engine: Engine, stages: tuple[Stage, ...]) -> TelemetrySample:
    flying = sum(1 for one in records if one.t_send is not None and one.t_send <= t < one.t_end)
    done = sum(one.output_tokens or 0 for one in records if one.t_end <= t)
    label = f'{{engine="{engine.label}"}}'
    return TelemetrySample(
        t=t,
        client_cpu=0.2,
        loop_lag=0.001,
        users=next((stage.users for stage in stages if stage.start <= t < stage.end), 0),
        server={
            f"enginebench_requests_running{label}": float(min(flying, engine.slots)),
            f"enginebench_requests_waiting{label}": float(max(flying - engine.slots, 0)),
            f"enginebench_generation_tokens_total{label}": float(done),
            f"enginebench_engine_memory_bytes{label}": 5e8,
        },
    )
